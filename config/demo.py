"""``anex demo``: one real job from file to result, on this machine.

The demo is a customer: once it has a key, it uses the batch API over HTTP. Only the progress of a running job and the
ledger's side come from the operator's functions, since the API tells counts at the end alone.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from anex.errors import AnexError
from anex.money import format_cents, nanos_to_cents_up
from config.demo_account import DemoAccount
from config.demo_customer import Customer
from config.demo_rows import pick_answers, read_lines, require_line_for_line
from config.demo_screen import Screen
from config.demo_stack import open_stack
from config.settings import load_settings
from config.stack.layout import PROJECT_FOLDER, DataFolder
from config.wiring import open_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from config.demo_stack import DemoStack

INPUT = PROJECT_FOLDER / "examples" / "prompts.jsonl"
MODEL = "smollm2-135m"
WAIT_TIMEOUT_SECONDS = 900.0
"""For an estimate, and for a run: ten times what a slow machine takes."""

_POLL_SECONDS = 0.5
_FAILED = 1
_INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended: 128 + SIGINT."""


class DemoFailed(AnexError):
    """The job did not come to its end; the message says why."""

    code = "demo_failed"


@dataclass(frozen=True, slots=True)
class _Paths:
    """Where the demo keeps what is its own."""

    root: Path

    @property
    def key(self) -> Path:
        return self.root / "key"

    @property
    def result(self) -> Path:
        return self.root / "result.jsonl"

    @property
    def log(self) -> Path:
        return self.root / "stack.log"


@dataclass(frozen=True, slots=True)
class _Demo:
    """Everything that the stages share."""

    screen: Screen
    stack: DemoStack
    paths: _Paths
    account: DemoAccount
    customer: Customer


def run_demo(environ: Mapping[str, str], *, out: TextIO) -> int:
    """Take ``examples/prompts.jsonl`` through the whole way, telling it to ``out``; return the exit code.

    ``environ`` is the environment as it stands. The stack that runs in its data folder is used; where none runs, one is started
    and stopped again. A failure is told with its cause and the place of the logs.
    """
    screen = Screen(out)
    folder = None
    try:
        folder = DataFolder(load_settings(environ).data_dir.resolve())
        with _interruptible():
            _run(environ, folder, screen)
    except KeyboardInterrupt:
        screen.say("\nStopped. Jobs and files stay; `make demo` begins a new job.")
        return _INTERRUPTED
    except (AnexError, OSError) as failure:
        screen.say(f"\nThe demo failed: {failure}", style="red")
        if folder is not None:
            screen.say(f"Logs: {folder.logs} (one a service), {_Paths(folder.root / 'demo').log}")
        return _FAILED
    return 0


def _run(environ: Mapping[str, str], folder: DataFolder, screen: Screen) -> None:
    paths = _Paths(folder.root / "demo")
    paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    environ = {**environ, "ANEX_DATA_DIR": str(folder.root)}
    with open_stack(folder, environ, paths.log) as stack:
        with screen.stage("1  Start the servers and anex's own processes"):
            origin = stack.wait_ready(lambda line: screen.say(f"  {line}", style="dim"))
        with open_database(load_settings(environ)) as database:
            account = DemoAccount(database)
            with screen.stage("2  Set up an organization with credits and a key"):
                customer = _set_up_customer(screen, account, origin, paths)
            _run_job(_Demo(screen, stack, paths, account, customer))
        if stack.is_own:
            screen.say("\nStopping what was started", style="dim")


def _set_up_customer(screen: Screen, account: DemoAccount, origin: str, paths: _Paths) -> Customer:
    granted = account.ensure_credits()
    if granted:
        screen.say(f"  granted {granted} credits ({format_cents(granted)})")
    customer = Customer(origin, account.ensure_key(paths.key))
    screen.say(f"  organization {account.org_id}, its key in {paths.key}")
    return customer


def _run_job(demo: _Demo) -> None:
    screen, customer = demo.screen, demo.customer
    rows = read_lines(INPUT)
    before_nanos = demo.account.read_balance().available_nanos
    with screen.stage(f"3  Upload {INPUT.name} ({len(rows)} rows) and submit it to {MODEL}"):
        job_id = customer.submit(customer.upload(INPUT), MODEL)
        screen.say(f"  {job_id}")
    with screen.stage("4  Check the rows, run a sample, estimate the price"):
        job = _wait_for(demo, job_id, "cost_ready", lambda: _describe_sampling(demo, job_id))
        _show_estimate(screen, job)
    with screen.stage("5  Approve, and run every row"):
        customer.approve(job_id)
        job = _wait_for(demo, job_id, "done", lambda: _describe_rows(demo, job_id))
    with screen.stage("6  Download the result"):
        customer.download(job_id, demo.paths.result)
        results = read_lines(demo.paths.result)
        require_line_for_line(rows, results)
        screen.say(f"  {len(results)} lines, one a row, in the order of the input")
    screen.say("\nFive of the answers", style="bold")
    screen.show_answers(pick_answers(rows, results))
    _show_money(demo, job, before_nanos)
    _show_end(demo, job_id)


