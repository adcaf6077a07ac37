"""Celery's part of a job's way: real workers, started with the words of production, on real servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from celery import chain
from celery.exceptions import Ignore
from cryptography.fernet import Fernet
from structlog.testing import capture_logs

from anex.errors import DatabaseUnavailable, LeaseLost
from anex.jobs.model import Step
from anex.sealing import Sealer
from anex.services import Timings
from anex.webhooks.endpoints import send_test
from config.settings import load_settings
from config.stack.layout import DataFolder
from config.stack.processes import list_processes
from tasks import names
from tasks.app import app
from tasks.base import CoreTask
from tasks.chains import plan_chain
from tasks.configuration import ROUTES, TRANSPORT_OPTIONS, make_worker_settings
from tasks.dispatch import CeleryDispatcher
from tests.support.hooks import accept, run_hooks
from tests.support.spine import MODEL, chat_rows
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls
    from tests.support.spine import Spine

ROOT = Path(__file__).parents[2]
QUEUES = {value for name, value in vars(names).items() if name.endswith("_QUEUE")}
FAULT = ValueError("a fault of the program")
GOOD_EXIT = 0


@dataclass(frozen=True, slots=True)
class Process:
    """One running role and what it has logged."""

    process: subprocess.Popen[bytes]
    log: Path

    def read_log(self) -> str:
        return self.log.read_text("utf-8")

    def wait_for(self, text: str) -> None:
        """Wait until the log holds ``text``; fail with the log when the process ends before."""
        wait_until(lambda: self._says(text), timeout_seconds=60, what=f"{self.log.name} says {text!r}")

    def stop(self) -> int:
        """Ask the process to stop as a supervisor does; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def _says(self, text: str) -> bool:
        assert self.process.poll() is None, self.read_log()
        return text in self.read_log()


@dataclass(frozen=True, slots=True)
class Roles:
    """Starts roles of the one-machine stack in one environment."""

    folder: Path
    environment: dict[str, str]

    @contextmanager
    def run(self, name: str, **changed: str) -> Iterator[Process]:
        """Run a role while the block runs, by the stack's own command; ``changed`` are other variables."""
        environment = self.environment | changed
        settings = load_settings(environment)
        specs = {spec.name: spec for spec in list_processes(settings, DataFolder(self.folder), {})}
        log = self.folder / f"{name}.log"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                specs[name].command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
            ) as process,
        ):
            try:
                yield Process(process, log)
            finally:
                if process.poll() is None:
                    process.terminate()
                    _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()


@pytest.fixture
def valkey(valkey_url: str) -> Iterator[redis.Redis]:
    """Return this worker's database, emptied."""
    client = redis.Redis.from_url(valkey_url)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


