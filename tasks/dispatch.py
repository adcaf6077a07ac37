"""The dispatcher on Celery: rings, within a bounded time, and never raises.

Whoever rings has already committed; a request must not wait for Redis, nor fail with it. So connections have
short time-outs and no retries, and after a failure a breaker skips rings for a few seconds: with a Redis that
accepts and never answers, one caller pays a quarter of a second and the next ones nothing. What was not rung,
the sweeper rings.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog
from celery import Celery
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from anex.errors import BrokerUnavailable
from tasks import names
from tasks.chains import plan_chain
from tasks.configuration import TRANSPORT_OPTIONS, make_broker_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from anex.jobs.model import Step

log = structlog.get_logger(__name__)

_TIMEOUT_SECONDS = 0.25

_BOUNDED: dict[str, Any] = {
    "socket_timeout": _TIMEOUT_SECONDS,
    "socket_connect_timeout": _TIMEOUT_SECONDS,
    "max_retries": 0,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}

BREAKER_SECONDS = 5.0
"""How long rings are skipped after one failed."""


class CeleryDispatcher:
    """Rings over one Redis or Valkey. Thread-safe; make it after a fork. It connects at the first ring."""

    def __init__(self, redis_url: str, now: Callable[[], float] = time.monotonic) -> None:
        """Take the broker's URL and a clock that never runs backwards, in seconds."""
        self._app = _make_app(redis_url)
        self._redis = Redis.from_url(
            redis_url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._now = now
        self._skip_until = float("-inf")

    def ring_step(self, job_id: str, step: Step, model_queue: str) -> None:
        """Ask for the plan of a job from ``step`` on."""
        self._ring(plan_chain(self._app, job_id, model_queue, step))

    def ring_spans(self, job_id: str, span_count: int) -> None:
        """Ask for ``span_count`` token-counting messages of a job."""
        message = self._app.signature(names.COUNT, kwargs={"job_id": job_id}, immutable=True)
        self._ring(message, span_count)

    def ring_copy(self, input_id: str) -> None:
        """Ask for the copy of an input from its source URL."""
        self._ring(self._app.signature(names.COPY, kwargs={"input_id": input_id}, immutable=True))

    def ring_deliveries(self, *, again: bool, after_seconds: float = 0.0) -> None:
        """Say, now or within a minute, that something is due in one lane of deliveries."""
        message = self._app.signature(names.DELIVER_AGAIN if again else names.DELIVER, immutable=True)
        self._ring(message.set(countdown=after_seconds) if after_seconds > 0 else message)

    def ring_model(self, model_queue: str, count: int = 1) -> None:
        """Say ``count`` times "there is work" on a model's run queue."""
        queue = names.run_queue(model_queue)
        message = self._app.signature(names.RUN_CHUNK, kwargs={"model_queue": model_queue}, immutable=True)
        self._ring(message.set(queue=queue), count)

    def run_queue_length(self, model_queue: str) -> int:
        """Messages waiting on a model's run queue. Raises ``BrokerUnavailable``."""
        return self._queue_length(names.run_queue(model_queue))

    def deliveries_queue_length(self, *, again: bool) -> int:
        """Messages waiting on the queue of a lane of deliveries. Raises ``BrokerUnavailable``."""
        return self._queue_length(names.WEBHOOKS_AGAIN_QUEUE if again else names.WEBHOOKS_QUEUE)

    def _queue_length(self, queue: str) -> int:
        if self._is_open():
            raise BrokerUnavailable("Redis did not answer a moment ago")
        try:
            return int(self._redis.llen(queue))
        except (RedisError, OSError) as error:
            self._open()
            raise BrokerUnavailable("Redis does not answer") from error

    def close(self) -> None:
        """Close the connections."""
        self._app.close()
        self._redis.close()

    def _ring(self, message: Any, count: int = 1) -> None:
        for rung in range(count):
            if self._is_open():
                log.info("ring_skipped", task_rung=message.task, rings=count - rung)
                return
            try:
                message.apply_async()
            except Exception as error:  # noqa: BLE001 # what was committed must not fail with its doorbell
                self._open()
                log.warning("ring_failed", task_rung=message.task, rings=count - rung, error=repr(error))
                return

    def _is_open(self) -> bool:
        return self._now() < self._skip_until

    def _open(self) -> None:
        self._skip_until = self._now() + BREAKER_SECONDS


def _make_app(redis_url: str) -> Celery:
    """Return an app that only sends; it knows no tasks and keeps no results."""
    app = Celery("anex-doorbells", set_as_current=False)
    app.conf.update(make_broker_settings(redis_url))
    app.conf.update(
        broker_transport_options=TRANSPORT_OPTIONS | _BOUNDED,
        broker_connection_retry=False,
        broker_connection_max_retries=0,
        task_publish_retry=False,
    )
    return app
