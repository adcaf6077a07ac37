"""Tell who a request comes from by the key it presents."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anex.errors import KeyInvalid
from anex.freeze import IS_FROZEN
from anex.orgs.keys import hash_key
from anex.orgs.model import Caller

if TYPE_CHECKING:
    from anex.db import Database

_FIND = f"""
SELECT id, org_id, key_sha256, {IS_FROZEN} AS is_frozen FROM api_keys
WHERE key_sha256 = %(key_sha256)s AND revoked_at IS NULL
"""  # noqa: S608 - the expression is a constant


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is asking, and whether an operator holds the API frozen: read in one statement, so it costs nothing more."""

    caller: Caller
    is_frozen: bool


def admit(database: Database, presented: str) -> Admission:
    """Return whose key this is. Raises ``KeyInvalid`` for an unknown or revoked one, ``DatabaseUnavailable``.

    Read at every request: a revocation works from its commit on. Row-level security shows a request without an organization the one
    row whose hash it names. What is looked up is a hash, so the look-up's timing tells nothing of a key; the comparison is constant
    in time all the same.
    """
    digest = hash_key(presented)
    found = database.reader(key_sha256=digest.hex()).fetch_dict(_FIND, {"key_sha256": digest})
    if found is None or not hmac.compare_digest(bytes(found["key_sha256"]), digest):
        raise KeyInvalid("the API key is invalid or no longer active")
    return Admission(Caller(found["org_id"], found["id"]), found["is_frozen"])


def authenticate(database: Database, presented: str) -> Caller:
    """Return whose key this is, frozen or not; raises what ``admit`` raises."""
    return admit(database, presented).caller
