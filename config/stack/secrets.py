"""Passwords and keys of the embedded servers: made once, mode 0600, handed on by file or environment only."""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from config.stack.errors import SecretsLost
from config.stack.files import PRIVATE_MODE, write_private

if TYPE_CHECKING:
    from config.stack.layout import DataFolder

_FILE = "secrets.json"
_FERNET_KEY_BYTES = 32


def _password() -> str:
    """Return 192 random bits in letters, digits, - and _: they need no quoting anywhere."""
    return secrets.token_urlsafe(24)


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(_FERNET_KEY_BYTES)).decode("ascii")


@dataclass(frozen=True, slots=True)
class StackSecrets:
    """Every secret of one data folder."""

    postgres_superuser: str = field(default_factory=_password, repr=False)
    postgres_owner: str = field(default_factory=_password, repr=False)
    postgres_api: str = field(default_factory=_password, repr=False)
    postgres_work: str = field(default_factory=_password, repr=False)
    valkey: str = field(default_factory=_password, repr=False)
    s3_access_key: str = field(default_factory=lambda: secrets.token_hex(10), repr=False)
    s3_secret_key: str = field(default_factory=_password, repr=False)
    secret_key: str = field(default_factory=_fernet_key, repr=False)


def settle_secrets(folder: DataFolder) -> StackSecrets:
    """Return the folder's secrets, made at the first call. Raises ``SecretsLost`` when they are gone."""
    path = folder.secrets / _FILE
    if path.exists():
        path.chmod(PRIVATE_MODE)
        return StackSecrets(**json.loads(path.read_text("utf-8")))
    if folder.postgres.exists():
        raise SecretsLost(
            f"{path} is missing, and the database in {folder.postgres} opens only with the passwords in it. "
            f"Restore that file, or move {folder.root} away to begin anew."
        )
    made = StackSecrets()
    write_private(path, json.dumps(asdict(made), indent=1) + "\n")
    return made
