"""Engines for tests: the fake one as a child process, a relay that can cut connections, and small questions to both.

``run_fake_engine`` starts what the GPU unit would start for a model of ``models.test.toml``; further flags make it
slow, long-winded or faulty.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anex.services import EngineRequest
from config.catalog import load_catalog
from tests.support.wait import wait_until
from workers.engine_client import EngineClient
from workers.engines.fake_command import fake_command
from workers.unix_http import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.catalog import ModelSpec

PROJECT = Path(__file__).resolve().parents[2]
TEST_CATALOG = Path(__file__).with_name("models.test.toml")
ASK_TIMEOUT_SECONDS = 120.0
CHAT = "/v1/chat/completions"
EMBED = "/v1/embeddings"
DECIDE = "/v1/systemone"


@dataclass(frozen=True)
class EngineUnderTest:
    """A running engine, whichever it is: where it answers, what it serves and the group that it runs as."""

    spec: ModelSpec
    socket_path: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """Send one request (GET without a body), past any client of ours."""
        content = None if body is None else json.dumps(body).encode()
        return ask(self.socket_path, path, content, ASK_TIMEOUT_SECONDS)

    def post(self, path: str, **body: Any) -> Any:
        """Return the answer to a request that must succeed."""
        status, content = self.ask(path, {"model": self.spec.id, **body})
        assert status == 200, content
        return json.loads(content)

    def chat(self, text: str, **more: Any) -> Any:
        """Return the completion of one user message."""
        return self.post(CHAT, messages=[{"role": "user", "content": text}], **more)

    def set_switches(self, **changes: Any) -> None:
        """Switch faults of the fake engine on or off."""
        status, content = self.ask("/fake/switches", changes)
        assert status == 200, content

    def read_metric(self, name: str) -> float:
        """Return the sum of a metric of vLLM's over its labels."""
        page = self.ask("/metrics")[1].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page if line.startswith(f"vllm:{name}{{"))

    def is_healthy(self) -> bool:
        """Whether it answers its health check; fails when the process has ended."""
        assert self.process.poll() is None, f"the engine ended with {self.process.returncode}"
        try:
            return self.ask("/health")[0] == 200
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def find_test_model(model: str) -> ModelSpec:
    """Return a model of the tests' catalog."""
    return load_catalog(TEST_CATALOG, allow_fake_engine=True).get(model)


def find_engine_python() -> Path:
    """Return the interpreter of the engine's environment; fails the test where there is none."""
    python = Path(os.environ.get("ANEX_ENGINE_PYTHON", PROJECT / ".venv-engine" / "bin" / "python"))
    if not python.exists():
        pytest.fail(
            f"no engine environment at {python}: run 'python -m config.stack.engine_env .venv-engine' "
            "or name its interpreter in ANEX_ENGINE_PYTHON"
        )
    return python


@contextmanager
def short_folder() -> Iterator[Path]:
    """Give a folder whose sockets fit the 107 bytes that a Unix socket's path may have; pytest's may not."""
    folder = Path(tempfile.mkdtemp(prefix="anex-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def run_fake_engine(model: str = "fake-chat", *flags: str) -> Iterator[EngineUnderTest]:
    """Run the fake engine for a model of the tests' catalog, with further command-line flags."""
    spec = find_test_model(model)
    with short_folder() as folder:
        socket_path = folder / "engine.sock"
        argv, variables = fake_command(spec, socket_path)
        with (folder / "engine.log").open("wb") as log:
            process = subprocess.Popen(
                [*argv, *flags], env=os.environ | variables, stdout=log, stderr=log, start_new_session=True
            )
        engine = EngineUnderTest(spec, socket_path, process)
        try:
            wait_until(engine.is_healthy, what=f"the fake engine serves {model}")
            yield engine
        finally:
            engine.kill()


@contextmanager
def open_client(
    socket_path: Path, rows_in_flight_max: int = 128, progress_seconds: float = 0.05, **bounds: int
) -> Iterator[EngineClient]:
    """Open an engine client that reads the counters often."""
    client = EngineClient(socket_path, rows_in_flight_max, progress_seconds=progress_seconds, **bounds)
    try:
        yield client
    finally:
        client.close()


def chat_request(spec: ModelSpec, text: str, **more: Any) -> EngineRequest:
    """Return the request for the completion of one user message."""
    body = {"model": spec.id, "messages": [{"role": "user", "content": text}], **more}
    return EngineRequest(CHAT, json.dumps(body).encode())


class CuttingRelay:
    """Passes connections on to an engine's socket until ``cut`` ends all that are open, both ways."""

    def __init__(self, engine_path: Path, relay_path: Path) -> None:
        self.path = relay_path
        self._engine_path = engine_path
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(relay_path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """End every open connection."""
        for pair in self._pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()
        self._listener.close()
        for pair in self._pairs:
            for end in pair:
                end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self._engine_path))
            self._pairs.append((near, far))
            for ends in ((near, far), (far, near)):
                thread = threading.Thread(target=_copy, args=ends)
                self._threads.append(thread)
                thread.start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
