from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from config.stack.layout import PROJECT_FOLDER
from config.stack.proc import is_alive
from tests.support.engines import find_test_model, short_folder
from tests.support.wait import wait_until
from workers.engine_child import (
    SICK_DEATHS,
    SICK_WINDOW_SECONDS,
    ChildState,
    ChildTimings,
    EngineChild,
    EngineCommand,
    SocketPathTooLong,
)
from workers.engine_log import LINE_MAX_CHARACTERS, bound_log, last_line, open_log
from workers.engine_mark import EngineMark, end_leftover, find_mark, kill_marked, write_mark
from workers.engines.fake_command import fake_command
from workers.unix_http import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 60.0
QUICK = ChildTimings(health_seconds=0.02, health_failures_max=3, backoff_seconds=1.0, backoff_max_seconds=8.0)

# An engine as vLLM is one: its server has a process of its own, which only dies with the whole group.
WITH_A_WORKER = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("worker", worker.pid, flush=True)
from workers.engines.fake import main
main(sys.argv[1:])
"""


@dataclass
class Stopwatch:
    """A monotonic clock that a test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def command(folder: Path) -> EngineCommand:
    argv, variables = fake_command(find_test_model("fake-chat"), folder / "engine.sock")
    return EngineCommand(
        tuple(argv), os.environ | variables, folder / "engine.sock", folder / "log" / "engine.log"
    )


@pytest.fixture
def clock() -> Stopwatch:
    return Stopwatch()


@pytest.fixture
def child(command: EngineCommand, clock: Stopwatch) -> Iterator[EngineChild]:
    child = EngineChild(command, QUICK, clock)
    yield child
    child.stop(grace_seconds=0)


def wait_for(child: EngineChild, clock: Stopwatch, state: ChildState) -> None:
    """Poll, a tenth of a second of the child's time a look, until it is in ``state``."""

    def look() -> bool:
        clock.now += 0.1
        return child.poll() is state

    wait_until(look, timeout_seconds=START_SECONDS, what=f"the engine is {state}")


def run_script(script: str, command: EngineCommand) -> EngineCommand:
    """Return the command with its program replaced."""
    return replace(command, argv=(sys.executable, "-c", script, *command.argv[3:]))


def test_it_starts_serves_and_leaves_a_mark(
    child: EngineChild, command: EngineCommand, clock: Stopwatch
) -> None:
    assert child.poll() is ChildState.STOPPED
    child.start()
    assert child.state is ChildState.STARTING
    wait_for(child, clock, ChildState.READY)
    mark = find_mark(command.socket_path)
    assert mark is not None
    assert mark.generation == child.generation == 1
    assert os.getpgid(mark.process_id) == mark.process_id != os.getpgid(0)
    assert ask(command.socket_path, "/health", None, 10)[0] == 200
    assert not child.deaths


def test_a_killed_engine_comes_back_as_another_generation(
    child: EngineChild, command: EngineCommand, clock: Stopwatch
) -> None:
    child.start()
    wait_for(child, clock, ChildState.READY)
    with command.log_path.open("a") as engine_log:
        engine_log.write("failed on the prompt: a secret\n")
    child.kill()
    wait_for(child, clock, ChildState.BACKING_OFF)
    assert find_mark(command.socket_path) is None
    assert not command.socket_path.exists()
    assert "SIGKILL" in child.describe()
    assert "see engine.log" in child.describe()
    assert "secret" not in child.describe()
    wait_for(child, clock, ChildState.READY)
    assert child.generation == 2
    assert [(death.generation, death.was_ready) for death in child.deaths] == [(1, True)]


def test_a_worker_kills_the_engine_that_it_saw_and_no_later_one(
    child: EngineChild, command: EngineCommand, clock: Stopwatch
) -> None:
    child.start()
    wait_for(child, clock, ChildState.READY)
    assert not kill_marked(command.socket_path, generation=7)
    assert kill_marked(command.socket_path, generation=1)
    wait_for(child, clock, ChildState.BACKING_OFF)
    assert not kill_marked(command.socket_path, generation=1)


