"""A blueprint whose routes need a key, read their bodies strictly and state which answers they give."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from flask import request
from flask_smorest import Blueprint  # type: ignore[import-untyped] # the library ships no types

from api.auth import authenticate_request
from api.body import BodyParser
from api.schema import ErrorBodySchema, NothingSchema

if TYPE_CHECKING:
    from marshmallow import Schema

Route = TypeVar("Route", bound=Callable[..., Any])

_ALWAYS = (401, 422, 429, 500, 503)
"""What any route may answer, whatever it does."""

_MEANINGS = {
    400: "Something in the request or in the file is not valid.",
    401: "The API key is invalid or no longer active.",
    402: "The balance does not cover what was asked.",
    403: "The organization has no EU data routing.",
    404: "There is nothing with this id in the organization.",
    409: "The state of the job or of the input does not allow it.",
    410: "The data has been deleted.",
    413: "The body is larger than 1 MiB, or the file at `source_url` than an input may be.",
    421: "Another region's API serves this; `api` names it.",
    422: "The request does not have the endpoint's shape, or a setting does not go with the model.",
    429: (
        "Requests arrive faster than the API accepts (`rate_limit_exceeded`); on submit also: too many jobs await approval "
        "(`approval_queue_full`), or the day's sample is used up (`sample_limit_reached`). Wait for `Retry-After` seconds."
    ),
    500: "A fault of ours.",
    503: (
        "A service that is needed can't be reached (`service_unavailable`), or the API is frozen for maintenance (`api_frozen`; "
        "polling and downloads go on). Wait for `Retry-After` seconds."
    ),
}

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose bodies mean nothing and are passed over; every other one's is judged."""

_EVERY = ("X-Request-Id",)
_HEADERS = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}
"""What an answer carries beside its body; ``api.openapi`` says what each means."""


def refer_to_headers(status: int) -> dict[str, Any]:
    """Return the headers of a status as the document names them."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*_EVERY, *_HEADERS.get(status, ()))}


def _refuse_fields(route: Route) -> Callable[..., Any]:
    """Judge the body of a route that takes none like any other. The document doesn't speak of it: clients send nothing."""

    @wraps(route)
    def refusing(**named: Any) -> Any:
        ApiBlueprint.ARGUMENTS_PARSER.parse(NothingSchema(), request, location="json")
        return route(**named)

    return refusing


class ApiBlueprint(Blueprint):  # type: ignore[misc] # see the import
    """Routes of one noun; the key is judged before the body is read."""

    ARGUMENTS_PARSER = BodyParser()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before_request(authenticate_request)

    def endpoint(
        self,
        method: str,
        rule: str,
        operation_id: str,
        *,
        answer: type[Schema],
        body: type[Schema] | None = None,
        accepted: str | None = None,
        errors: tuple[int, ...],
    ) -> Callable[[Route], Route]:
        """Register a route under ``rule``: ``body`` comes in, ``answer`` goes out with 200.

        ``accepted`` describes a 202 with the same answer; ``errors`` are the statuses beside those that every route may give.
        """

        def decorate(route: Route) -> Route:
            if body is not None:
                view: Any = self.arguments(body)(route)
            else:
                view = route if method in _BODILESS else _refuse_fields(route)
            view = self.response(200, answer, description="Done.", headers=refer_to_headers(200))(view)
            if accepted is not None:
                headers = refer_to_headers(202)
                told = self.alt_response(
                    202, schema=answer, description=accepted, headers=headers, success=True
                )
                view = told(view)
            for status in sorted({*errors, *_ALWAYS}):
                headers, meaning = refer_to_headers(status), _MEANINGS[status]
                told = self.alt_response(status, schema=ErrorBodySchema, description=meaning, headers=headers)
                view = told(view)
            self.route(rule, methods=[method])(self.doc(operationId=operation_id)(view))
            return route

        return decorate
