"""``anex credits`` and ``anex ledger``: give credits, read balances, prove the books."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from anex.clock import SystemClock
from anex.ledger.check import check_ledger
from anex.ledger.grants import grant_credits
from anex.ledger.store import get_balance, list_transfers
from anex.money import cents_to_nanos
from config.cli_output import format_nanos, json_option, print_fields, print_json, print_table
from config.wiring import open_database, read_settings

GRANT_MAX_CENTS = 1_000_000_000
"""$10,000,000: a slip of the finger ends here."""

TEXT_MAX_CHARACTERS = 200

_VIOLATED = 1


def _check_text(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None and not 1 <= len(text) <= TEXT_MAX_CHARACTERS:
        raise click.BadParameter(f"it has 1 to {TEXT_MAX_CHARACTERS} characters")
    return text


@click.group()
def credits_group() -> None:
    """Grant credits and read balances; a credit is a cent."""


@credits_group.command("grant")
@click.argument("org_id")
@click.argument("amount_credits", metavar="CREDITS", type=click.IntRange(1, GRANT_MAX_CENTS))
@click.option("--reason", default="granted by an operator", callback=_check_text, help="Kept in the ledger.")
@click.option(
    "--idempotency-key", callback=_check_text, help="The same key grants once, however often it is repeated."
)
@json_option
def grant_command(
    org_id: str, amount_credits: int, reason: str, *, idempotency_key: str | None, as_json: bool
) -> None:
    """Add credits to an organization's balance."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        grant_credits(
            transaction,
            org_id=org_id,
            amount_nanos=cents_to_nanos(amount_credits),
            reason=reason,
            now=SystemClock().now(),
            idempotency_key=idempotency_key,
        )
    _show_balance(org_id, as_json=as_json)


@credits_group.command("balance")
@click.argument("org_id")
@json_option
def balance_command(org_id: str, *, as_json: bool) -> None:
    """Show what an organization may spend, and what is held for its running jobs."""
    _show_balance(org_id, as_json=as_json)


@click.group()
def ledger_group() -> None:
    """Show transfers, prove the books."""


@ledger_group.command("check")
@json_option
def check_command(*, as_json: bool) -> None:
    """Prove that transfers, balances, holds and jobs agree; exit status 1 when they don't."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        violations = check_ledger(transaction)
    if as_json:
        print_json({"violations": violations})
    else:
        click.echo("\n".join(violations) if violations else "the books are right")
    sys.exit(_VIOLATED if violations else 0)


@ledger_group.command("show")
@click.argument("org_id")
@json_option
def show_command(org_id: str, *, as_json: bool) -> None:
    """List an organization's transfers, newest first (at most 1,000)."""
    with open_database(read_settings()) as database, database.transaction() as transaction:
        balance = get_balance(transaction, org_id)
        transfers = list_transfers(transaction, org_id)
    if as_json:
        print_json({"org_id": org_id, **asdict(balance), "transfers": [asdict(each) for each in transfers]})
        return
    print_table(
        ("at", "kind", "amount", "from", "to", "job", "key", "reason"),
        [
            (t.at, t.kind, format_nanos(t.amount_nanos), t.debit, t.credit, t.job_id, t.key_id, t.reason)
            for t in transfers
        ],
    )


def _show_balance(org_id: str, *, as_json: bool) -> None:
    with open_database(read_settings()) as database, database.transaction() as transaction:
        balance = get_balance(transaction, org_id)
    if as_json:
        print_json(
            {
                "org_id": org_id,
                "available_nanos": balance.available_nanos,
                "held_nanos": balance.held_nanos,
            }
        )
    else:
        print_fields(
            {
                "organization": org_id,
                "available": format_nanos(balance.available_nanos),
                "held": format_nanos(balance.held_nanos),
            }
        )