def test_an_engine_that_fails_its_health_checks_is_killed(
    child: EngineChild, command: EngineCommand, clock: Stopwatch
) -> None:
    child.start()
    wait_for(child, clock, ChildState.READY)
    mark = find_mark(command.socket_path)
    assert mark is not None
    ask(command.socket_path, "/fake/switches", b'{"unhealthy": true}', 10)
    wait_for(child, clock, ChildState.BACKING_OFF)
    assert child.deaths[0].reason == "failed 3 health checks in a row"
    assert not is_alive(mark.process_id)


def test_one_failed_health_check_is_forgiven(
    child: EngineChild, command: EngineCommand, clock: Stopwatch
) -> None:
    child.start()
    wait_for(child, clock, ChildState.READY)
    for unhealthy in (b"true", b"false", b"true", b"false"):
        ask(command.socket_path, "/fake/switches", b'{"unhealthy": %s}' % unhealthy, 10)
        for _ in range(2):
            clock.now += 1
            assert child.poll() is ChildState.READY


def test_nothing_of_its_group_outlives_the_engine(command: EngineCommand, clock: Stopwatch) -> None:
    child = EngineChild(run_script(WITH_A_WORKER, command), QUICK, clock)
    child.start()
    wait_for(child, clock, ChildState.READY)
    worker = read_worker(command.log_path)
    assert is_alive(worker)
    mark = find_mark(command.socket_path)
    assert mark is not None
    os.kill(mark.process_id, signal.SIGKILL)
    wait_for(child, clock, ChildState.BACKING_OFF)
    wait_until(lambda: not is_alive(worker), what="the engine's own process is gone")
    child.stop()


def test_the_pause_doubles_to_its_bound_and_starts_anew_after_steady_work(
    command: EngineCommand, clock: Stopwatch
) -> None:
    child = EngineChild(replace(command, argv=(sys.executable, "-c", "raise SystemExit(3)")), QUICK, clock)
    child.start()
    pauses = []
    for _ in range(6):
        wait_until(lambda: child.poll() is ChildState.BACKING_OFF, what="the engine has died")
        pauses.append(child._restart_at - clock.now)
        clock.now = child._restart_at
        assert child.poll() is ChildState.STARTING
    assert pauses == [1, 2, 4, 8, 8, 8]
    assert {death.reason for death in child.deaths} == {"exited with code 3"}
    child.stop()
    child._command = command
    child.start()
    wait_for(child, clock, ChildState.READY)
    clock.now += QUICK.steady_seconds
    child.kill()
    wait_until(lambda: child.poll() is ChildState.BACKING_OFF, what="the engine has died")
    assert child._restart_at - clock.now == 1


def test_many_deaths_in_a_short_time_are_a_sickness(command: EngineCommand, clock: Stopwatch) -> None:
    child = EngineChild(replace(command, argv=(sys.executable, "-c", "")), QUICK, clock)
    child.start()
    for _ in range(SICK_DEATHS + 1):
        assert not child.is_sick()
        wait_until(lambda: child.poll() is ChildState.BACKING_OFF, what="the engine has died")
        child.start()
    assert child.is_sick()
    clock.now += SICK_WINDOW_SECONDS + 1
    assert not child.is_sick()
    child.stop()


def test_an_engine_that_never_gets_ready_is_ended(command: EngineCommand, clock: Stopwatch) -> None:
    argv = (sys.executable, "-c", "import signal; print('loading 1 of 9', flush=True); signal.pause()")
    child = EngineChild(replace(command, argv=argv), replace(QUICK, start_seconds=50), clock)
    child.start()
    wait_until(lambda: last_line(command.log_path) == "loading 1 of 9", what="the engine loads")
    clock.now += 42
    assert child.poll() is ChildState.STARTING
    assert child.describe() == "the engine has been starting for 42 s; its log says: loading 1 of 9"
    clock.now += 10
    assert child.poll() is ChildState.BACKING_OFF
    assert child.deaths[0].reason == "was not ready after 50 s"
    child.stop()


def test_waiting_says_what_it_waits_for(command: EngineCommand) -> None:
    said: list[str] = []
    child = EngineChild(command, QUICK)
    child.start()
    assert child.wait_until_ready(START_SECONDS, said.append)
    assert said[0].startswith("the engine has been starting for")
    assert said[-1].startswith("the engine is ready")
    child.stop()
    assert not child.wait_until_ready(0, said.append)


