"""How every fault is answered: the one table from facts to HTTP statuses, and the one shape of an error body.

The body is ``{"detail": sentence, "error": {"code", "message"}}``; a fault of the request's shape adds ``errors``, a map from
field to messages. Only the facts of the table reach a client with their own message: those are written for it. Everything else
is answered with a fixed sentence and logged, so nothing internal leaks.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from flask import Flask, Response, current_app, jsonify
from werkzeug.exceptions import HTTPException

from anex import errors as facts
from anex.errors import AnexError
from anex.residency import RegionElsewhere, RegionForbidden
from api.context import request_id

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger(__name__)

ORIGINS = "REGION_ORIGINS"
"""Key of ``app.config``: the public origin of each region's API."""

REGION_ORIGINS = {"world": "https://api.anex.sh", "eu": "https://api-eu.anex.sh"}
"""Where each region's API is reached, as a 421 and the document name it, unless the application is told otherwise."""

RETRY_AFTER_SECONDS = 5
"""Told with a 503 that states no time of its own: our services come back within seconds or not soon."""

FROZEN_RETRY_AFTER_SECONDS = 60
"""Told while the API is frozen: maintenance takes minutes."""

_FIELDS_MAX = 20
_FIELD_CHARACTERS_MAX = 64


class ShapeInvalid(AnexError):
    """The request does not match the endpoint's shape; ``errors`` maps each field to its messages."""

    code = "invalid_request_shape"

    def __init__(self, errors: Mapping[str, list[str]]) -> None:
        shown = {str(name)[:_FIELD_CHARACTERS_MAX]: errors[name] for name in list(errors)[:_FIELDS_MAX]}
        super().__init__("; ".join(f"{name}: {', '.join(told)}" for name, told in shown.items()))
        self.errors = shown


class RateLimitExceeded(AnexError):
    """Requests come faster than one key, or one address without a good key, may send them."""

    code = "rate_limit_exceeded"

    def __init__(self, retry_after_seconds: int) -> None:
        seconds = "1 second" if retry_after_seconds == 1 else f"{retry_after_seconds} seconds"
        super().__init__(f"requests arrive faster than the API accepts; wait {seconds}, then retry")
        self.retry_after_seconds = retry_after_seconds


STATUS_OF: dict[type[AnexError], HTTPStatus] = {
    facts.InputContentInvalid: HTTPStatus.BAD_REQUEST,
    facts.RequestRefused: HTTPStatus.BAD_REQUEST,
    facts.KeyInvalid: HTTPStatus.UNAUTHORIZED,
    facts.BalanceTooLow: HTTPStatus.PAYMENT_REQUIRED,
    RegionForbidden: HTTPStatus.FORBIDDEN,
    facts.JobNotFound: HTTPStatus.NOT_FOUND,
    facts.InputNotFound: HTTPStatus.NOT_FOUND,
    facts.OrganizationNotFound: HTTPStatus.NOT_FOUND,
    facts.KeyNotFound: HTTPStatus.NOT_FOUND,
    facts.JobStateConflict: HTTPStatus.CONFLICT,
    facts.ResultUnavailable: HTTPStatus.CONFLICT,
    facts.InputNotReady: HTTPStatus.CONFLICT,
    facts.InputExpired: HTTPStatus.CONFLICT,
    facts.InputFailed: HTTPStatus.CONFLICT,
    facts.DataDeleted: HTTPStatus.GONE,
    facts.SourceTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    RegionElsewhere: HTTPStatus.MISDIRECTED_REQUEST,
    ShapeInvalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    facts.ModelUnknown: HTTPStatus.UNPROCESSABLE_ENTITY,
    facts.SettingInvalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    RateLimitExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    facts.ApprovalQueueFull: HTTPStatus.TOO_MANY_REQUESTS,
    facts.SampleLimitReached: HTTPStatus.TOO_MANY_REQUESTS,
    facts.Frozen: HTTPStatus.SERVICE_UNAVAILABLE,
    facts.GrammarBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    facts.DatabaseUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    facts.BrokerUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    facts.StorageUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Facts that a client may be told. One that is missing here is a fault of ours: 500."""

_OWN_SERVICES = (facts.DatabaseUnavailable, facts.BrokerUnavailable, facts.StorageUnavailable)
_UNAVAILABLE = "a service that this request needs can't be reached; try again in a few seconds"

_HTTP_FAULTS: dict[int, tuple[str, str]] = {
    HTTPStatus.BAD_REQUEST: ("bad_request", "the request can't be read as HTTP"),
    HTTPStatus.NOT_FOUND: (
        "not_found",
        "there is nothing at this address; /openapi.json lists every endpoint",
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "method_not_allowed",
        "this address doesn't take this method; the Allow header lists those that it takes",
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (
        "request_too_large",
        "the request body is larger than 1 MiB; a file goes to the address that POST /inputs answers with",
    ),
}
"""Code and sentence of what Flask refuses by itself; Python's names for statuses change between versions."""


def register_error_handlers(app: Flask) -> None:
    """Answer every fault of ``app``, Flask's own included, in the one shape."""
    app.register_error_handler(AnexError, _answer_fact)
    app.register_error_handler(HTTPException, _answer_http)
    app.register_error_handler(Exception, _answer_unknown)


def _answer_fact(error: AnexError) -> Response:
    status = STATUS_OF.get(type(error))
    if status is None:
        return _answer_unknown(error)
    if isinstance(error, _OWN_SERVICES):
        log.warning("service_unavailable", reason=error.message)
        return _make_response(status, error.code, _UNAVAILABLE, headers=_headers_of(error, status))
    message, extra = _describe(error)
    return _make_response(status, error.code, message, extra, _headers_of(error, status))


def _describe(error: AnexError) -> tuple[str, dict[str, Any]]:
    """Return the sentence and what the body carries beside it."""
    if isinstance(error, ShapeInvalid):
        return error.message, {"errors": error.errors}
    if isinstance(error, facts.SettingInvalid | facts.ModelUnknown):
        return error.message, {"errors": {error.field: [error.message]}}
    if isinstance(error, RegionElsewhere):
        origin = current_app.config[ORIGINS][error.region]
        return f"{error.message}; use {origin}", {"residency": error.region, "api": origin}
    return error.message, {}


def _headers_of(error: AnexError, status: HTTPStatus) -> dict[str, str]:
    if status is HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    seconds = getattr(error, "retry_after_seconds", None)
    if isinstance(error, facts.Frozen):
        seconds = FROZEN_RETRY_AFTER_SECONDS
    elif seconds is None and status is HTTPStatus.SERVICE_UNAVAILABLE:
        seconds = RETRY_AFTER_SECONDS
    return {} if seconds is None else {"Retry-After": str(seconds)}


def _answer_http(error: HTTPException) -> Response:
    """Answer what Flask and werkzeug refuse themselves; their headers (``Allow``) stay."""
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _answer_unknown(error)
    code, message = _HTTP_FAULTS.get(status, (f"http_{status}", f"the request was refused: {error.name}"))
    headers = {name: value for name, value in error.get_headers() if name != "Content-Type"}
    return _make_response(status, code, message, headers=headers)


def _answer_unknown(error: Exception) -> Response:
    log.error("request_failed", exc_info=error)
    message = f"internal error; the request id is {request_id()}"
    return _make_response(HTTPStatus.INTERNAL_SERVER_ERROR, AnexError.code, message)


def _make_response(
    status: int,
    code: str,
    message: str,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = {"detail": message, "error": {"code": code, "message": message}, **(extra or {})}
    response = jsonify(body)
    response.status_code = status
    response.headers.update(headers or {})
    return response
