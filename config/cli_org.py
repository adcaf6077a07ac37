"""``anex org`` and ``anex key``: organizations, their settings, and their API keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from anex.clock import SystemClock
from anex.money import format_cents
from anex.orgs.keys import create_key, list_keys, revoke_key
from anex.orgs.organizations import (
    create_organization,
    get_organization,
    list_organizations,
    set_organization,
)
from config.cli_output import json_option, print_fields, print_json, print_table
from config.wiring import open_database, read_settings

if TYPE_CHECKING:
    from anex.orgs.model import ApiKey, Organization

NAME_MAX_CHARACTERS = 200

_KEY_COLUMNS = ("id", "name", "hint", "created_at", "revoked_at")

_switch = click.Choice(["on", "off"])


class _Ceiling(click.ParamType[int | None]):
    """Whole cents, or ``none`` for no ceiling."""

    name = "cents|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == "none":
            return None
        return click.IntRange(min=0, max=10**12).convert(value, param, ctx)


def _check_name(_ctx: click.Context, _param: click.Parameter, name: str) -> str:
    if not 1 <= len(name) <= NAME_MAX_CHARACTERS or not name.isprintable():
        raise click.BadParameter(f"a name has 1 to {NAME_MAX_CHARACTERS} printable characters")
    return name


@click.group()
def org_group() -> None:
    """Create, show and set organizations."""


@org_group.command("create")
@click.argument("name", callback=_check_name)
@json_option
def create_org_command(name: str, *, as_json: bool) -> None:
    """Create an organization with an empty balance."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        created = create_organization(transaction, name, SystemClock().now())
    _show_organization(created, as_json=as_json)


@org_group.command("list")
@json_option
def list_orgs_command(*, as_json: bool) -> None:
    """List the organizations, oldest first (at most 1,000)."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        found = list_organizations(transaction)
    if as_json:
        print_json({"organizations": [asdict(each) for each in found]})
    else:
        print_table(("id", "name", "created_at"), [(each.id, each.name, each.created_at) for each in found])


@org_group.command("show")
@click.argument("org_id")
@json_option
def show_org_command(org_id: str, *, as_json: bool) -> None:
    """Show an organization's settings."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        found = get_organization(transaction, org_id)
    _show_organization(found, as_json=as_json)


@org_group.command("set")
@click.argument("org_id")
@click.option("--auto-approve", type=_switch, help="Start jobs without an approval by hand.")
@click.option("--auto-approve-ceiling-cents", type=_Ceiling(), help="Highest estimate that starts by itself.")
@click.option("--eu-routing", type=_switch, help="Keep and process new inputs and jobs in the EU region.")
@json_option
@click.pass_context
def set_org_command(
    context: click.Context,
    org_id: str,
    *,
    auto_approve: str | None,
    auto_approve_ceiling_cents: int | None,
    eu_routing: str | None,
    as_json: bool,
) -> None:
    """Change an organization's settings; what is not given stays."""
    changes: dict[str, Any] = {
        name: value == "on"
        for name, value in (("auto_approve", auto_approve), ("eu_routing", eu_routing))
        if value is not None
    }
    # None is a value here: the ceiling `none`.
    if context.get_parameter_source("auto_approve_ceiling_cents") is ParameterSource.COMMANDLINE:
        changes["auto_approve_ceiling_cents"] = auto_approve_ceiling_cents
    if not changes:
        raise click.UsageError("give at least one setting to change")
    with open_database(read_settings()) as database, database.transaction() as transaction:
        changed = set_organization(transaction, org_id, changes)
    _show_organization(changed, as_json=as_json)


@click.group()
def key_group() -> None:
    """Create, list and revoke API keys."""


@key_group.command("create")
@click.argument("org_id")
@click.option("--name", default="default", callback=_check_name, help="What people call it.")
@json_option
def create_key_command(org_id: str, name: str, *, as_json: bool) -> None:
    """Make a key and show it, this once: only its hash is kept."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        created, secret = create_key(transaction, org_id, name, SystemClock().now())
    if as_json:
        print_json({**asdict(created), "key": secret})
    else:
        print_fields({"id": created.id, "org_id": created.org_id, "name": created.name, "key": secret})
        click.echo("Keep the key now: it cannot be shown again.", err=True)


@key_group.command("list")
@click.argument("org_id")
@json_option
def list_keys_command(org_id: str, *, as_json: bool) -> None:
    """List an organization's keys, revoked ones too; a hint is a key's first 8 characters."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        keys = list_keys(transaction, org_id)
    if as_json:
        print_json({"keys": [asdict(key) for key in keys]})
    else:
        print_table(_KEY_COLUMNS, [_key_row(key) for key in keys])


@key_group.command("revoke")
@click.argument("key_id")
@json_option
def revoke_key_command(key_id: str, *, as_json: bool) -> None:
    """Revoke a key: requests with it are refused from now on."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        revoked = revoke_key(transaction, key_id)
    if as_json:
        print_json(asdict(revoked))
    else:
        print_table(_KEY_COLUMNS, [_key_row(revoked)])


def _key_row(key: ApiKey) -> tuple[object, ...]:
    return tuple(getattr(key, column) for column in _KEY_COLUMNS)


def _show_organization(organization: Organization, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(organization))
        return
    ceiling = organization.auto_approve_ceiling_cents
    print_fields(
        {
            "id": organization.id,
            "name": organization.name,
            "auto-approve": organization.auto_approve,
            "ceiling": "none" if ceiling is None else f"{format_cents(ceiling)} a job",
            "EU routing": organization.eu_routing,
            "created": organization.created_at,
        }
    )