def test_stopping_is_final_polite_first_and_forceful_then(command: EngineCommand, clock: Stopwatch) -> None:
    stubborn = textwrap.dedent("""
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        signal.pause()
    """)
    for argv, line in ((command.argv, "fake engine"), ((sys.executable, "-c", stubborn), "deaf")):
        child = EngineChild(replace(command, argv=argv), QUICK, clock)
        child.start()
        wait_until(partial(says, command.log_path, line), what=f"the engine said {line}")
        mark = find_mark(command.socket_path)
        assert mark is not None
        child.stop(grace_seconds=0.2)
        assert not is_alive(mark.process_id)
        assert find_mark(command.socket_path) is None
        assert child.poll() is ChildState.STOPPED
        assert not child.deaths


def test_a_killed_parent_takes_its_engine_along(command: EngineCommand) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *command.argv[3:]],
        cwd=PROJECT_FOLDER,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        engine = int(parent.stdout.readline())
    assert is_alive(engine)
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_alive(engine), what="the engine has ended with its parent")


PARENT = """
import os, signal, sys
from pathlib import Path
from workers.engine_child import EngineChild, EngineCommand
from workers.engine_mark import find_mark
path = Path(sys.argv[2])
argv = (sys.executable, "-m", "workers.engines.fake", *sys.argv[1:])
child = EngineChild(EngineCommand(argv, dict(os.environ), path, path.with_name("engine.log")))
child.start()
assert child.wait_until_ready(60, lambda line: None)
print(find_mark(path).process_id, flush=True)
signal.pause()
"""


def test_the_engine_of_a_parent_that_could_not_end_it_is_ended_by_the_next(
    child: EngineChild, command: EngineCommand, clock: Stopwatch
) -> None:
    orphan = subprocess.Popen([*command.argv], env=command.environment, start_new_session=True)
    write_mark(command.socket_path, EngineMark(3, orphan.pid))
    child.start()
    assert orphan.wait(30) == -signal.SIGKILL
    wait_for(child, clock, ChildState.READY)


def test_a_stranger_with_a_dead_engines_process_id_is_left_alone(folder: Path) -> None:
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
    )
    write_mark(folder / "engine.sock", EngineMark(3, stranger.pid))
    end_leftover(folder / "engine.sock")
    assert stranger.poll() is None
    assert find_mark(folder / "engine.sock") is None
    stranger.kill()
    stranger.wait()


def test_a_socket_path_that_is_too_long_is_refused_with_the_fix(command: EngineCommand) -> None:
    with pytest.raises(SocketPathTooLong, match="use a data folder with a shorter path"):
        replace(command, socket_path=Path("/" + "x" * 107))
    replace(command, socket_path=Path("/" + "x" * 106))


def test_a_log_is_cut_below_its_writer_and_keeps_its_end(folder: Path) -> None:
    path = folder / "engine.log"
    descriptor = open_log(path)
    os.write(descriptor, b"x" * 5000 + b"\nthe end\n")
    bound_log(path, max_bytes=10_000)
    assert path.stat().st_size == 5009
    bound_log(path, max_bytes=5000)
    os.write(descriptor, b"more\n")
    os.close(descriptor)
    assert path.read_bytes() == b"more\n"
    assert (folder / "engine.log.1").read_bytes().endswith(b"\nthe end\n")


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"", ""),
        (b"one\ntwo\n\n", "two"),
        (b"50%\r100%\r\n", "100%"),
        (b"\x1b[31mred\xff", "[31mred\ufffd"),
        (b"y" * 9000, "y" * LINE_MAX_CHARACTERS),
    ],
)
def test_the_last_line_is_short_and_printable(folder: Path, written: bytes, line: str) -> None:
    (folder / "engine.log").write_bytes(written)
    assert last_line(folder / "engine.log") == line
    assert last_line(folder / "none.log") == ""


def says(log_path: Path, text: str) -> bool:
    return text in last_line(log_path)


def read_worker(log_path: Path) -> int:
    """Return the process id that the engine of ``WITH_A_WORKER`` printed."""
    line = next(line for line in log_path.read_text().splitlines() if line.startswith("worker "))
    return int(line.split()[1])