@pytest.fixture
def roles(
    tmp_path: Path, fresh_database_urls: DatabaseUrls, s3_location: S3Location, valkey_url: str
) -> Roles:
    """Roles on this test's database, which is also the spine's, with short times."""
    folder = tmp_path / "data"
    folder.mkdir()
    variables = {
        "ANEX_DATA_DIR": str(folder),
        "ANEX_DATABASE_WORK_URL": fresh_database_urls.work,
        "ANEX_REDIS_URL": valkey_url,
        "ANEX_S3_ENDPOINT": s3_location.endpoint,
        "ANEX_S3_REGION": s3_location.region,
        "ANEX_S3_BUCKET": s3_location.bucket,
        "ANEX_S3_ACCESS_KEY": s3_location.access_key,
        "ANEX_S3_SECRET_KEY": s3_location.secret_key,
        "ANEX_CATALOG": str(ROOT / "tests/support/models.test.toml"),
        "ANEX_ALLOW_FAKE_ENGINE": "1",
        "ANEX_SWEEP_SECONDS": "0.5",
        "ANEX_RING_BACKOFF_SECONDS": "0.1",
        "ANEX_RING_BACKOFF_MAX_SECONDS": "0.2",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANEX_")}
    return Roles(folder, kept | {name: value for name, value in variables.items() if value})


def wait_for_price(spine: Spine, job_id: str) -> None:
    wait_until(
        lambda: spine.job(job_id).status == "cost_ready", timeout_seconds=60, what="the job has a price"
    )


# A job's way


def test_a_planner_takes_a_job_from_its_first_ring_to_its_price(
    spine: Spine, roles: Roles, valkey: redis.Redis, valkey_url: str
) -> None:
    dispatcher = CeleryDispatcher(valkey_url)
    spine.api = replace(spine.api, dispatcher=dispatcher)
    with roles.run("planner") as planner:
        planner.wait_for(" ready.")
        job = spine.submit(chat_rows(20), max_output_tokens=16)

        wait_for_price(spine, job.id)

        planner.wait_for(job.id)
        assert planner.stop() == GOOD_EXIT
        assert "Traceback" not in planner.read_log()
    assert not [queue for queue in QUEUES if valkey.exists(queue)], "messages were left over"
    dispatcher.close()


@pytest.mark.usefixtures("valkey")
def test_a_job_whose_ring_was_lost_is_found_by_the_sweeper(spine: Spine, roles: Roles) -> None:
    job = spine.submit(chat_rows(20), max_output_tokens=16)  # the spine's own dispatcher sends nothing

    with roles.run("planner"), roles.run("control") as control, roles.run("beat") as beat:
        wait_for_price(spine, job.id)

        assert beat.stop() == GOOD_EXIT
        assert control.stop() == GOOD_EXIT
        assert "Traceback" not in control.read_log() + beat.read_log()


# What is told of it


def test_a_worker_delivers_retries_at_its_time_and_dies_without_losing_an_event(
    spine: Spine,
    roles: Roles,
    valkey: redis.Redis,
    valkey_url: str,
    fresh_database_urls: DatabaseUrls,
    tmp_path: Path,
) -> None:
    key = Fernet.generate_key().decode()
    dispatcher = CeleryDispatcher(valkey_url)
    spine.services = replace(spine.services, sealer=Sealer([key]), dispatcher=dispatcher)
    with run_hooks(spine, fresh_database_urls, tmp_path) as hooks:
        variables = {
            "ANEX_SECRET_KEY": key,
            "ANEX_OUTBOUND_ALLOWED_NETWORKS": "127.0.0.0/8",
            "ANEX_OUTBOUND_CA_FILE": str(hooks.server.ca_file),
            "ANEX_DELIVERY_RETRY_SECONDS": "0.2,300",
        }

        def send_test_event() -> str:
            with spine.services.database.transaction() as transaction:
                event_id = send_test(transaction, spine.caller.org_id, "world", spine.services.clock.now())
                transaction.after_commit(lambda: dispatcher.ring_deliveries(again=False))
            return event_id

        def count_delivered() -> int:
            return len(hooks.read("SELECT 1 FROM deliveries WHERE state = 'delivered'"))

        with roles.run("webhooks", **variables) as worker:
            worker.wait_for(" ready.")
            hooks.answer = lambda exchange: exchange.respond(500 if len(hooks.server.requests) == 1 else 200)
            send_test_event()
            wait_until(lambda: count_delivered() == 1, what="the second attempt delivers")
            hooks.answer = lambda exchange: exchange.stay_silent()
            lost = send_test_event()
            wait_until(lambda: len(hooks.server.requests) == 3, what="the receiver is asked")
            worker.process.kill()
        hooks.answer = accept
        valkey.flushdb()
        hooks.shift(spine.services.timings.delivery_seconds + Timings().lease_seconds + 1)
        with roles.run("webhooks", **variables), roles.run("control"), roles.run("beat"):
            wait_until(lambda: count_delivered() == 2, timeout_seconds=60, what="the event is delivered")
        assert [event["id"] for event in hooks.received[2:]] == [lost, lost]
    dispatcher.close()


# What surrounds a task


def run_plan_task(planner: Process, valkey_url: str, followed_by: str) -> None:
    """Send a task that a planner runs, and in one chain with it one whose queue has no consumer."""
    sender = CeleryDispatcher(valkey_url)
    estimate = sender._app.signature(names.ESTIMATE, kwargs={"job_id": "job_unknown"}, immutable=True)
    after = sender._app.signature(names.SAMPLE, immutable=True).set(queue=followed_by)
    chain(estimate, after, app=sender._app).apply_async()
    planner.wait_for("job_unknown")
    sender.close()


def test_a_task_that_ends_well_lets_its_chain_go_on(
    roles: Roles, valkey: redis.Redis, valkey_url: str
) -> None:
    with roles.run("planner") as planner:
        run_plan_task(planner, valkey_url, followed_by="gpu.test.quick")

        wait_until(lambda: valkey.llen("gpu.test.quick"), what="the next task of the chain is sent")


def test_a_task_without_its_database_ends_with_one_line_and_its_chain_with_it(
    roles: Roles, valkey: redis.Redis, valkey_url: str
) -> None:
    nobody = "postgresql://anex_work:none@127.0.0.1:1/anex"
    with roles.run("planner", ANEX_DATABASE_WORK_URL=nobody) as planner:
        run_plan_task(planner, valkey_url, followed_by="gpu.test.quick")

        planner.wait_for("task_refused")
        assert planner.stop() == GOOD_EXIT

        assert "Traceback" not in planner.read_log()
        assert not valkey.exists("gpu.test.quick")


def make_task(body: Callable[[], str]) -> Any:
    """Return a task of the app's kind that runs ``body``."""

    class Probe(CoreTask):
        name = "anex.probe"

        def run(self, job_id: str) -> str:
            assert job_id == "job_1"
            return body()

    return Probe()


def fail_with(error: Exception) -> Callable[[], str]:
    def body() -> str:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "raised", "event", "level"),
    [
        (LeaseLost("another has it"), Ignore, "task_outrun", "info"),
        (DatabaseUnavailable("no database"), Ignore, "task_refused", "warning"),
        (FAULT, ValueError, "task_failed", "error"),
    ],
)
def test_an_error_is_one_event_of_its_own_weight(
    error: Exception, raised: type[Exception], event: str, level: str
) -> None:
    with capture_logs() as events, pytest.raises(raised):
        make_task(fail_with(error))(job_id="job_1")

    (entry,) = events
    assert (entry["event"], entry["log_level"]) == (event, level)
    assert "duration_seconds" in entry


