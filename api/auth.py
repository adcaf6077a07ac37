"""Who is asking: an API key in ``Authorization: Bearer``, judged before anything else of the request."""

from __future__ import annotations

import structlog
from flask import g, request

from anex.errors import KeyInvalid
from anex.orgs.authenticate import authenticate
from api.context import services
from api.errors import ShapeInvalid

_HEADER = "Authorization"


def authenticate_request() -> None:
    """Set ``g.caller``; a ``before_request`` hook of every blueprint that needs a key.

    Raises ``ShapeInvalid`` without the header, ``KeyInvalid`` for another scheme or a bad key, and
    ``DatabaseUnavailable`` when the key can't be checked.
    """
    header = request.headers.get(_HEADER, "").strip()
    if not header:
        raise ShapeInvalid({_HEADER: ["the header is missing; send 'Authorization: Bearer <your-api-key>'"]})
    scheme, _, presented = header.partition(" ")
    if scheme.lower() != "bearer":
        raise KeyInvalid("the Authorization header must read 'Bearer <your-api-key>'")
    g.caller = authenticate(services().database, presented.strip())
    structlog.contextvars.bind_contextvars(org_id=g.caller.org_id, key_id=g.caller.key_id)
