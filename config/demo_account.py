"""The demo's operator: its organization, credits and key, and the books of its job.

It uses the functions under ``anex org``, ``anex credits``, ``anex key`` and ``anex job``, on the database itself: a customer's
key can do none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anex.clock import SystemClock
from anex.errors import KeyInvalid
from anex.jobs.show import describe_job
from anex.ledger.grants import grant_credits
from anex.ledger.store import get_balance
from anex.money import cents_to_nanos
from anex.orgs.authenticate import authenticate
from anex.orgs.keys import create_key
from anex.orgs.organizations import create_organization, list_organizations
from config.stack.files import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from anex.db import Database
    from anex.ledger.model import Balance

DEMO_NAME = "demo"
GRANT_CENTS = 500
CREDITS_LOW_CENTS = 100
"""Below this the demo grants more."""


class DemoAccount:
    """The organization ``demo``; ``database`` is connected as ``anex_work``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock = SystemClock()
        self.org_id = self._find_or_create()

    def ensure_credits(self) -> int:
        """Grant credits when few are left; return the cents granted."""
        if self.read_balance().available_nanos >= cents_to_nanos(CREDITS_LOW_CENTS):
            return 0
        with self._database.transaction() as transaction:
            grant_credits(
                transaction,
                org_id=self.org_id,
                amount_nanos=cents_to_nanos(GRANT_CENTS),
                reason="make demo",
                now=self._clock.now(),
            )
        return GRANT_CENTS

    def ensure_key(self, file: Path) -> str:
        """Return the key that ``file`` holds (mode 0600), a new one where it holds none that works."""
        secret = file.read_text("utf-8").strip() if file.exists() else ""
        if not self._owns(secret):
            with self._database.transaction() as transaction:
                _, secret = create_key(transaction, self.org_id, DEMO_NAME, self._clock.now())
            write_private(file, f"{secret}\n")
        return secret

    def read_balance(self) -> Balance:
        """Return what the organization has now."""
        with self._database.transaction() as transaction:
            return get_balance(transaction, self.org_id)

    def read_job(self, job_id: str) -> dict[str, Any]:
        """Return what ``anex job show --json`` tells of the job: its rows done, its hold, the units that run it."""
        with self._database.transaction() as transaction:
            return describe_job(transaction, job_id)

    def _find_or_create(self) -> str:
        with self._database.transaction() as transaction:
            for organization in list_organizations(transaction):
                if organization.name == DEMO_NAME:
                    return organization.id
            return create_organization(transaction, DEMO_NAME, self._clock.now()).id

    def _owns(self, secret: str) -> bool:
        try:
            return authenticate(self._database, secret).org_id == self.org_id
        except KeyInvalid:
            return False
