"""``anex webhook``: the endpoint that an organization is told its jobs' events at, and what became of each delivery."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from anex.clock import SystemClock
from anex.orgs.organizations import get_organization
from anex.outbound import Outbound
from anex.webhooks.endpoints import (
    disable_endpoint,
    enable_endpoint,
    get_endpoint,
    redeliver,
    rotate_secret,
    send_test,
    set_endpoint,
)
from anex.webhooks.store import list_attempts, list_deliveries
from config.cli_output import json_option, print_fields, print_json, print_table
from config.wiring import build_sealer, open_database, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from anex.db import Transaction
    from anex.webhooks.model import Endpoint

LISTED_MAX = 1000

_DELIVERY_COLUMNS = ("event_id", "type", "job_id", "input_id", "state", "attempts", "due_at", "last")
_ATTEMPT_COLUMNS = ("attempt", "begun_at", "duration_milliseconds", "status", "error", "answer")


@click.group()
def webhook_group() -> None:
    """Set an organization's webhook endpoint, and see what was delivered."""


@webhook_group.command("set")
@click.argument("org_id")
@click.argument("url")
@json_option
def set_command(org_id: str, url: str, *, as_json: bool) -> None:
    """Give an organization an endpoint and show its secret, this once; or give the endpoint another address."""
    settings = read_settings()
    sealer = build_sealer(settings)
    Outbound(settings.outbound).check(url)
    with open_database(settings) as database, database.transaction() as transaction:
        endpoint, secret = set_endpoint(transaction, sealer, org_id, url)
    _show_secret(endpoint, secret, as_json=as_json)


@webhook_group.command("rotate")
@click.argument("org_id")
@json_option
def rotate_command(org_id: str, *, as_json: bool) -> None:
    """Make a new secret and show it, this once; the one before signs too for a day."""
    settings = read_settings()
    sealer = build_sealer(settings)
    with open_database(settings) as database, database.transaction() as transaction:
        seconds = settings.timings.previous_secret_seconds
        endpoint, secret = rotate_secret(transaction, sealer, org_id, seconds)
    _show_secret(endpoint, secret, as_json=as_json)


@webhook_group.command("show")
@click.argument("org_id")
@json_option
def show_command(org_id: str, *, as_json: bool) -> None:
    """Show an endpoint and how it fares, without its secrets."""
    _change(lambda transaction: get_endpoint(transaction, org_id), as_json=as_json)


@webhook_group.command("disable")
@click.argument("org_id")
@json_option
def disable_command(org_id: str, *, as_json: bool) -> None:
    """Send nothing more; what waits is given up."""
    _change(lambda transaction: disable_endpoint(transaction, org_id), as_json=as_json)


@webhook_group.command("enable")
@click.argument("org_id")
@json_option
def enable_command(org_id: str, *, as_json: bool) -> None:
    """Send events again, from now on; `redeliver` sends earlier ones."""
    _change(lambda transaction: enable_endpoint(transaction, org_id), as_json=as_json)


@webhook_group.command("test")
@click.argument("org_id")
@json_option
def test_command(org_id: str, *, as_json: bool) -> None:
    """Send a test event; `deliveries --event` tells what became of it."""
    settings = read_settings()
    with open_database(settings) as database, database.transaction() as transaction:
        event_id = send_test(transaction, org_id, settings.region, SystemClock().now())
    _show_event(event_id, as_json=as_json)


@webhook_group.command("redeliver")
@click.argument("event_id")
@json_option
def redeliver_command(event_id: str, *, as_json: bool) -> None:
    """Send an event once more, under its id."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        redeliver(transaction, event_id)
    _show_event(event_id, as_json=as_json)


@webhook_group.command("deliveries")
@click.argument("org_id")
@click.option("--event", "event_id", help="Show the attempts of this one.")
@click.option("--limit", type=click.IntRange(1, LISTED_MAX), default=50, show_default=True)
@json_option
def deliveries_command(org_id: str, event_id: str | None, limit: int, *, as_json: bool) -> None:
    """List an organization's deliveries, callbacks too, the newest first; or the attempts of one."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        get_organization(transaction, org_id)
        if event_id is not None:
            told = [asdict(attempt) for attempt in list_attempts(transaction, org_id, event_id, limit)]
        else:
            told = [asdict(delivery) for delivery in list_deliveries(transaction, org_id, limit)]
    if as_json:
        print_json({"deliveries" if event_id is None else "attempts": told})
    elif event_id is not None:
        print_table(_ATTEMPT_COLUMNS, [[row[name] for name in _ATTEMPT_COLUMNS] for row in told])
    else:
        print_table(_DELIVERY_COLUMNS, [_tell_delivery(row) for row in told])


def _tell_delivery(row: dict[str, Any]) -> list[object]:
    last = row["last_status"] if row["last_error"] is None else row["last_error"]
    return [last if name == "last" else row[name] for name in _DELIVERY_COLUMNS]


def _change(action: Callable[[Transaction], Endpoint], *, as_json: bool) -> None:
    with open_database(read_settings()) as database, database.transaction() as transaction:
        endpoint = action(transaction)
    if as_json:
        print_json(asdict(endpoint))
    else:
        print_fields(asdict(endpoint))


def _show_secret(endpoint: Endpoint, secret: str | None, *, as_json: bool) -> None:
    told = {**asdict(endpoint), "secret": secret}
    if as_json:
        print_json(told)
        return
    print_fields({name: value for name, value in told.items() if value is not None})
    if secret is not None:
        click.echo("Keep the secret now: it cannot be shown again.", err=True)


def _show_event(event_id: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"event_id": event_id})
    else:
        click.echo(f"{event_id} goes out within seconds")
