"""An input as the database holds it, as the API tells it, and what is asked and answered at its creation.

What is stored and what is told differ: a window that has passed is told at once and stored when nothing can change it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from anex.regions import Region


class InputStatus(StrEnum):
    """What has become of an input. ``pending`` and ``copying`` belong to inputs that are copied from a URL."""

    AWAITING_UPLOAD = "awaiting_upload"
    PENDING = "pending"
    COPYING = "copying"
    READY = "ready"
    FAILED = "failed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class InputRequest:
    """What ``POST /inputs`` asks for. Without ``source_url`` it asks for an upload form."""

    format: str | None = None
    source_url: str | None = None
    callback_url: str | None = None
    data_residency: Region | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One row of ``inputs``, read at the database's time ``read_at``."""

    id: str
    org_id: str
    region: str
    format: str
    status: str
    object_uri: str
    object_key: str
    size_bytes: int | None
    upload_expires_at: datetime | None
    data_expires_at: datetime | None
    error: str | None
    created_at: datetime
    data_deleted_at: datetime | None
    read_at: datetime

    @property
    def reported_status(self) -> InputStatus:
        """The status to tell. True of an upload only after ``settle_input`` has looked for its object."""
        status = InputStatus(self.status)
        if self.data_deleted_at is not None or self._is_past(self._deadline):
            return InputStatus.EXPIRED
        return status

    @property
    def expires_at(self) -> datetime | None:
        """When the upload must have begun, or until when a ready input is kept; None when neither is to come."""
        return None if self.reported_status is InputStatus.EXPIRED else self._deadline

    @property
    def _deadline(self) -> datetime | None:
        deadlines = {
            InputStatus.AWAITING_UPLOAD: self.upload_expires_at,
            InputStatus.READY: self.data_expires_at,
        }
        return deadlines.get(InputStatus(self.status))

    def _is_past(self, deadline: datetime | None) -> bool:
        return deadline is not None and self.read_at >= deadline


@dataclass(frozen=True, slots=True)
class CreatedInput:
    """A new input, and what is told at its creation alone.

    Of an upload the form that its file is sent with: ``fields`` in order, then ``file``, POSTed to ``upload_url``. Of a copy with a
    callback the secret that its deliveries are signed with.
    """

    input: Input
    upload_url: str | None = None
    fields: dict[str, str] | None = None
    callback_secret: str | None = None
