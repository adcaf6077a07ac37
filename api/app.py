"""The HTTP door: schema in, one core call, schema out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask

from api.body import BODY_READ_BYTES
from api.context import EXTENSION, follow_requests
from api.errors import ORIGINS, register_error_handlers
from api.health import make_health_blueprint
from api.openapi import register_documented_routes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.services import Services

REGION_ORIGINS = {"world": "https://api.anex.sh", "eu": "https://api-eu.anex.sh"}
"""Where each region's API is reached, as a 421 names it."""


def create_app(services: Services, *, region_origins: Mapping[str, str] | None = None) -> Flask:
    """Return the application over ``services``, whose pools are open or are opened before the first request."""
    app = Flask("anex", static_folder=None)
    app.extensions[EXTENSION] = services
    app.config[ORIGINS] = region_origins or REGION_ORIGINS
    app.config["MAX_CONTENT_LENGTH"] = BODY_READ_BYTES
    follow_requests(app)
    register_error_handlers(app)
    register_documented_routes(app)
    app.register_blueprint(make_health_blueprint())
    return app
