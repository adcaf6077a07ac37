"""One try: a POST through the guarded door, bounded in time and bytes, redirects never followed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from anex.outbound import OutboundFailed, OutboundRefused
from anex.webhooks.model import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.outbound import Outbound, OutboundAnswer

ANSWER_BYTES_MAX = 512
"""What is kept of an answer, for its receiver to see what went wrong. No more of it is read."""


def send(
    outbound: Outbound, url: str, headers: Mapping[str, str], body: bytes, deadline_seconds: float
) -> Attempt:
    """Send an event once and return what came of it.

    A status that came counts, whatever becomes of the body behind it: a receiver that answered 200 and then drips has taken it.
    """
    begun = time.monotonic()
    sent = {**headers, "content-type": "application/json"}
    try:
        with outbound.request(
            "POST",
            url,
            headers=sent,
            body=body,
            deadline_seconds=deadline_seconds,
            idle_seconds=deadline_seconds,
        ) as answer:
            told = _read_answer(answer)
    except (OutboundFailed, OutboundRefused) as failed:
        return Attempt(_since(begun), error=failed.message)
    return Attempt(_since(begun), answer.status, told)


def _read_answer(answer: OutboundAnswer) -> str:
    try:
        head = next(answer.iterate(ANSWER_BYTES_MAX), b"")
    except OutboundFailed:
        return ""
    # Postgres stores no NUL.
    return head.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
