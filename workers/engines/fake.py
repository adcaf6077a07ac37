"""The fake engine: ``vllm serve``'s HTTP surface on a Unix socket, with seeded answers and failure switches.

For tests and for machines that only prove the pipeline. It is never chosen silently: the GPU unit starts it
only for a catalog entry whose engine kind is ``fake``, its start-up line says so, and ``/v1/models`` says
``"owned_by": "fake"``.

    python -m workers.engines.fake --socket engine.sock --model tiny --seed 7 --answer-law lognormal:80:0.6
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from workers.engines.fake_answers import LengthLaw
from workers.engines.fake_chat import FakeModel, Planned, RequestRefused, plan_chat, plan_embeddings
from workers.engines.fake_decide import plan_decisions
from workers.engines.fake_schedule import Schedule, Speed
from workers.engines.fake_switches import Switches, SwitchUnknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

REQUEST_MAX_BYTES = 512 << 20
"""A line may hold 400 MiB; the request built from it is a little longer."""

LISTEN_BACKLOG = 2048
"""Connections that may wait to be accepted: as many as uvicorn, which vLLM runs on, lets wait."""


class FakeEngine:
    """The handlers; one instance serves one model in one event loop."""

    def __init__(self, model: FakeModel, speed: Speed, switches: Switches) -> None:
        self._model = model
        self._switches = switches
        self._schedule = Schedule(speed, switches, time.monotonic)
        self._finished: Counter[str] = Counter()
        self._prompt_tokens = 0
        self._requests_seen = 0

    def make_app(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(client_max_size=REQUEST_MAX_BYTES)
        app.cleanup_ctx.append(self._run_schedule)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/embeddings", self._embeddings),
                web.post("/v1/systemone", self._decisions),
                web.get("/fake/switches", self._show_switches),
                web.post("/fake/switches", self._set_switches),
            ]
        )
        return app

    async def _run_schedule(self, _app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._schedule.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self._switches.unhealthy else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        label = f'engine="0",model_name="{self._model.name}"'
        lines = [
            *_metric("counter", "generation_tokens_total", {label: self._schedule.tokens_made()}),
            *_metric("counter", "prompt_tokens_total", {label: self._prompt_tokens}),
            *_metric("gauge", "num_requests_running", {label: self._schedule.running}),
            *_metric("gauge", "num_requests_waiting", {label: self._schedule.waiting}),
            *_metric(
                "counter",
                "request_success_total",
                {f'{label},finished_reason="{r}"': self._finished[r] for r in ("stop", "length", "abort")},
            ),
        ]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")

    async def _models(self, _request: web.Request) -> web.Response:
        model = {
            "id": self._model.name,
            "object": "model",
            "created": 0,
            "owned_by": "fake",
            "root": "fake",
            "max_model_len": self._model.context_tokens,
        }
        return _json({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.Response:
        factor = self._switches.length_factor
        return await self._serve(request, lambda body: plan_chat(self._model, body, factor))

    async def _embeddings(self, request: web.Request) -> web.Response:
        return await self._serve(request, lambda body: plan_embeddings(self._model, body))

    async def _decisions(self, request: web.Request) -> web.Response:
        return await self._serve(request, lambda body: plan_decisions(self._model, body))

    async def _serve(self, request: web.Request, plan: Callable[[Any], Planned]) -> web.Response:
        """Answer one generation request, faults first."""
        raw = await request.read()
        self._requests_seen += 1
        self._switches.crash_if_due(self._requests_seen, raw)
        if self._switches.take_cut():
            return _cut(request)
        if self._switches.take_failure():
            return _error(500, "InternalServerError", "switched to fail")
        try:
            body = _read_body(raw, self._model.name)
            planned = plan(body)
        except RequestRefused as refusal:
            return _error(400, "BadRequestError", str(refusal))
        await self._decode(planned, body.get("priority") or 0)
        return _json(planned.body)

    async def _decode(self, planned: Planned, priority: int) -> None:
        try:
            await self._schedule.decode(planned.output_tokens, priority)
            await asyncio.sleep(self._switches.delay_seconds)
        except asyncio.CancelledError:
            self._finished["abort"] += 1
            raise
        self._prompt_tokens += planned.prompt_tokens
        self._finished[planned.finish_reason] += 1

    async def _show_switches(self, _request: web.Request) -> web.Response:
        return _json(self._switches.as_dict())

    async def _set_switches(self, request: web.Request) -> web.Response:
        try:
            self._switches.update(orjson.loads(await request.read()))
        except (SwitchUnknown, orjson.JSONDecodeError, AttributeError) as fault:
            return _error(400, "BadRequestError", str(fault))
        return _json(self._switches.as_dict())


def _read_body(raw: bytes, model_name: str) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as fault:
        raise RequestRefused(f"the body is not JSON: {fault}") from fault
    if not isinstance(body, dict):
        raise RequestRefused("the body is not a JSON object")
    if body.get("model") not in (None, model_name):
        raise RequestRefused(f"The model `{body['model']}` does not exist.")
    if not isinstance(body.get("priority") or 0, int):
        raise RequestRefused("priority: an integer is required")
    return body


def _metric(kind: str, name: str, values: Mapping[str, int]) -> list[str]:
    """Return one metric family in Prometheus text format, values by their labels."""
    samples = [f"vllm:{name}{{{labels}}} {float(value)}" for labels, value in values.items()]
    return [f"# TYPE vllm:{name} {kind}", *samples]


def _json(body: Any, status: int = 200) -> web.Response:
    encoded = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    return web.Response(body=encoded, status=status, content_type="application/json")


def _error(status: int, kind: str, message: str) -> web.Response:
    """Return an error in vLLM's shape."""
    return _json({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)


def _cut(request: web.Request) -> web.Response:
    """Close the connection with no answer; the response that is returned has nowhere to go."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _parse_checkpoint(text: str) -> tuple[str, int]:
    name, _, context_tokens = text.partition(":")
    return name, int(context_tokens)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; faults end the process with a usage line, as everywhere."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.engines.fake", description="A fake model server."
    )
    parser.add_argument("--socket", required=True, help="path of the Unix socket to listen on")
    parser.add_argument("--model", required=True, help="id that the engine serves under")
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed gives other lengths, texts, vectors"
    )
    parser.add_argument("--context-tokens", type=int, default=32_768)
    parser.add_argument("--reasoning", action="store_true", help="think before answering")
    parser.add_argument("--embedding-width", type=int, default=384)
    parser.add_argument(
        "--checkpoint",
        type=_parse_checkpoint,
        action="append",
        default=[],
        help="of a decision model: NAME:TOKENS",
    )
    parser.add_argument("--option-budget", type=int, default=192)
    parser.add_argument("--answer-law", type=LengthLaw.parse, default=LengthLaw.parse("lognormal:40:0.5"))
    parser.add_argument("--thinking-law", type=LengthLaw.parse, default=LengthLaw.parse("lognormal:60:0.5"))
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--step-base-seconds", type=float, default=0.0)
    parser.add_argument("--step-sequence-seconds", type=float, default=0.0)
    parser.add_argument("--switches", type=orjson.loads, default={}, help="failure switches as a JSON object")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    arguments = parse_arguments(argv)
    model = FakeModel(
        name=arguments.model,
        seed=arguments.seed,
        context_tokens=arguments.context_tokens,
        reasoning=arguments.reasoning,
        width=arguments.embedding_width,
        answer_law=arguments.answer_law,
        thinking_law=arguments.thinking_law,
        checkpoints=tuple(arguments.checkpoint),
        option_budget_tokens=arguments.option_budget,
    )
    speed = Speed(arguments.step_base_seconds, arguments.step_sequence_seconds, arguments.max_num_seqs)
    switches = Switches()
    switches.update(arguments.switches)
    app = FakeEngine(model, speed, switches).make_app()
    _say(f"fake engine (no real model) serves {model.name} on {arguments.socket}")
    # The client's leaving must cancel the handler: that is how an abort frees the engine.
    web.run_app(
        app,
        path=arguments.socket,
        print=None,
        backlog=LISTEN_BACKLOG,
        handler_cancellation=True,
        access_log=None,
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
