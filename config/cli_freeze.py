"""``anex freeze``: hold the API for maintenance. Polling and downloads go on; everything else answers 503 until it is lifted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from anex.freeze import find_freeze, lift_freeze, set_freeze
from config.cli_output import json_option, print_fields, print_json
from config.wiring import open_database, read_settings

if TYPE_CHECKING:
    from anex.freeze import Freeze

REASON_MAX_CHARACTERS = 200


def _check_reason(_ctx: click.Context, _param: click.Parameter, reason: str | None) -> str | None:
    if reason is not None and len(reason) > REASON_MAX_CHARACTERS:
        raise click.BadParameter(f"it has at most {REASON_MAX_CHARACTERS} characters")
    return reason


@click.group()
def freeze_group() -> None:
    """Hold the API for maintenance, and let it go again."""


@freeze_group.command("on")
@click.option("--reason", callback=_check_reason, help="For operators; customers are not told.")
@json_option
def on_command(reason: str | None, *, as_json: bool) -> None:
    """Freeze the API; one that is frozen stays so, with the reason that is given."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        freeze = set_freeze(transaction, reason)
    _show(freeze, as_json=as_json)


@freeze_group.command("off")
@json_option
def off_command(*, as_json: bool) -> None:
    """Serve everything again."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        lift_freeze(transaction)
    _show(None, as_json=as_json)


@freeze_group.command("status")
@json_option
def status_command(*, as_json: bool) -> None:
    """Tell whether the API is frozen."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        freeze = find_freeze(transaction)
    _show(freeze, as_json=as_json)


def _show(freeze: Freeze | None, *, as_json: bool) -> None:
    told = {"reason": None, "since": None} if freeze is None else asdict(freeze)
    if as_json:
        print_json({"frozen": freeze is not None, **told})
    elif freeze is None:
        click.echo("the API is not frozen")
    else:
        print_fields({"frozen": True, **told})
