"""The ``anex`` command: the one-machine stack, and what operators do by hand.

Commands find the running stack through ``<ANEX_DATA_DIR>/stack.env``, or the servers that the environment names, and work as the
role ``work``. A module of commands is loaded when one of them is asked for: ``anex up`` must not wait for the whole core.

Exit status: 0, 1 for a fact that stands in the way (one sentence on standard error), 2 for a wrong command line.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import Any

import click

from anex import __version__
from anex.errors import AnexError
from config.cli_output import json_option, print_json, print_table
from config.log import configure_logging
from config.settings import load_settings

NOT_RUNNING = 3
"""Exit status of ``anex status`` when nothing runs, as init scripts have it (LSB 5.0, 22.2: "program is not running")."""

_GROUPS = {
    "org": "config.cli_org",
    "key": "config.cli_org",
    "credits": "config.cli_money",
    "ledger": "config.cli_money",
    "models": "config.cli_models",
    "job": "config.cli_job",
    "estimates": "config.cli_estimates",
    "freeze": "config.cli_freeze",
    "webhook": "config.cli_webhook",
}


class _CommandLine(click.Group):
    """Loads groups of commands late, and tells facts of the core as one sentence on standard error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_GROUPS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _GROUPS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(_GROUPS[cmd_name]), f"{cmd_name}_group")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AnexError as error:
            raise click.ClickException(error.message) from error


@click.group(cls=_CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Run anex on one machine, and do by hand what operators do.

    Every command but up and demo takes --json. Amounts are whole numbers whose unit stands in their name: a credit is a cent, and
    a cent is 10,000,000 nanos.
    """


@cli.command()
@click.option(
    "--regions",
    default="",
    metavar="world,eu",
    help="The regions that run here, each with an API of its own (default: the one of ANEX_REGION).",
)
def up(regions: str) -> None:
    """Run the whole service on this machine, until Ctrl-C; the data stays."""
    from config.stack.up import run_stack  # noqa: PLC0415 - see the module's docstring

    sys.exit(run_stack(os.environ, out=sys.stdout, regions=regions))


@cli.command()
def demo() -> None:
    """Take one real job from file to result on this machine."""
    from config.demo import run_demo  # noqa: PLC0415 - see the module's docstring

    sys.exit(run_demo(os.environ, out=sys.stdout))


@cli.command()
@json_option
def status(*, as_json: bool) -> None:
    """Tell what the one-machine stack runs where; exit status 3 when nothing runs."""
    from config.stack.layout import DataFolder  # noqa: PLC0415 - see the module's docstring
    from config.stack.status import read_status  # noqa: PLC0415

    found = read_status(DataFolder(load_settings(os.environ).data_dir.resolve()))
    if as_json:
        print_json(found.to_json())
    elif not found.running:
        click.echo(f"nothing runs in {found.data_folder}; `anex up` starts it")
    else:
        click.echo(f"anex runs in {found.data_folder} as process {found.supervisor_pid}\n")
        print_table(
            ("service", "state", "pid", "address", "restarts", "detail"),
            [(s.name, s.state, s.pid, s.url, s.restarts, s.detail) for s in found.services],
        )
    sys.exit(0 if found.running else NOT_RUNNING)


@cli.command()
@json_option
def migrate(*, as_json: bool) -> None:
    """Bring the database's schema to the one that this version needs."""
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415 - see the module's docstring

    from anex.migrations import newest_revision, upgrade  # noqa: PLC0415

    try:
        upgrade(load_settings(os.environ).require("database_owner_url"))
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise click.ClickException(f"the schema was not changed: {reason}") from error
    revision = newest_revision()
    if as_json:
        print_json({"revision": revision})
    else:
        click.echo(f"the schema is at {revision}")


@cli.command()
@click.option("--dry-run", is_flag=True, required=True, help="Only look. Beat purges, every few minutes.")
@json_option
def purge(*, dry_run: bool, as_json: bool) -> None:
    """Show which jobs' data and which inputs the next purge of this region takes, up to 500 of each."""
    from anex.retention import find_purgeable  # noqa: PLC0415 - see the module's docstring
    from config.wiring import open_database  # noqa: PLC0415

    del dry_run
    settings = load_settings(os.environ)
    with open_database(settings) as database:
        found = find_purgeable(database, settings.region)
    if as_json:
        print_json({"jobs": found.jobs, "inputs": found.inputs})
    else:
        print_table(
            ("kind", "id"),
            [("job", each) for each in found.jobs] + [("input", each) for each in found.inputs],
        )


def main() -> None:
    """Run the command line."""
    configure_logging("error", "console")
    # It sets a level of its own, and would add warnings to the one sentence that says the database is away.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    cli(prog_name="anex")


if __name__ == "__main__":
    main()
