"""Signatures after Standard Webhooks (https://www.standardwebhooks.com), made with its maintained library.

What is signed are the very bytes that are sent: nothing may encode the body again afterwards.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from standardwebhooks import Webhook

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


def sign(secrets: Sequence[str], event_id: str, at: datetime, body: str) -> dict[str, str]:
    """Return the headers of one attempt, made at ``at``: a signature by each of ``secrets``."""
    moment = at.astimezone(UTC).replace(microsecond=0)  # the library takes any time's digits for UTC
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(event_id, moment, body) for secret in secrets),
    }
