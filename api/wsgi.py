"""The API as a process: settings, services and doorbells put together; the one module of ``api`` that knows of Celery.

A worker of gunicorn imports it after the fork (``api.gunicorn_conf``), so what it opens is this process's own. Connections are
made when a request needs them: the API starts, and ``/readyz`` says what is missing, while Postgres or Redis is still away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.app import create_app
from api.limits import RedisRateLimit
from config.log import configure_logging
from config.wiring import build_services, read_settings
from tasks.dispatch import CeleryDispatcher

if TYPE_CHECKING:
    from flask import Flask


def build_app() -> Flask:
    """Return the application over the services that the settings name. Raises ``SettingsInvalid``."""
    settings = read_settings()
    configure_logging(settings.log_level, settings.log_format)
    redis_url = settings.require("redis_url")
    rate_limit = None if settings.rate_limit is None else RedisRateLimit(redis_url, settings.rate_limit)
    services = build_services(settings, "api", CeleryDispatcher(redis_url))
    return create_app(
        services,
        region_origins=settings.origins,
        rate_limit=rate_limit,
        trusted_proxies=settings.trusted_proxies,
    )


app = build_app()
