"""The client of an engine child: the port ``anex.services.Engine`` over HTTP on a Unix socket.

One event loop in one thread serves the whole worker process; its slots call in from their own threads.
Generation has no timeout: an answer may rightly take many minutes, and whether the engine still works is told
by its own counters (``progress``), which the lease's heartbeat watches.
"""

from __future__ import annotations

import asyncio
import io
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import aiohttp
import orjson

from anex.errors import EngineGone, WaitEnded
from anex.services import EngineAnswer, EngineRequest
from workers.engine_budget import Budget, BudgetClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Any

REQUEST_BYTES_MAX = 256 << 20
"""Request bytes in flight; a larger row runs alone."""

RESPONSE_MAX_BYTES = 64 << 20
"""Largest answer read: 128 embeddings of 4,096 dimensions as text are 12 MB."""

METRICS_MAX_BYTES = 4 << 20
"""Largest ``/metrics`` page read; vLLM's is under 100 KB."""

PROBE_TIMEOUT_SECONDS = 5.0
"""Time for ``/health`` and ``/metrics`` to answer; both cost an engine next to nothing."""

JSON_HEADERS = {"Content-Type": "application/json"}

READ_PIECE_BYTES = 256 << 10

T = TypeVar("T")

_PROGRESS = re.compile(
    r"^vllm:(?:generation_tokens_total|prompt_tokens_total|request_success_total)(?:\{.*\})? (\S+)",
    re.MULTILINE,
)


class EngineClient:
    """Sends requests to one engine; see ``anex.services.Engine`` for the contract of each method.

    ``rows_in_flight_max`` should be 1.5 to 2 times the engine's ``max_num_seqs``: enough to keep every place
    filled, not so many that rows only wait there.
    """

    def __init__(
        self,
        socket_path: Path,
        rows_in_flight_max: int,
        *,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        response_max_bytes: int = RESPONSE_MAX_BYTES,
        progress_seconds: float = 5.0,
    ) -> None:
        self._response_max_bytes = response_max_bytes
        self._progress_seconds = progress_seconds
        self._budget = Budget(rows_in_flight_max, request_bytes_max)
        self._progress = MonotonicSum()
        self._lifecycle = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine-client", daemon=True)
        self._thread.start()
        self._session = self._call(_open_session(socket_path)).result()
        self._call(self._watch_progress())

    def submit(
        self, request: EngineRequest, meanwhile: Callable[[], bool] | None = None
    ) -> Future[EngineAnswer]:
        """Start one request; blocks for budget. Raises ``EngineGone`` once the client is closed, ``WaitEnded``."""
        size_bytes = len(request.body)
        try:
            if not self._budget.acquire(size_bytes, meanwhile, rows=request.rows):
                raise WaitEnded("the request was not started")
        except BudgetClosed as fault:
            raise EngineGone("the engine client is closed") from fault
        try:
            future = self._call(self._send(request))
        except EngineGone:
            self._budget.release(size_bytes, rows=request.rows)
            raise
        # On the future, not inside the coroutine: one cancelled before its first step would never give back.
        future.add_done_callback(lambda _: self._budget.release(size_bytes, rows=request.rows))
        return future

    @contextmanager
    def alone(self, meanwhile: Callable[[], bool] | None = None) -> Iterator[None]:
        """Let nobody else's requests in for the block; waits until nothing is in flight. Raises ``EngineGone``, ``WaitEnded``."""
        try:
            if not self._budget.acquire_alone(meanwhile):
                raise WaitEnded("the engine was not to be had alone")
        except BudgetClosed as fault:
            raise EngineGone("the engine client is closed") from fault
        try:
            yield
        finally:
            self._budget.release_alone()

    def abort(self, futures: Sequence[Future[EngineAnswer]]) -> None:
        """Give up on requests in flight; closing their connections makes the engine stop computing them."""
        for future in futures:
            future.cancel()

    def progress(self) -> int:
        """Return tokens in and out plus finished requests as last read; never falls, over restarts either."""
        return self._progress.total

    def in_flight(self) -> int:
        """Return the number of rows whose requests were started and are not yet answered."""
        return self._budget.rows

    def is_ready(self) -> bool:
        """Whether the engine answers its health check now; blocks up to ``PROBE_TIMEOUT_SECONDS``."""
        try:
            return self._call(self._probe_health()).result()
        except EngineGone:
            return False

    def close(self) -> None:
        """Abort what is in flight, close the connections and end the thread. A second call does nothing."""
        with self._lifecycle:
            if self._closed:
                return
            self._closed = True
        self._budget.close()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop. Raises ``EngineGone`` once the client is closed."""
        # Under the lock: what is scheduled before ``_close`` is cancelled by it, nothing is scheduled after it.
        with self._lifecycle:
            if self._closed:
                coroutine.close()
                raise EngineGone("the engine client is closed")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _send(self, request: EngineRequest) -> EngineAnswer:
        try:
            # A file object is sent in pieces; bytes would be written in one go, however many there are.
            body_file = io.BytesIO(request.body)
            async with self._session.post(
                _url(request.path), data=body_file, headers=JSON_HEADERS
            ) as response:
                body = await _read_bounded(response, self._response_max_bytes)
        except (aiohttp.ClientError, OSError) as fault:
            raise EngineGone(f"the engine did not answer {request.path}: {fault!r}") from fault
        return _too_large(self._response_max_bytes) if body is None else EngineAnswer(response.status, body)

    async def _probe_health(self) -> bool:
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_SECONDS)
        try:
            async with self._session.get(_url("/health"), timeout=timeout) as response:
                return response.ok
        except (aiohttp.ClientError, OSError):
            return False

    async def _watch_progress(self) -> None:
        """Read the engine's counters for ever; a failed read leaves the last value, which is no progress."""
        while True:
            page = await self._read_metrics()
            if page is not None:
                self._progress.see(sum_progress(page))
            await asyncio.sleep(self._progress_seconds)

    async def _read_metrics(self) -> str | None:
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_SECONDS)
        try:
            async with self._session.get(_url("/metrics"), timeout=timeout) as response:
                body = await _read_bounded(response, METRICS_MAX_BYTES) if response.ok else None
        except (aiohttp.ClientError, OSError):
            return None
        return None if body is None else body.decode("utf-8", "replace")

    async def _close(self) -> None:
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()


