"""Logging: one door for structlog and the standard library, and no secret through it."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from config.log import MASK, configure_logging, mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Log as JSON into memory for one test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_its_fields(stream: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(job_id="job_1"):
        structlog.get_logger("anex.jobs").info("chunk_done", rows=3)

    (line,) = lines_of(stream)
    assert (line["event"], line["rows"], line["job_id"]) == ("chunk_done", 3, "job_1")
    assert (line["level"], line["logger"]) == ("info", "anex.jobs")
    assert line["timestamp"].endswith("Z")


def test_the_standard_library_leaves_by_the_same_door(stream: io.StringIO) -> None:
    logging.getLogger("celery.worker").warning("lost %s", "redis://:hunter2@cache")
    logging.getLogger("gunicorn.error").addHandler(logging.NullHandler())

    (line,) = lines_of(stream)
    assert line["event"] == f"lost redis://{MASK}@cache"


def test_below_the_level_and_the_chatter_of_clients_are_dropped(stream: io.StringIO) -> None:
    structlog.get_logger("anex").debug("detail")
    logging.getLogger("botocore.endpoint").info("sent a request")

    assert lines_of(stream) == []


def test_an_exception_is_one_line_with_its_traceback(stream: io.StringIO) -> None:
    try:
        int("told")
    except ValueError:
        structlog.get_logger("anex").exception("failed")

    (line,) = lines_of(stream)
    assert "ValueError" in line["exception"]
    assert "told" in line["exception"]


@pytest.mark.parametrize(
    "name", ["secret", "api_key", "secret_keys", "password", "Authorization", "access_key", "session_token"]
)
def test_fields_named_like_secrets_are_masked(name: str) -> None:
    assert mask_secrets(None, "info", {name: "hunter2"}) == {name: MASK}
    assert mask_secrets(None, "info", {"headers": {name: "hunter2"}}) == {"headers": {name: MASK}}


@pytest.mark.parametrize("name", ["input_tokens", "max_tokens", "result_key", "key", "output_tokens"])
def test_counts_of_tokens_and_object_keys_are_not_secrets(name: str) -> None:
    assert mask_secrets(None, "info", {name: 5}) == {name: 5}


def test_the_console_format_is_for_people(stream: io.StringIO) -> None:
    text = io.StringIO()
    configure_logging("info", "console", text)
    structlog.get_logger("anex").info("chunk_done", rows=3)

    assert "chunk_done" in text.getvalue()
    assert "rows=3" in text.getvalue()
    assert stream.getvalue() == ""
