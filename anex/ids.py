"""Identifiers: a prefix and 26 characters of Crockford base32 that sort by time (the ULID layout).

https://github.com/ulid/spec: 48 bits of milliseconds, 80 random bits. Random bits come from the operating system, so an
id can't be guessed from its neighbours.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

Prefix = Literal["job", "inp", "evt", "org", "key", "trf"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SUFFIX_LENGTH = 26
_SHAPE = re.compile(rf"(job|inp|evt|org|key|trf)_[{_ALPHABET}]{{{_SUFFIX_LENGTH}}}")


def new_id(prefix: Prefix, at: datetime) -> str:
    """Return a fresh id of the kind ``prefix``, ordered by ``at``."""
    number = (int(at.timestamp() * 1000) << 80) | secrets.randbits(80)
    characters = [_ALPHABET[(number >> (5 * place)) & 31] for place in reversed(range(_SUFFIX_LENGTH))]
    return f"{prefix}_{''.join(characters)}"


def is_id(prefix: Prefix, text: str) -> bool:
    """Whether ``text`` has the shape of an id of this kind; a malformed one is answered like an unknown one."""
    return text.startswith(prefix + "_") and _SHAPE.fullmatch(text) is not None


def suffix_of(identifier: str) -> str:
    """Return the part behind the prefix."""
    return identifier.partition("_")[2]
