"""The laya engine: a decision model behind the HTTP surface of every engine, on a Unix socket.

Runs in the engine's environment, started in the project's folder; only the standard library, aiohttp and laya are imported. One
thread owns the model. Whatever the model raises on a GPU beyond a row's own fault ends the process: the unit's parent starts it
again, and what was in flight runs again.

    python -m workers.engines.laya --socket engine.sock --model laya --device cpu \
        --checkpoint english:512:/models/laya/english --checkpoint multilingual:1024:/models/laya/multilingual
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from workers.engines.laya_model import Checkpoint, DecisionModel, EngineUnfit

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_MAX_BYTES = 512 << 20
"""A line may hold 400 MiB; the request built from it is a little longer."""

LISTEN_BACKLOG = 2048
DEATH_EXIT_CODE = 3


class RequestRefused(Exception):
    """The engine answers 400 with this message."""


class LayaEngine:
    """The handlers; one instance serves one model in one event loop."""

    def __init__(self, name: str, model: DecisionModel, *, dies_of_faults: bool) -> None:
        self._name = name
        self._model = model
        self._dies_of_faults = dies_of_faults
        self._thread = ThreadPoolExecutor(1, "model")
        self._finished: Counter[str] = Counter()
        self._prompt_tokens = 0
        self._requests = 0

    def make_app(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(client_max_size=REQUEST_MAX_BYTES)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.post("/v1/systemone", self._decisions),
            ]
        )
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _request: web.Request) -> web.Response:
        """Answer with the counters that the worker reads as progress, under vLLM's names."""
        label = f'engine="0",model_name="{self._name}"'
        values = {
            f"vllm:prompt_tokens_total{{{label}}}": self._prompt_tokens,
            f"vllm:generation_tokens_total{{{label}}}": 0,
            f"vllm:num_requests_running{{{label}}}": min(1, self._requests),
            f"vllm:num_requests_waiting{{{label}}}": max(0, self._requests - 1),
            **{
                f'vllm:request_success_total{{{label},finished_reason="{reason}"}}': self._finished[reason]
                for reason in ("stop", "abort")
            },
        }
        lines = [f"{name} {float(value)}\n" for name, value in values.items()]
        return web.Response(text="".join(lines), content_type="text/plain")

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "laya"}
        return _json({"object": "list", "data": [model]})

    async def _decisions(self, request: web.Request) -> web.Response:
        """Answer rows that are asked the same: an answer or an error for each, in their order."""
        try:
            questions, rows = _read_body(await request.read(), self._name)
        except RequestRefused as refusal:
            return _error(400, str(refusal))
        self._requests += 1
        try:
            # A request that waits is not begun once its client has gone.
            answering = self._thread.submit(self._model.answer_rows, questions, rows, self._note)
            data = await asyncio.wrap_future(answering)
            self._finished["stop"] += 1
        except asyncio.CancelledError:
            self._finished["abort"] += 1
            raise
        except Exception as fault:  # noqa: BLE001 - nothing that a model raises may leave a broken one serving
            if self._dies_of_faults or isinstance(fault, EngineUnfit):
                _die(_describe(fault))
            return _error(500, f"{type(fault).__name__}: {fault}")
        finally:
            self._requests -= 1
        return _json({"object": "list", "model": self._name, "data": data})

    def _note(self, tokens: int) -> None:
        self._prompt_tokens += tokens


def _read_body(raw: bytes, model_name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as fault:
        raise RequestRefused(f"the body is not JSON: {fault}") from fault
    if not isinstance(body, dict) or body.get("model") != model_name:
        raise RequestRefused(f"the model must be '{model_name}'")
    questions, rows = body.get("questions"), body.get("rows")
    if not isinstance(questions, dict) or not questions:
        raise RequestRefused("questions: an object with at least one question is required")
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise RequestRefused("rows: a list of objects with a state is required")
    return questions, rows


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    return isinstance(row.get("state"), str | dict) and isinstance(row.get("lang"), str | None)


def _json(body: Any, status: int = 200) -> web.Response:
    encoded = json.dumps(body, allow_nan=False).encode()
    return web.Response(body=encoded, status=status, content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return _json({"error": {"message": message, "type": "BadRequestError", "code": status}}, status)


def _describe(fault: Exception) -> str:
    """Return what the log may say of a fault: a message of the model's checks may quote a row."""
    named = type(fault).__name__
    return f"{named}: {fault}" if isinstance(fault, EngineUnfit | RuntimeError) else named


def _die(reason: str) -> None:
    """End at once: no answer is better than one of a broken model."""
    sys.stderr.write(f"the engine ends: {reason}\n")
    sys.stderr.flush()
    os._exit(DEATH_EXIT_CODE)


def _parse_checkpoint(text: str) -> Checkpoint:
    name, context_tokens, folder = text.split(":", 2)
    return Checkpoint(name, Path(folder), int(context_tokens))


def _parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.engines.laya", description="A decision model.")
    parser.add_argument("--socket", required=True, help="path of the Unix socket to listen on")
    parser.add_argument("--model", required=True, help="id that the engine serves under")
    parser.add_argument(
        "--checkpoint", required=True, action="append", type=_parse_checkpoint, help="NAME:TOKENS:FOLDER"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--option-budget", type=int, default=192)
    parser.add_argument("--max-num-seqs", type=int, default=64)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Load the model, then serve until SIGTERM or SIGINT."""
    arguments = _parse_arguments(argv)
    try:
        model = DecisionModel(
            arguments.checkpoint,
            device=arguments.device,
            option_budget_tokens=arguments.option_budget,
            sequences_together=arguments.max_num_seqs,
        )
    except EngineUnfit as unfit:
        _die(str(unfit))
        return
    engine = LayaEngine(arguments.model, model, dies_of_faults=arguments.device != "cpu")
    sys.stdout.write(f"laya serves {arguments.model} on {arguments.device} at {arguments.socket}\n")
    sys.stdout.flush()
    web.run_app(
        engine.make_app(),
        path=arguments.socket,
        print=None,
        backlog=LISTEN_BACKLOG,
        handler_cancellation=True,
        access_log=None,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
