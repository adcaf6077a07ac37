"""The SQL on the copies of inputs: claimed under a lease with a fence, and settled once by its holder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anex.db import Transaction

# Held while an organization's copies are counted, so that of concurrent claims only as many pass as there is room for. What refers
# to the organization (a new input, a new job) can be written meanwhile.
_LOCK_ORGANIZATION = """
SELECT id FROM organizations WHERE id = (SELECT org_id FROM inputs WHERE id = %(input_id)s AND region = %(region)s)
FOR NO KEY UPDATE
"""

# A copy whose lease ran out is not counted. Where its holder lives yet and extends it, there is one too many for a while: to throw
# away what has come would cost more than the thread.
_CLAIM = """
UPDATE inputs SET status = 'copying', copy_fence = copy_fence + 1, copy_attempts = copy_attempts + 1, copied_bytes = 0,
                  copy_lease_until = anex_now() + %(lease)s * interval '1 second'
WHERE id = %(input_id)s AND region = %(region)s AND status IN ('pending', 'copying')
  AND (copy_lease_until IS NULL OR copy_lease_until < anex_now())
  AND (SELECT count(*) FROM inputs AS held
       WHERE held.org_id = inputs.org_id AND held.region = %(region)s
         AND held.status = 'copying' AND held.copy_lease_until >= anex_now()) < %(copies_max)s
RETURNING id, org_id, object_key, source_url, copy_fence, copy_attempts
"""

# What only the holder may write: the copy has not been claimed again, nor settled.
_HELD = "WHERE id = %(input_id)s AND status = 'copying' AND copy_fence = %(fence)s"

_EXTEND = f"""
UPDATE inputs SET copied_bytes = %(copied_bytes)s, copy_lease_until = anex_now() + %(lease)s * interval '1 second' {_HELD}
"""  # noqa: S608 - constants

_GIVE_BACK = f"UPDATE inputs SET copy_lease_until = NULL {_HELD}"  # noqa: S608 - constants

# The query of a source URL may be a signature: what is kept of it is enough to know the source by.
_FORGET_QUERY = r"source_url = regexp_replace(source_url, '[?#].*$', '')"

_MARK_COPIED = f"""
UPDATE inputs SET status = 'ready', size_bytes = %(size_bytes)s, copied_bytes = %(size_bytes)s, copy_lease_until = NULL,
                  data_expires_at = anex_now() + %(retention)s * interval '1 second', {_FORGET_QUERY} {_HELD}
"""  # noqa: S608 - constants

_MARK_FAILED = f"""
UPDATE inputs SET status = 'failed', error = %(reason)s, copy_lease_until = NULL, {_FORGET_QUERY} {_HELD}
"""  # noqa: S608 - constants

# A copy that nobody holds is rung again after a back-off that doubles with each ring.
_RING = """
UPDATE inputs SET rung_at = anex_now(), rings = rings + 1
WHERE id IN (
    SELECT id FROM inputs
    WHERE region = %(region)s AND status IN ('pending', 'copying') AND (copy_lease_until IS NULL OR copy_lease_until < anex_now())
      AND rung_at <= anex_now() - least(%(most)s, %(first)s * power(2, least(rings, 20))) * interval '1 second'
    ORDER BY rung_at LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
RETURNING id
"""

# Two copies that settle one after the other ring for two: the one that is rung for goes to the end of the line.
_RING_NEXT = """
UPDATE inputs SET rung_at = anex_now()
WHERE id = (
    SELECT id FROM inputs
    WHERE org_id = %(org_id)s AND region = %(region)s AND status IN ('pending', 'copying')
      AND (copy_lease_until IS NULL OR copy_lease_until < anex_now())
    ORDER BY rung_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy under this process's lease; ``copy_fence`` proves it."""

    id: str
    org_id: str
    object_key: str
    source_url: str
    copy_fence: int
    copy_attempts: int

    @property
    def claim(self) -> dict[str, Any]:
        """Return what a guarded UPDATE of this copy is guarded by."""
        return {"input_id": self.id, "fence": self.copy_fence}


def claim_copy(
    transaction: Transaction, input_id: str, region: str, *, lease_seconds: float, copies_max: int
) -> Copy | None:
    """Claim the copy of an input of this ``region``, unless it is settled or another holds it.

    Nor is it to be had while its organization has ``copies_max`` under lease there: then it stays as it is.
    """
    values = {"input_id": input_id, "region": region, "lease": lease_seconds, "copies_max": copies_max}
    transaction.execute(_LOCK_ORGANIZATION, values)
    return transaction.fetch_one(Copy, _CLAIM, values)


def extend_copy(transaction: Transaction, copy: Copy, copied_bytes: int, lease_seconds: float) -> bool:
    """Extend a held copy's lease and note how far it is. False when the lease was lost."""
    values = {**copy.claim, "copied_bytes": copied_bytes, "lease": lease_seconds}
    return transaction.execute(_EXTEND, values) == 1


def give_back_copy(transaction: Transaction, copy: Copy) -> None:
    """Let go of a held copy, for the next one to claim."""
    transaction.execute(_GIVE_BACK, copy.claim)


def mark_copied(transaction: Transaction, copy: Copy, size_bytes: int, retention_seconds: int) -> bool:
    """Make the input of a held copy ready. False when the lease was lost."""
    values = {**copy.claim, "size_bytes": size_bytes, "retention": retention_seconds}
    return transaction.execute(_MARK_COPIED, values) == 1


def mark_copy_failed(transaction: Transaction, copy: Copy, reason: str) -> bool:
    """End a held copy with the reason that its owner reads. False when the lease was lost."""
    return transaction.execute(_MARK_FAILED, {**copy.claim, "reason": reason}) == 1


def list_copies_to_ring(
    transaction: Transaction, region: str, *, first_seconds: float, most_seconds: float, batch: int
) -> list[str]:
    """Return the inputs of a region whose copy is to be rung for now, and note that it is."""
    values = {"region": region, "first": first_seconds, "most": most_seconds, "batch": batch}
    return [row["id"] for row in transaction.fetch_dicts(_RING, values)]


def find_next_to_ring(transaction: Transaction, org_id: str, region: str) -> str | None:
    """Return the input whose copy was rung for longest ago of those that an organization has waiting, and note that it is now."""
    row = transaction.fetch_dict(_RING_NEXT, {"org_id": org_id, "region": region})
    return None if row is None else str(row["id"])
