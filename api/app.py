"""The HTTP door: schema in, one core call, schema out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from api.auth import guard_door
from api.body import BODY_READ_BYTES
from api.context import EXTENSION, follow_requests
from api.errors import ORIGINS, REGION_ORIGINS, register_error_handlers
from api.health import make_health_blueprint
from api.limits import NoRateLimit
from api.openapi import register_documented_routes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.services import Services
    from api.limits import RateLimit


def create_app(
    services: Services,
    *,
    region_origins: Mapping[str, str] | None = None,
    rate_limit: RateLimit | None = None,
    trusted_proxies: int = 0,
) -> Flask:
    """Return the application over ``services``, whose pools are open or are opened before the first request.

    ``trusted_proxies`` of the last entries of X-Forwarded-For are believed: as many proxies stand in front.
    """
    app = Flask("anex", static_folder=None)
    # Else `//jobs` is answered with a redirect: a page, to an http:// address, where the key would travel in the clear.
    app.url_map.merge_slashes = False
    app.json.sort_keys = False  # type: ignore[attr-defined] # the provider's; a schema is told in the order in which it was given
    app.extensions[EXTENSION] = services
    app.config[ORIGINS] = region_origins or REGION_ORIGINS
    app.config["MAX_CONTENT_LENGTH"] = BODY_READ_BYTES
    follow_requests(app)
    register_error_handlers(app)
    guard_door(app, rate_limit or NoRateLimit())
    register_documented_routes(app, app.config[ORIGINS])
    app.register_blueprint(make_health_blueprint())
    # Of what proxies add only the address is used: links lead to S3, and no answer names this host.
    app.wsgi_app = ProxyFix(app.wsgi_app, x_for=trusted_proxies, x_proto=0, x_host=0)  # type: ignore[method-assign]
    return app
