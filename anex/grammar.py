"""Whether the engine's grammar backend can compile a ``response_format``, asked in small processes of our own.

A schema of forty bytes can abort the process that compiles it, or keep it busy for hours: no bound on a schema's
text rules that out. So a child with little memory compiles first (``anex.grammar_child``); one that dies or runs
out of time is killed and replaced, and the schema is refused. What passes there costs an engine little.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anex.errors import GrammarBusy
from anex.grammar_reasons import describe_reason
from anex.grammar_wire import MESSAGE_MAX_BYTES, pack, receive
from anex.waiting import waiting_place

if TYPE_CHECKING:
    from collections.abc import Mapping

START_MAX_SECONDS = 20.0
"""How long a child may take to load the backend: 0.2 s on an idle machine."""
TRIES_MAX = 2
"""A death may have another cause than the schema (a person's kill): a second child decides, within the same time limit."""

VERDICTS_MAX = 256
"""Schemas whose verdict is remembered: jobs come in rows with one and the same."""

_PROJECT_FOLDER = Path(__file__).resolve().parents[1]
_TOO_COSTLY = (
    "response_format could not be compiled within its limits of time and memory; make the schema smaller"
)
_BUSY = "response_format could not be checked now; try again in a moment"
_JSON_OBJECT = '{"type": "object"}'


class _Died(Exception):
    """The child ended without an answer."""


class _Child:
    """One process of ``anex.grammar_child`` and the connection to it. One thread uses it at a time, but for ``kill``."""

    def __init__(self, memory_limit_bytes: int, time_limit_seconds: float) -> None:
        """Start it. Raises ``OSError`` when the system has no room for a process."""
        self._connection, theirs = socket.socketpair()
        options = [str(memory_limit_bytes), str(time_limit_seconds)]
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "anex.grammar_child", *options],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # the backend's last words quote the schema
                    cwd="/",
                    env={"PYTHONPATH": str(_PROJECT_FOLDER)},  # nothing of ours: no secret is in its reach
                    start_new_session=True,  # the terminal's signals are not for it
                )
        except OSError:
            self._connection.close()
            raise

    def greet(self) -> None:
        """Wait until it has loaded the backend. Raises ``TimeoutError`` and ``_Died``."""
        self._receive(time.monotonic() + START_MAX_SECONDS)

    def ask(self, schema: bytes, deadline_seconds: float) -> dict[str, Any]:
        """Return its answer, as ``anex.grammar_child`` describes it. Raises ``TimeoutError`` and ``_Died``."""
        self._set_timeout(deadline_seconds)
        try:
            self._connection.sendall(pack(schema))
        except ConnectionError as error:
            raise _Died from error
        answer: dict[str, Any] = json.loads(self._receive(deadline_seconds))
        return answer

    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill and reap it, whatever it is doing; any thread may. A thread that waits for its answer meets ``_Died``."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill it and let go of it."""
        self.kill()
        self._connection.close()

    def _receive(self, deadline_seconds: float) -> bytes:
        try:
            message = receive(self._connection, lambda: self._set_timeout(deadline_seconds))
        except ConnectionError as error:
            raise _Died from error
        if message is None:
            raise _Died
        return message

    def _set_timeout(self, deadline_seconds: float) -> None:
        left_seconds = deadline_seconds - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError
        self._connection.settimeout(left_seconds)


