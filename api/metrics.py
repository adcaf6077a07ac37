"""What the API counts, for Prometheus; ``api.gunicorn_conf`` adds up the workers' counts and serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from flask import Request, Response

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_OTHER = "other"

REQUESTS = Counter("anex_http_requests", "Requests answered.", ("method", "route", "status"))

RATE_LIMITS_SKIPPED = Counter(
    "anex_rate_limits_skipped", "Checks of a rate limit that were skipped because Redis did not answer."
)


def count_request(request: Request, response: Response) -> None:
    """Count an answered request. What the client chooses freely, its path and its method, makes no new label."""
    route = request.url_rule.rule if request.url_rule is not None else _OTHER
    method = request.method if request.method in _METHODS else _OTHER
    REQUESTS.labels(method, route, response.status_code).inc()
