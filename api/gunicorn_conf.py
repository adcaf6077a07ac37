"""How gunicorn runs the API: ``gunicorn --config python:api.gunicorn_conf api.wsgi:app``. Its address comes from the settings.

Threads suit requests that wait for Postgres and S3. The application is loaded by each worker, after the fork: pools and their
threads don't survive one. A worker ends after some 20,000 requests, each at another count: nothing that leaks grows for ever.
"""

from __future__ import annotations

from typing import Any

from config.log import configure_logging
from config.wiring import read_settings

_settings = read_settings()

bind = f"{_settings.api_host}:{_settings.api_port}"
workers = _settings.api_workers
worker_class = "gthread"
threads = 8
preload_app = False
max_requests = 20_000
max_requests_jitter = 2_000
graceful_timeout = 10
control_socket_disable = True  # it would lie in the home folder, one for all installations
accesslog = None  # the application logs one event a request


def on_starting(_server: Any) -> None:
    """Log as the rest does; what gunicorn itself says leaves by the same door."""
    configure_logging(_settings.log_level, _settings.log_format)


def worker_exit(_server: Any, _worker: Any) -> None:
    """Close what the worker's application opened."""
    from api.context import EXTENSION  # noqa: PLC0415 - loading the application is the worker's, not the parent's
    from api.wsgi import app  # noqa: PLC0415 - see above

    app.extensions[EXTENSION].database.close()