def _wait_for(demo: _Demo, job_id: str, status: str, describe: Callable[[], str]) -> dict[str, Any]:
    """Poll the API until the job is in ``status``, showing where it stands. Raises ``DemoFailed``."""
    deadline = time.monotonic() + WAIT_TIMEOUT_SECONDS
    with demo.screen.follow() as show:
        while (job := demo.customer.get_job(job_id))["status"] != status:
            if job["finished_at"] is not None:
                raise DemoFailed(f"job {job_id} ended {job['status']}: {job['failure_reason']}")
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"job {job_id} is {job['status']} and not {status} after {WAIT_TIMEOUT_SECONDS:.0f} s; {describe()}"
                )
            show(f"{job['status']} · {describe()}")
            time.sleep(_POLL_SECONDS)
            demo.stack.check()  # before the next request: that the stack ended says more than that nobody answers
    return job


def _describe_sampling(demo: _Demo, job_id: str) -> str:
    """Say what an estimate waits for: in a fresh stack, for the model's files and its engine."""
    shown = demo.account.read_job(job_id)
    if shown["step"] != "sample":
        return f"{shown['progress']['rows_checked']} rows checked"
    engines = [unit["detail"] for unit in shown["units"] if unit["engine_state"] != "ready"]
    if engines:
        return str(engines[0])
    return "the sample's rows run" if shown["units"] else demo.stack.describe_unit(MODEL)


def _describe_rows(demo: _Demo, job_id: str) -> str:
    """Say how far a run is; rows count when their chunk is complete or writes a checkpoint."""
    shown = demo.account.read_job(job_id)
    chunks = ", ".join(f"{row['chunks']} {row['state']}" for row in shown["chunks"])
    return f"{shown['rows_done']} of {shown['progress']['total_rows']} rows done; chunks: {chunks}"


def _show_estimate(screen: Screen, job: dict[str, Any]) -> None:
    screen.say(
        f"  estimate: {format_cents(job['est_cost_cents'])} at most, for "
        f"{job['est_input_tok']} tokens in and up to {job['est_output_tok']} out; "
        f"a row may write {job['max_output_tokens']} tokens; about {job['est_processing_seconds']} s"
    )


def _show_money(demo: _Demo, job: dict[str, Any], before_nanos: int) -> None:
    hold = demo.account.read_job(job["id"])["hold"]
    after_nanos = demo.account.read_balance().available_nanos
    demo.screen.say("\nThe money (1 credit is 1 cent)", style="bold")
    demo.screen.show_table(
        [
            ("balance before", _format_nanos(before_nanos), ""),
            ("estimate", format_cents(job["est_cost_cents"]), "the most it can cost"),
            ("hold", _format_nanos(hold["amount_nanos"]), "set aside at the approval"),
            (
                "charge",
                _format_nanos(hold["charged_nanos"]),
                "for what was delivered; what is left of the hold was released",
            ),
            ("balance after", _format_nanos(after_nanos), ""),
        ]
    )
    rows = ", ".join(
        f"{job[f'{kind}_rows']} {kind}" for kind in ("success", "truncated", "format_error", "error")
    )
    demo.screen.say(f"  rows: {rows}")


def _show_end(demo: _Demo, job_id: str) -> None:
    screen = demo.screen
    screen.say("\nHow long it took", style="bold")
    screen.show_table([(title, f"{seconds:.1f} s", "") for title, seconds in screen.durations])
    screen.say("\nWhere things lie", style="bold")
    places = {
        "input": INPUT,
        "result": demo.paths.result,
        "key": demo.paths.key,
        "logs": demo.stack.folder.logs,
    }
    for name, place in places.items():
        screen.say(f"  {name:8}{place}")
    screen.say("\nWhat to try next", style="bold")
    screen.say(
        "  make up                                 keep it running, until Ctrl-C; then, in a second terminal:"
    )
    screen.say(f"  .venv/bin/anex job show {job_id}")
    screen.say("  .venv/bin/anex status                   the API's address among others, as BASE here:")
    screen.say(f'  curl -H "Authorization: Bearer $(cat {demo.paths.key})" $BASE/batch/v1/jobs/{job_id}')
    screen.say('  README.md, "A first job by hand"        a file of your own, with curl')


def _format_nanos(nanos: int) -> str:
    return format_cents(nanos_to_cents_up(nanos))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGTERM and a closed terminal do what Ctrl-C does: the stack that was started must stop."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
