"""What can go wrong when we call a server of somebody else, as facts; messages are for the person who gave the URL."""

from __future__ import annotations

from anex.errors import AnexError


class OutboundRefused(AnexError):
    """The URL, or an address behind it, is not one that we call."""

    code = "forbidden_url"


class OutboundFailed(AnexError):
    """The call did not give a whole answer: name, connection, TLS, HTTP, or a body that was cut."""

    code = "outbound_failed"


class OutboundTimeout(OutboundFailed):
    """The deadline of the whole call passed, or the other side was silent for too long."""


class AnswerTooLarge(OutboundFailed):
    """The body is over the caller's bound, or the headers are over ours."""
