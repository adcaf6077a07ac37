"""``anex estimates``: how estimates fare."""

from __future__ import annotations

from dataclasses import asdict

import click

from anex.jobs.report import report_estimates
from config.cli_output import json_option, print_json, print_table
from config.wiring import open_database, read_settings

DAYS_MAX = 3650


@click.group()
def estimates_group() -> None:
    """Look at how estimates fare."""


@estimates_group.command("report")
@click.option(
    "--days", default=30, show_default=True, type=click.IntRange(1, DAYS_MAX), help="How far to look back."
)
@json_option
def report_command(*, days: int, as_json: bool) -> None:
    """Show by model how often caps covered their rows, what was held for what was charged, and how many got no estimate."""
    with open_database(read_settings()) as database:
        reports = report_estimates(database.reader(), days)
    if as_json:
        print_json({"days": days, "models": [asdict(report) for report in reports]})
        return
    print_table(
        ("model", "done", "caps", "covering", "hold / charge", "refused"),
        [
            (
                report.model,
                report.done,
                report.caps,
                f"{report.caps_covering / report.caps:.1%}" if report.caps else None,
                None if report.median_hold_over_charge is None else f"{report.median_hold_over_charge:.2f}",
                report.refused,
            )
            for report in reports
        ],
    )
