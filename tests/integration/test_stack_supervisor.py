"""The supervisor with small children: start, restart, stop, and nothing left in whatever way it ends."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from config.stack import unit as unit_module
from config.stack.errors import ServiceFailed
from config.stack.gpu_units import UnitsOnDemand, WaitingModels, WantedUnit
from config.stack.layout import DataFolder, FolderLock, is_locked
from config.stack.proc import is_alive
from config.stack.spec import SERVERS, ServiceSpec
from config.stack.status import read_status
from config.stack.supervisor import Supervisor
from tests.support.stack_run import StackRun, short_folder
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLEEP = "import signal; signal.pause()"
STUBBORN = """
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    signal.pause()
"""
# A tree: a stubborn child, and a stubborn grandchild that has left its session.
TREE = f"""
import os
if os.fork() == 0:
    os.setsid()
    print("apart", flush=True)
{STUBBORN}
"""


@pytest.fixture
def start() -> Iterator[Callable[..., StackRun]]:
    with short_folder() as root:
        runs: list[StackRun] = []

        def start_run(*children: dict[str, Any], **more: Any) -> StackRun:
            run = StackRun(root / "data", {"children": list(children), **more})
            runs.append(run)
            return run

        yield start_run
        for run in runs:
            run.clean_up()


def log_of(run: StackRun, name: str) -> str:
    return (run.folder.logs / f"{name}.log").read_text("utf-8")


def start_tree(start: Callable[..., StackRun]) -> StackRun:
    run = start({"name": "plain", "code": SLEEP}, {"name": "tree", "code": TREE, "stop_timeout_seconds": 0.5})
    run.wait_for("UP")
    wait_until(lambda: log_of(run, "tree").count("deaf") == 2, what="both of the tree are deaf")
    assert len(run.members()) == 3
    return run


def test_ctrl_c_stops_everything_and_ends_with_0(start: Callable[..., StackRun]) -> None:
    run = start_tree(start)
    run.signal(signal.SIGINT)
    assert run.wait_ended() == 0
    assert run.members() == set()
    assert "tree       stopped (signal 9)" in run.output()
    assert "plain      stopped (signal 15)" in run.output()
    assert not is_locked(run.folder)


def test_a_killed_supervisor_leaves_nothing(start: Callable[..., StackRun]) -> None:
    run = start_tree(start)
    guardian = run.guardian_pid()
    run.signal(signal.SIGKILL)
    run.wait_ended()
    assert is_locked(run.folder), "the folder was free before its processes had ended"
    run.wait_nothing_left()
    wait_until(lambda: not is_alive(guardian), what="the guardian ends last")
    assert not is_locked(run.folder)


def test_after_a_kill_the_next_start_waits_for_the_guardian(start: Callable[..., StackRun]) -> None:
    run = start_tree(start)
    before = run.members()
    run.signal(signal.SIGKILL)
    run.wait_ended()
    again = start({"name": "plain", "code": SLEEP})
    again.wait_for("UP")
    assert not before & again.members()


def test_children_end_with_the_supervisor_even_when_the_guardian_is_gone(
    start: Callable[..., StackRun],
) -> None:
    run = start({"name": "plain", "code": SLEEP})
    run.wait_for("UP")
    run.signal(signal.SIGSTOP)  # it can't start another guardian
    guardian = run.guardian_pid()
    os.kill(guardian, signal.SIGKILL)
    run.signal(signal.SIGKILL)
    run.wait_ended()
    run.wait_nothing_left()


def test_a_killed_guardian_is_replaced_and_knows_the_sessions(start: Callable[..., StackRun]) -> None:
    run = start_tree(start)
    first = run.guardian_pid()
    os.kill(first, signal.SIGKILL)
    run.wait_for("guardian   ended")
    wait_until(lambda: run.guardian_pid() != first, what="another guardian")
    run.signal(signal.SIGKILL)
    run.wait_ended()
    run.wait_nothing_left()


def test_a_child_that_ends_is_started_again_with_growing_delays(start: Callable[..., StackRun]) -> None:
    run = start({"name": "weak", "code": "import sys; sys.exit(3)"})
    run.wait_for("weak       ended with exit code 3; again in 0.5 s")
    run.wait_for("weak       ended with exit code 3; again in 1.0 s")
    run.wait_for("weak       ended with exit code 3; again in 2.0 s")

    def is_told() -> bool:
        (service,) = read_status(run.folder).services
        return (service.state, service.detail) == ("restarting", "exit code 3")

    wait_until(is_told, what="its status tells of it too")  # which is written after the line


def test_what_a_dead_child_left_is_killed_before_it_starts_again(start: Callable[..., StackRun]) -> None:
    run = start_tree(start)
    before = run.members()
    os.kill(run.pid_of("tree"), signal.SIGKILL)
    run.wait_for("tree       ended with signal 9; again in 0.5 s")
    wait_until(lambda: log_of(run, "tree").count("deaf") == 4, what="a new tree")
    assert len(run.members()) == 3
    assert len(run.members() & before) == 1


def test_tiers_stop_in_reverse(start: Callable[..., StackRun]) -> None:
    run = start({"name": "base", "code": SLEEP, "tier": SERVERS}, {"name": "top", "code": SLEEP})
    run.wait_for("UP")
    run.signal(signal.SIGTERM)
    assert run.wait_ended() == 0
    assert run.output().index("top        stopped") < run.output().index("base       stopped")


def test_each_child_gets_its_own_stop_signal(start: Callable[..., StackRun]) -> None:
    code = "import signal; signal.sigwait({signal.SIGINT}); print('asked by SIGINT')"
    code = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})\nprint('on')\n{code}"
    run = start({"name": "own", "code": code, "stop_signal": int(signal.SIGINT)})
    run.wait_for("UP")
    wait_until(lambda: "on" in log_of(run, "own"), what="the child listens")
    run.signal(signal.SIGTERM)
    assert run.wait_ended() == 0
    assert "asked by SIGINT" in log_of(run, "own")


def test_a_second_signal_does_not_wait(start: Callable[..., StackRun]) -> None:
    run = start({"name": "deaf", "code": STUBBORN, "stop_timeout_seconds": 3600})
    run.wait_for("UP")
    wait_until(lambda: "deaf" in log_of(run, "deaf"), what="it is deaf")
    run.signal(signal.SIGINT)
    wait_until(lambda: read_status(run.folder).services[0].state == "stopping", what="the stop began")
    run.signal(signal.SIGINT)
    assert run.wait_ended() == 0


def test_a_second_start_on_the_same_folder_is_refused_and_names_the_holder(
    start: Callable[..., StackRun],
) -> None:
    first = start({"name": "plain", "code": SLEEP})
    first.wait_for("UP")
    second = start({"name": "plain", "code": SLEEP})
    assert second.wait_ended() == 1
    assert f"DataFolderTaken: {first.folder.root} is in use" in second.output()
    assert f"process {first.process.pid}." in second.output()
    assert is_alive(first.pid_of("plain"))


def test_status_tells_what_runs_and_when_nothing_does(start: Callable[..., StackRun]) -> None:
    run = start({"name": "plain", "code": SLEEP, "url": "http://127.0.0.1:1"})
    run.wait_for("UP")
    status = read_status(run.folder)
    (service,) = status.services
    assert (status.running, status.supervisor_pid) == (True, run.process.pid)
    assert (service.name, service.state, service.url) == ("plain", "ready", "http://127.0.0.1:1")
    run.signal(signal.SIGTERM)
    run.wait_ended()
    assert read_status(run.folder).running is False


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with short_folder() as root:
        folder = DataFolder(root / "data")
        folder.create()
        with FolderLock(folder) as lock:
            made = Supervisor(folder, lock_descriptor=lock.descriptor, say=lambda _: None)
            made.folder = folder  # type: ignore[attr-defined] # for the tests below
            yield made
            made.request_stop()
            made.request_stop()
            made.stop()


def describe(name: str, code: str, **more: Any) -> ServiceSpec:
    return ServiceSpec(name=name, command=[sys.executable, "-S", "-c", code], environment={}, **more)


def test_a_critical_service_that_ends_before_it_is_ready_fails_the_start(supervisor: Supervisor) -> None:
    spec = describe("broken", "print('no disk'); raise SystemExit(7)", ready=lambda: False)
    with pytest.raises(ServiceFailed, match=r"broken ended with exit code 7 [\s\S]*no disk"):
        supervisor.start(spec)


def test_a_critical_service_that_is_late_fails_the_start(supervisor: Supervisor) -> None:
    spec = describe("late", SLEEP, ready=lambda: False, ready_timeout_seconds=0.1)
    with pytest.raises(ServiceFailed, match="late was not ready within"):
        supervisor.start(spec)


def test_a_service_that_is_not_critical_may_be_late(supervisor: Supervisor) -> None:
    answers = iter([False] * 3)
    spec = describe(
        "late", SLEEP, ready=lambda: next(answers, True), ready_timeout_seconds=0.0, critical=False
    )
    supervisor.start(spec)

    def is_ready() -> bool:
        supervisor.watch_once()
        return supervisor.states()["late"] == "ready"

    wait_until(is_ready, what="it is ready later")


def test_a_log_that_grew_too_large_is_moved_aside(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_module, "LOG_MAX_BYTES", 100)
    code = f"print('x' * 200, flush=True); {SLEEP}"
    unit = supervisor.add(describe("chatty", code))
    wait_until(lambda: unit.log.stat().st_size > 100, what="it has written")
    supervisor.watch_once()
    assert unit.log.stat().st_size == 0
    assert unit.log.with_suffix(".log.1").stat().st_size == 201


def test_a_healthy_minute_makes_the_delay_short_again(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = supervisor.add(describe("plain", SLEEP))
    delays = [unit.plan_restart("test") for _ in range(8)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    monkeypatch.setattr(unit, "age_seconds", lambda: 60.0)
    assert unit.plan_restart("test") == 0.5


def test_a_full_disk_ends_nothing_and_is_said_once(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    supervisor._say = said.append
    supervisor.add(describe("sleeper", SLEEP))
    with monkeypatch.context() as full:
        full.setattr("config.stack.supervisor.write_status", raise_full)
        for _ in range(3):
            supervisor.watch_once()
            supervisor.write_status()
    assert [line for line in said if "free some space" in line] == [said[-1]]
    supervisor.write_status()
    (service,) = read_status(supervisor.folder).services  # type: ignore[attr-defined]
    assert service.name == "sleeper"


def raise_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class Line:
    """The models that wait, as a test sets them."""

    def __init__(self, *models: str) -> None:
        self.models = models

    def __call__(self) -> list[WantedUnit]:
        return [WantedUnit("world", model) for model in self.models]


def step(supervisor: Supervisor, units: UnitsOnDemand) -> dict[str, str]:
    units.tick()
    supervisor.watch_once()
    supervisor.write_status()
    return dict(supervisor.states())


def test_one_gpu_unit_runs_at_a_time_and_the_status_says_which_model_waits(supervisor: Supervisor) -> None:
    line = Line("a", "b")
    gate = "import signal; signal.sigwait({signal.SIGUSR1})"
    gate = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1}}); {gate}"
    units = UnitsOnDemand(
        supervisor, line, lambda wanted: describe(f"gpu-{wanted.model}", gate, until_success=True)
    )
    assert set(step(supervisor, units)) == {"gpu-a"}
    waiting = read_status(supervisor.folder).services[-1]  # type: ignore[attr-defined]
    assert (waiting.name, waiting.state) == ("gpu-b", "waiting")
    assert waiting.detail == "has work; starts when gpu-a has none left"
    line.models = ("b",)

    def let_a_end() -> bool:
        unit = supervisor._units.get("gpu-a")
        if unit and unit.pid:
            os.kill(unit.pid, signal.SIGUSR1)
        return set(step(supervisor, units)) == {"gpu-b"}

    wait_until(let_a_end, what="a went idle and b started")


def test_an_idle_gpu_unit_makes_room_for_a_model_that_waits(supervisor: Supervisor) -> None:
    """It kept its place until its own idle time was over, or for ever where that was switched off."""
    line = Line("a")
    units = UnitsOnDemand(
        supervisor,
        line,
        lambda wanted: describe(f"gpu-{wanted.model}", SLEEP, until_success=True),
        idle_seconds=0.05,
    )
    assert set(step(supervisor, units)) == {"gpu-a"}
    line.models = ()
    assert set(step(supervisor, units)) == {"gpu-a"}
    line.models = ("a", "b")
    assert set(step(supervisor, units)) == {"gpu-a"}
    line.models = ("b",)
    wait_until(lambda: set(step(supervisor, units)) == {"gpu-b"}, what="b has the place")


def test_a_failing_gpu_unit_gives_way_to_a_model_that_waits(supervisor: Supervisor) -> None:
    line = Line("bad", "good")
    codes = {"bad": "raise SystemExit(1)", "good": SLEEP}
    units = UnitsOnDemand(
        supervisor,
        line,
        lambda wanted: describe(f"gpu-{wanted.model}", codes[wanted.model], until_success=True),
    )
    wait_until(lambda: set(step(supervisor, units)) == {"gpu-good"}, what="good runs")


def test_a_failing_gpu_unit_alone_is_tried_again_while_there_is_work(supervisor: Supervisor) -> None:
    line = Line("bad")
    units = UnitsOnDemand(
        supervisor,
        line,
        lambda wanted: describe(f"gpu-{wanted.model}", "raise SystemExit(1)", until_success=True),
    )
    wait_until(
        lambda: step(supervisor, units) == {"gpu-bad": "restarting"}, what="it waits to be tried again"
    )
    line.models = ()
    assert step(supervisor, units) == {}


def test_a_database_that_fails_means_nobody_waits_and_is_said_once() -> None:
    said: list[str] = []
    calls: list[None] = []

    def find() -> list[WantedUnit]:
        calls.append(None)
        raise RuntimeError("gone")

    waiting = WaitingModels(find, said.append)
    wait_until(lambda: len(calls) >= 2, what="it looked twice")
    waiting.close()
    assert waiting() == ()
    assert said == ["gpu        cannot see which models have work (RuntimeError: gone)"]
