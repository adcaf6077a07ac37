"""Logging: events with constant names and values as fields, through structlog, as JSON lines or for a person.

    log = structlog.get_logger()
    log.info("chunk_done", job_id=job_id, rows=rows)

What libraries write through the standard library's logging (Celery, gunicorn, botocore) leaves by the same
door. A field whose name says that it is a secret is masked; row text and bodies are never logged at all.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from structlog.typing import Processor, WrappedLogger

    from config.settings import LogFormat, LogLevel

MASK = "***"

_SECRET_NAME = re.compile(
    r"(^|_)((secret|password|credential|cookie|signature)s?|token|authorization)($|_)|(access|api|secret)_?key",
    re.IGNORECASE,
)
"""``token`` is a secret, ``tokens`` are counted."""

_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")

_QUIET_LIBRARIES = ("boto3", "botocore", "s3transfer", "urllib3", "kombu", "amqp")
"""At info and debug they write a line for each request, signatures included."""


def configure_logging(level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send everything of ``level`` and above to ``stream`` (default: standard error). May be called again."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        mask_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _make_renderer(log_format),
            ],
        )
    )
    _route_everything_to(handler, level)


def _make_renderer(log_format: LogFormat) -> Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer(sort_keys=True)
    return structlog.dev.ConsoleRenderer(colors=False)


def _route_everything_to(handler: logging.Handler, level: LogLevel) -> None:
    """Give the root logger the only handler, and take those away that libraries put on their own loggers."""
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("celery", "celery.task", "gunicorn.error", "gunicorn.access"):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    for name in _QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def mask_secrets(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Mask fields named like secrets, and user and password of URLs in texts; a structlog processor."""
    for name, value in event.items():
        event[name] = MASK if _SECRET_NAME.search(name) else _mask_value(value)
    return event


def _mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return _URL_PASSWORD.sub(f"{MASK}@", value)
    if isinstance(value, dict):
        return {
            name: MASK if _SECRET_NAME.search(str(name)) else _mask_value(each)
            for name, each in value.items()
        }
    return value
