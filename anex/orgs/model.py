"""An organization, its keys, and who a request comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is, and which key made it."""

    org_id: str
    key_id: str | None


@dataclass(frozen=True, slots=True)
class Organization:
    """One row of ``organizations``. No ceiling (None) approves estimates of any size."""

    id: str
    name: str
    eu_routing: bool
    auto_approve: bool
    auto_approve_ceiling_cents: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it can be shown: ``hint`` is its first 8 characters."""

    id: str
    org_id: str
    name: str
    hint: str
    created_at: datetime
    revoked_at: datetime | None
