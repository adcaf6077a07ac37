"""The SQL on ``inputs``. Each statement names the organization; row-level security repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anex.errors import InputNotFound
from anex.ids import is_id
from anex.inputs.model import Input

if TYPE_CHECKING:
    from anex.db import Reader, Transaction

_COLUMNS = """
id, org_id, region, format, status, object_uri, object_key, size_bytes, upload_expires_at, data_expires_at, error,
created_at, data_deleted_at, anex_now() AS read_at
"""

_INSERT_UPLOAD = f"""
INSERT INTO inputs (id, org_id, region, format, status, object_uri, object_key, upload_expires_at, created_at, created_by)
VALUES (%(id)s, %(org_id)s, %(region)s, %(format)s, 'awaiting_upload', %(object_uri)s, %(object_key)s,
        anex_now() + %(window_seconds)s * interval '1 second', anex_now(), %(key_id)s)
RETURNING {_COLUMNS}
"""  # noqa: S608 - the columns are a constant

_INSERT_COPY = f"""
INSERT INTO inputs (id, org_id, region, format, status, object_uri, object_key, source_url, callback_url, callback_secret,
                    rung_at, created_at, created_by)
VALUES (%(id)s, %(org_id)s, %(region)s, %(format)s, 'pending', %(object_uri)s, %(object_key)s, %(source_url)s,
        %(callback_url)s, %(callback_secret)s, anex_now(), anex_now(), %(key_id)s)
RETURNING {_COLUMNS}
"""  # noqa: S608 - the columns are a constant

_SELECT = f"SELECT {_COLUMNS} FROM inputs WHERE org_id = %(org_id)s"  # noqa: S608 - the columns are a constant

_MARK_READY = """
UPDATE inputs SET status = 'ready', size_bytes = %(size_bytes)s,
    data_expires_at = least(anex_now(), upload_expires_at + %(grace_seconds)s * interval '1 second')
                      + %(retention_seconds)s * interval '1 second'
WHERE id = %(input_id)s AND org_id = %(org_id)s AND status = 'awaiting_upload'
"""

_MARK_EXPIRED = """
UPDATE inputs SET status = 'expired'
WHERE id = %(input_id)s AND org_id = %(org_id)s AND status = 'awaiting_upload'
"""


def insert_upload(transaction: Transaction, values: dict[str, Any]) -> Input:
    """Insert an input that awaits its upload for ``window_seconds`` from now."""
    return _insert(transaction, _INSERT_UPLOAD, values)


def insert_copy(transaction: Transaction, values: dict[str, Any]) -> Input:
    """Insert an input that is to be copied from ``source_url``; ``callback_secret`` comes sealed."""
    return _insert(transaction, _INSERT_COPY, values)


def _insert(transaction: Transaction, statement: str, values: dict[str, Any]) -> Input:
    created = transaction.fetch_one(Input, statement, values)
    if created is None:
        raise RuntimeError("an insert returned no row")
    return created


def get_input(reader: Reader, org_id: str, input_id: str) -> Input:
    """Return the organization's input. Raises ``InputNotFound``, for a malformed id too."""
    found = None
    if is_id("inp", input_id):
        found = reader.fetch_one(
            Input, f"{_SELECT} AND id = %(input_id)s", {"org_id": org_id, "input_id": input_id}
        )
    if found is None:
        raise InputNotFound("no input has this id")
    return found


def get_input_by_uri(reader: Reader, org_id: str, object_uri: str) -> Input:
    """Return the organization's input with this ``input_s3_uri``. Raises ``InputNotFound``."""
    found = reader.fetch_one(
        Input, f"{_SELECT} AND object_uri = %(object_uri)s", {"org_id": org_id, "object_uri": object_uri}
    )
    if found is None:
        raise InputNotFound("no input has this input_s3_uri")
    return found


def get_object_key(transaction: Transaction, input_id: str) -> str:
    """Return where an input's object lies; for workers, whose job has already named it. Raises ``InputNotFound``."""
    row = transaction.fetch_dict("SELECT object_key FROM inputs WHERE id = %(id)s", {"id": input_id})
    if row is None:
        raise InputNotFound("no input has this id")
    return str(row["object_key"])


def mark_ready(
    transaction: Transaction, waiting: Input, size_bytes: int, *, grace_seconds: int, retention_seconds: int
) -> None:
    """Record that the upload has landed, unless somebody else settled the input meanwhile.

    It landed some time before it was seen, but not after its window and the grace: its retention counts from there at most.
    """
    transaction.execute(
        _MARK_READY,
        {
            "input_id": waiting.id,
            "org_id": waiting.org_id,
            "size_bytes": size_bytes,
            "grace_seconds": grace_seconds,
            "retention_seconds": retention_seconds,
        },
    )


def mark_expired(transaction: Transaction, waiting: Input) -> None:
    """Record that no upload can come any more, unless somebody else settled the input meanwhile."""
    transaction.execute(_MARK_EXPIRED, {"input_id": waiting.id, "org_id": waiting.org_id})