class MonotonicSum:
    """A counter over restarts: an engine that starts again counts from 0, the total goes on from where it was."""

    def __init__(self) -> None:
        self.total = 0
        self._seen = 0

    def see(self, value: int) -> None:
        """Add what was counted since the last look."""
        self.total += value - self._seen if value >= self._seen else value
        self._seen = value


def sum_progress(metrics_page: str) -> int:
    """Return generation tokens + prompt tokens + finished requests of a page in Prometheus text format."""
    return round(sum(float(value) for value in _PROGRESS.findall(metrics_page)))


async def _open_session(socket_path: Path) -> aiohttp.ClientSession:
    # No limit on connections: the budget is the bound, and aiohttp's own (100) would starve the engine.
    # A connection is used once: an engine closes idle ones by its own clock, and a request that meets such a
    # close would look like the engine's death and make its rows suspects. Over a Unix socket a new one is cheap.
    connector = aiohttp.UnixConnector(str(socket_path), limit=0, force_close=True)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
        auto_decompress=False,
    )


def _url(path: str) -> str:
    return f"http://engine{path}"


async def _read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Read a body, or None when it is larger than ``max_bytes``; what was read of that is dropped."""
    pieces: list[bytes] = []
    left = max_bytes
    async for piece in response.content.iter_chunked(READ_PIECE_BYTES):
        left -= len(piece)
        if left < 0:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _too_large(max_bytes: int) -> EngineAnswer:
    """Return the answer for a row whose answer breaks the bound: that row's fault, not the engine's death."""
    message = f"the engine's answer is larger than {max_bytes} bytes"
    error = {"message": message, "type": "InternalServerError", "param": None, "code": 502}
    return EngineAnswer(502, orjson.dumps({"error": error}))
