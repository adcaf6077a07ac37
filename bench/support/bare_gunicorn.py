"""gunicorn's settings for ``bench.support.bare_api``: those that the API is served with."""

from api.gunicorn_conf import (
    accesslog,
    control_socket_disable,
    graceful_timeout,
    max_requests,
    max_requests_jitter,
    preload_app,
    threads,
    worker_class,
    workers,
)

__all__ = [
    "accesslog",
    "control_socket_disable",
    "graceful_timeout",
    "max_requests",
    "max_requests_jitter",
    "preload_app",
    "threads",
    "worker_class",
    "workers",
]