def test_a_task_that_ends_well_says_how_long_it_took_and_returns_its_result() -> None:
    with capture_logs() as events:
        assert make_task(lambda: "kept")(job_id="job_1") == "kept"

    (entry,) = events
    assert entry["event"] == "task_done"
    assert entry["duration_seconds"] >= 0


# Names, queues, settings


def run_program(program: str, tmp_path: Path, **variables: str) -> str:
    """Run a program in an interpreter of its own, without this one's environment; return what it prints."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ANEX_DATA_DIR": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | variables,
        check=True,
        timeout=60,
        capture_output=True,
    )
    return answer.stdout.decode()


def test_importing_the_app_reads_no_settings_and_no_model_library(tmp_path: Path) -> None:
    program = (
        "import sys, tasks.app, tasks.dispatch, tasks.plan, tasks.run, tasks.periodic\n"
        "print(tasks.app.app.configured, {'torch', 'transformers', 'vllm', 'flask'} & set(sys.modules))\n"
    )

    assert run_program(program, tmp_path) == "False set()\n"


def test_every_task_has_a_route_to_a_queue_that_is_consumed(tmp_path: Path) -> None:
    program = (
        "from tasks.app import app\n"
        "app.loader.import_default_modules()\n"
        "print(*(name for name in app.tasks if name.startswith('anex.')))\n"
    )
    tasks = run_program(program, tmp_path, ANEX_REDIS_URL="redis://127.0.0.1:1/0").split()

    assert sorted(tasks) == sorted(ROUTES)
    assert {route["queue"] for route in ROUTES.values()} == QUEUES


def test_every_step_has_a_chain_that_ends_before_a_person_is_asked() -> None:
    for step in Step:
        steps = plan_chain(app, "job_1", MODEL, step)
        last = steps.tasks[-1] if hasattr(steps, "tasks") else steps
        expected = names.ESTIMATE if step is Step.SAMPLE else f"anex.{step.value}"
        assert last.task == expected


@pytest.fixture
def worker_settings(tmp_path: Path) -> dict[str, Any]:
    environment = {"ANEX_DATA_DIR": str(tmp_path), "ANEX_REDIS_URL": "rediss://:word@redis.example:6379/3"}
    return make_worker_settings(load_settings(environment))


def test_whoever_rings_and_whoever_hears_share_one_visibility_timeout(
    worker_settings: dict[str, Any],
) -> None:
    dispatcher = CeleryDispatcher("redis://127.0.0.1:1/0")
    rings = dispatcher._app.conf.broker_transport_options["visibility_timeout"]

    assert rings == worker_settings["broker_transport_options"]["visibility_timeout"]
    assert rings == TRANSPORT_OPTIONS["visibility_timeout"]
    dispatcher.close()


def test_an_encrypted_broker_is_asked_for_its_certificate(worker_settings: dict[str, Any]) -> None:
    assert worker_settings["broker_use_ssl"]["ssl_cert_reqs"].name == "CERT_REQUIRED"
    assert worker_settings["redis_backend_use_ssl"]["ssl_cert_reqs"].name == "CERT_REQUIRED"


def test_a_ring_of_beats_that_was_not_heard_does_not_outlive_the_next(
    worker_settings: dict[str, Any],
) -> None:
    entries = worker_settings["beat_schedule"].values()

    assert {entry["task"] for entry in entries} == {names.SWEEP, names.PURGE}
    for entry in entries:
        assert entry["options"]["expires"] <= entry["schedule"]
        assert entry["options"]["queue"] == names.CONTROL_QUEUE
