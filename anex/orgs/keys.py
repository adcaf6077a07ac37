"""API keys: made here, shown once, kept as their SHA-256 only.

A key is 256 random bits, so a plain hash is enough: there is no word list to try, as there is for passwords.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from anex.errors import KeyNotFound
from anex.ids import is_id, new_id
from anex.orgs.model import ApiKey
from anex.orgs.organizations import get_organization

if TYPE_CHECKING:
    from datetime import datetime

    from anex.db import Transaction

KEY_PREFIX = "sk-"
HINT_CHARACTERS = 8
_KEY_BYTES = 32  # 43 characters of url-safe base64

_COLUMNS = "id, org_id, name, hint, created_at, revoked_at"

_INSERT = f"""
INSERT INTO api_keys (id, org_id, name, key_sha256, hint, created_at)
VALUES (%(id)s, %(org_id)s, %(name)s, %(key_sha256)s, %(hint)s, anex_now()) RETURNING {_COLUMNS}
"""  # noqa: S608 - the columns are a constant

_LIST = f"SELECT {_COLUMNS} FROM api_keys WHERE org_id = %(org_id)s ORDER BY id"  # noqa: S608 - the columns are a constant

_REVOKE = f"""
UPDATE api_keys SET revoked_at = coalesce(revoked_at, anex_now()) WHERE id = %(key_id)s RETURNING {_COLUMNS}
"""  # noqa: S608 - the columns are a constant


def hash_key(secret: str) -> bytes:
    """Return the 32 bytes by which a key is known."""
    return hashlib.sha256(secret.encode()).digest()


def create_key(transaction: Transaction, org_id: str, name: str, now: datetime) -> tuple[ApiKey, str]:
    """Make a key; return it and its secret, which nothing can show again. Raises ``OrganizationNotFound``."""
    get_organization(transaction, org_id)
    secret = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    values = {
        "id": new_id("key", now),
        "org_id": org_id,
        "name": name,
        "key_sha256": hash_key(secret),
        "hint": secret[:HINT_CHARACTERS],
    }
    key = transaction.fetch_one(ApiKey, _INSERT, values)
    if key is None:
        raise RuntimeError("an insert returned no row")
    return key, secret


def list_keys(transaction: Transaction, org_id: str) -> list[ApiKey]:
    """Return an organization's keys, revoked ones too. Raises ``OrganizationNotFound``."""
    get_organization(transaction, org_id)
    return transaction.fetch_all(ApiKey, _LIST, {"org_id": org_id})


def revoke_key(transaction: Transaction, key_id: str) -> ApiKey:
    """Revoke a key from the commit on; repeating it changes nothing. Raises ``KeyNotFound``."""
    key = transaction.fetch_one(ApiKey, _REVOKE, {"key_id": key_id}) if is_id("key", key_id) else None
    if key is None:
        raise KeyNotFound(f"no key has the id {key_id[:64]}")
    return key
