"""Secrets that are kept: encrypted with the installation's keys, so that a copy of the database alone gives none away.

Fernet (https://github.com/fernet/spec/blob/master/Spec.md) through ``cryptography``'s MultiFernet: the first key encrypts, each
decrypts, so a key is replaced by putting a new one in front of it.
"""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from anex.errors import SealBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNING_BYTES = 32


class Sealer:
    """Encrypts and decrypts short texts. Without a key it refuses both: a GPU machine needs none, and should hold none."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Take Fernet keys (32 bytes as url-safe base64), the present one first."""
        self._keys = MultiFernet([Fernet(key) for key in keys]) if keys else None

    @property
    def _fernet(self) -> MultiFernet:
        if self._keys is None:
            raise SealBroken("a secret was to be sealed or opened, and ANEX_SECRET_KEY is not set here")
        return self._keys

    def seal(self, text: str) -> bytes:
        """Return ``text`` encrypted. Raises ``SealBroken`` without a key."""
        return self._fernet.encrypt(text.encode())

    def open(self, sealed: bytes) -> str:
        """Return the text again. Raises ``SealBroken`` when no key of the installation opens it."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken as error:
            raise SealBroken("a stored secret opens with none of the keys in ANEX_SECRET_KEY") from error


def new_signing_secret() -> str:
    """Return a fresh secret in the form of Standard Webhooks (https://www.standardwebhooks.com): 32 random bytes."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SIGNING_BYTES)).decode("ascii")
