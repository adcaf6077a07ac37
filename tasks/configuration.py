"""Celery's settings, made from anex's: what is common to everybody who rings and everybody who hears.

Messages are acknowledged early, before their task runs. A doorbell may be lost: Postgres says what is undone and
the sweeper rings again within seconds. Late acknowledgement would buy nothing here and costs a lot: a task that
outlives the broker's visibility timeout is delivered again and runs beside itself.

Installations that share a Redis server use a database number each (the URL's path): a consumer restores what
others left unacknowledged in its database.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from tasks import names

if TYPE_CHECKING:
    from anex.services import Timings
    from config.settings import Settings

TRANSPORT_OPTIONS: dict[str, Any] = {
    # One value for all who share a database. Longer than any task, so that nothing is delivered to two at once.
    "visibility_timeout": 4 * 3600,
    # What a dead worker had fetched and not begun comes back within seconds of that time; kombu's default is 100 s.
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
}

_WORKER_SOCKET_TIMEOUT_SECONDS = 30.0
"""Far above kombu's own blocking reads of 1 s; without it a publish waits forever on a connection that went dead."""

_CONNECT_TIMEOUT_SECONDS = 5.0
_RESULT_EXPIRES_SECONDS = 60

ROUTES: dict[str, dict[str, str]] = {
    names.VALIDATE: {"queue": names.PLAN_QUEUE},
    names.COUNT: {"queue": names.COUNT_QUEUE},
    names.ESTIMATE: {"queue": names.PLAN_QUEUE},
    names.FINALIZE: {"queue": names.FINALIZE_QUEUE},
    names.COPY: {"queue": names.INGEST_QUEUE},
    names.DELIVER: {"queue": names.WEBHOOKS_QUEUE},
    names.DELIVER_AGAIN: {"queue": names.WEBHOOKS_AGAIN_QUEUE},
    names.SWEEP: {"queue": names.CONTROL_QUEUE},
    names.PURGE: {"queue": names.CONTROL_QUEUE},
}
"""A model's tasks (``sample``, ``run_chunk``) are sent to the queue of their model by name."""


def make_worker_settings(settings: Settings) -> dict[str, Any]:
    """Return the configuration of the app that workers and beat run. Raises ``SettingsInvalid``."""
    url = settings.require("redis_url")
    return {
        **make_broker_settings(url),
        "broker_transport_options": TRANSPORT_OPTIONS
        | {
            "socket_timeout": _WORKER_SOCKET_TIMEOUT_SECONDS,
            "socket_connect_timeout": _CONNECT_TIMEOUT_SECONDS,
            "socket_keepalive": True,
        },
        "broker_connection_retry_on_startup": True,
        "result_backend": url,
        "redis_backend_use_ssl": _make_tls_options(url),
        "result_expires": _RESULT_EXPIRES_SECONDS,
        "worker_prefetch_multiplier": 1,  # a message that waits in a busy worker is heard by nobody else
        "worker_hijack_root_logger": False,
        "beat_schedule": _make_schedule(settings.timings),
    }


def make_broker_settings(redis_url: str) -> dict[str, Any]:
    """Return what whoever rings and whoever hears must agree on."""
    return {
        "broker_url": redis_url,
        "broker_use_ssl": _make_tls_options(redis_url),
        "broker_transport_options": TRANSPORT_OPTIONS,
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "task_ignore_result": True,
        "task_acks_late": False,
        "task_routes": ROUTES,
        # A queue is made when it is first rung or heard: models come and go with the catalog.
        "task_create_missing_queues": True,
        # Nobody consumes this one: each task has a route or is sent to a queue by name.
        "task_default_queue": "unrouted",
    }


def _make_schedule(timings: Timings) -> dict[str, Any]:
    """Return beat's entries; one that was not heard by the time of the next is dropped, so none pile up."""
    periods = {names.SWEEP: timings.sweep_seconds, names.PURGE: timings.purge_seconds}
    return {
        name.removeprefix("anex."): {
            "task": name,
            "schedule": seconds,
            "options": {"queue": names.CONTROL_QUEUE, "expires": seconds},
        }
        for name, seconds in periods.items()
    }


def _make_tls_options(redis_url: str) -> dict[str, Any] | None:
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED} if redis_url.startswith("rediss://") else None