class GrammarChildren:
    """The ``Grammar`` port. Any thread may ask; a process that forks does so before its first question."""

    def __init__(
        self,
        *,
        children: int = 2,
        time_limit_seconds: float = 5.0,
        memory_limit_bytes: int = 512 << 20,
        wait_seconds: float = 10.0,
    ) -> None:
        """Start nothing yet: the first questions start the children, at most ``children`` of them."""
        self._time_limit_seconds = time_limit_seconds
        self._memory_limit_bytes = memory_limit_bytes
        self._wait_seconds = wait_seconds
        self._places = threading.BoundedSemaphore(children)
        self._verdicts: OrderedDict[bytes, str | None] = OrderedDict()
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._taken: set[_Child] = set()
        self._closed = False

    def find_fault(self, response_format: Mapping[str, Any]) -> str | None:
        """Return why the backend can't compile a well-formed ``response_format``, None when it can. Raises ``GrammarBusy``."""
        if response_format["type"] == "text":
            return None
        schema = _write_schema(response_format)
        if len(schema) > MESSAGE_MAX_BYTES:
            return _TOO_COSTLY
        digest = hashlib.sha256(schema).digest()
        with self._lock:
            if digest in self._verdicts:
                self._verdicts.move_to_end(digest)
                return self._verdicts[digest]
        with waiting_place() as has_place:
            if not has_place:
                raise GrammarBusy(_BUSY)
            return self._wait_and_ask(schema, digest)

    def _wait_and_ask(self, schema: bytes, digest: bytes) -> str | None:
        if not self._places.acquire(timeout=self._wait_seconds):
            raise GrammarBusy(_BUSY)
        try:
            return self._ask(schema, digest)
        finally:
            self._places.release()

    def close(self) -> None:
        """End the children; whoever waits for one, or asks later, meets ``GrammarBusy``."""
        with self._lock:
            self._closed = True
            idle, taken = self._idle, list(self._taken)
            self._idle = []
        for child in idle:
            child.end()
        for child in taken:
            child.kill()

    def _ask(self, schema: bytes, digest: bytes) -> str | None:
        left_seconds = self._time_limit_seconds
        for _ in range(TRIES_MAX):
            child = self._take()
            begun_seconds = time.monotonic()
            try:
                answer = child.ask(schema, begun_seconds + left_seconds)
            except TimeoutError:
                self._drop(child)
                break
            except _Died:
                self._drop(child)
                left_seconds -= time.monotonic() - begun_seconds
            except BaseException:
                self._drop(child)
                raise
            else:
                self._give_back(child, leaving=answer["leaving"])
                return self._remember(digest, _say(answer))
        return _TOO_COSTLY

    def _remember(self, digest: bytes, verdict: str | None) -> str | None:
        with self._lock:
            self._verdicts[digest] = verdict
            while len(self._verdicts) > VERDICTS_MAX:
                self._verdicts.popitem(last=False)
        return verdict

    def _take(self) -> _Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_alive():
                    self._taken.add(child)
                    return child
                child.end()
        return self._start()

    def _start(self) -> _Child:
        try:
            child = _Child(self._memory_limit_bytes, self._time_limit_seconds)
        except OSError as error:
            raise GrammarBusy(_BUSY) from error
        with self._lock:
            self._taken.add(child)
            closed = self._closed
        if closed:
            self._drop(child)
            raise GrammarBusy(_BUSY)
        try:
            child.greet()
        except (TimeoutError, _Died) as error:
            self._drop(child)
            raise GrammarBusy(_BUSY) from error
        return child

    def _give_back(self, child: _Child, *, leaving: bool) -> None:
        with self._lock:
            kept = not leaving and not self._closed
            if kept:
                self._taken.discard(child)
                self._idle.append(child)
        if not kept:
            self._drop(child)

    def _drop(self, child: _Child) -> None:
        with self._lock:
            self._taken.discard(child)
        child.end()


def _write_schema(response_format: Mapping[str, Any]) -> bytes:
    """Return the JSON text that the engine's grammar is made of."""
    if response_format["type"] == "json_object":
        return _JSON_OBJECT.encode()
    return json.dumps(response_format["json_schema"]["schema"]).encode()


def _say(answer: Mapping[str, Any]) -> str | None:
    """Return the sentence for an answer."""
    if answer["reason"] is not None:
        return f"response_format.json_schema.schema can't be compiled: {describe_reason(answer['reason'])}"
    return _TOO_COSTLY if answer["too_costly"] else None
