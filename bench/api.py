"""The API under 64 keep-alive connections, against a bare Flask and psycopg service under the same gunicorn settings and client.

The API is the one of a whole stack, with its rate limit off. The planner is held (SIGSTOP), so that jobs stay submitted: what is
measured is the door, and a job can be cancelled at once. ``get_job`` and ``submit`` are measured in turns of their own: in a mix
of fixed shares the rates of its kinds stand in fixed proportion. Then the mix (90 % polls of jobs, 8 % of inputs, 2 % submits,
each followed by a cancel) runs for ``SECONDS`` over all its turns: of it are the latencies, the statuses and the memory. At last
an API with its rate limit on is asked as fast with one key: nothing but 200 and 429 may come. The client is a process of its own,
which costs some 0.2 ms of a core a request (``client_cpu_us``) and draws the ratios towards 1 where cores are few.
"""

from __future__ import annotations

import hashlib
import os
import signal
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import requests

from bench.support.api_load import Customer, Plan, Seen, apply_load
from bench.support.api_served import read_workers_mb, serve_beside
from bench.support.bare_api import DATABASE_URL, prepare_tables
from bench.support.rounds import ROUNDS, print_figures, say, take_turns
from config.settings import RATE_LIMIT
from tests.support.live_stack import MODEL, ROOT, LiveStack
from tests.support.spine import chat_rows

FULL_SECONDS = 60.0
SECONDS = float(os.environ.get("SECONDS", str(FULL_SECONDS)))
CONNECTIONS = 64
ROWS = 5
SEED = 20261203
MIX = {"get_job": 0.90, "get_input": 0.08, "submit": 0.02}
WARM_UP_SHARE, KIND_SHARE, LIMITED_SHARE = 0.05, 1 / 6, 1 / 12
"""Of ``SECONDS``: how long a warm-up lasts, a turn of one kind, and the look at the rate limit."""
PERCENTILES = 100
CATALOG = ROOT / "tests" / "support" / "models.test.toml"
ENVIRONMENT = {
    "ANEX_API_WORKERS": "2",
    "ANEX_SWEEP_SECONDS": "15",
}
"""What a stack for tests has otherwise than ``anex up``, set back."""
BARE = ("--config", "python:bench.support.bare_gunicorn", "bench.support.bare_api:make_app()")
SERVICE = ("--config", "python:api.gunicorn_conf", "api.wsgi:app")


@dataclass(slots=True)
class Side:
    """One service under load, and everything that was seen of it in the mix."""

    plan: Plan
    mixed: list[Seen] = field(default_factory=list)

    def rate(self, kind: str) -> float:
        """Return how many requests of one kind are answered in a second when nothing else is asked."""
        return apply_load(replace(self.plan, seconds=SECONDS * KIND_SHARE, mix={kind: 1.0})).per_second(kind)

    def mix(self, seconds: float = SECONDS / ROUNDS) -> float:
        """Apply the mix; return its requests a second."""
        seen = apply_load(replace(self.plan, seconds=seconds))
        self.mixed.append(seen)
        return sum(seen.per_second(kind) for kind in seen.statuses)

    def latency_ms(self, kind: str, percent: int) -> float:
        """Return a percentile of the mix, the median of its turns."""
        taken = [
            statistics.quantiles(seen.latencies_ms[kind], n=PERCENTILES)[percent - 1] for seen in self.mixed
        ]
        return round(statistics.median(taken), 1)

    def statuses(self) -> dict[str, int]:
        """Return how often each status came in the mix."""
        counted: Counter[str] = Counter()
        for seen in self.mixed:
            for each in seen.statuses.values():
                counted.update(each)
        return dict(counted)


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="anex-bench-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        stack = LiveStack(folder / "data", CATALOG, environment=ENVIRONMENT)
        stack.start()
        try:
            measure(stack, folder)
        finally:
            stack.flush_broker()  # the planner has missed thousands of doorbells
            stack.signal("--queues plan", signal.SIGCONT)
            stack.stop()


def measure(stack: LiveStack, folder: Path) -> None:
    """Take turns on one stack."""
    stack.signal("--queues plan", signal.SIGSTOP)
    customers = [make_customer(stack) for _ in range(CONNECTIONS)]
    work_url = stack.settings.require("database_work_url")
    prepare_tables(stack.settings.require("database_owner_url"), work_url)
    api = Side(
        Plan(f"http://127.0.0.1:{stack.settings.api_port}", SECONDS * WARM_UP_SHARE, MIX, customers, SEED)
    )
    with serve_beside(stack, folder / "bare.log", BARE, {DATABASE_URL: work_url}) as address:
        bare = Side(replace(api.plan, address=address))
        for side in (api, bare):
            apply_load(side.plan)
        rates = {
            kind: take_turns(partial(api.rate, kind), partial(bare.rate, kind))
            for kind in ("get_job", "submit")
        }
        memory = [read_workers_mb(stack)]

        def mix_api() -> float:
            rate = api.mix()
            memory.append(read_workers_mb(stack))
            return rate

        rates["mix"] = take_turns(mix_api, bare.mix)
    with serve_beside(stack, folder / "limited.log", SERVICE, {"ANEX_RATE_LIMIT": RATE_LIMIT}) as address:
        limited = Side(replace(api.plan, address=address, customers=customers[:1] * CONNECTIONS))
        limited.mix(SECONDS * LIMITED_SHARE)
    report(api, bare, rates, memory, limited)


def make_customer(stack: LiveStack) -> Customer:
    """Return a new organization with a key, a ready input and a job to poll."""
    stack.become_customer()
    upload = stack.call("POST", "/inputs", {"format": "jsonl"})
    sent = requests.post(
        upload["upload_url"], data=upload["fields"], files={"file": make_input()}, timeout=60
    )
    sent.raise_for_status()
    job = stack.call("POST", "/jobs", {"input_id": upload["id"], "model": MODEL})
    return Customer(stack.headers["Authorization"].partition(" ")[2], job["id"], upload["id"], MODEL)


def make_input() -> bytes:
    """Return the file that every job is submitted against."""
    return b"".join(chat_rows(ROWS))


def report(
    api: Side, bare: Side, rates: dict[str, list[float]], memory: list[dict[int, float]], limited: Side
) -> None:
    """Say what was seen, in words and as the line of JSON."""
    for kind, (ours, theirs) in rates.items():
        say(f"{kind}: {ours:.0f} a second, {theirs:.0f} of the bare service.")
    for name, side in (("The service", api), ("The bare one", bare)):
        told = ", ".join(
            f"{kind} {side.latency_ms(kind, 50)} and {side.latency_ms(kind, 99)} ms" for kind in MIX
        )
        say(f"{name} in the mix, p50 and p99: {told}; answers by status: {side.statuses()}.")
    say(f"Memory of each worker, before and after each turn of the mix, in MB by process: {memory}.")
    say(f"With the rate limit on, all with one key: {limited.statuses()}.")
    x_bare = {kind: round(ours / theirs, 3) for kind, (ours, theirs) in rates.items()}
    print_figures(
        get_job_x_bare=x_bare["get_job"],
        submit_x_bare=x_bare["submit"],
        mix_x_bare=x_bare["mix"],
        p99_ms=api.latency_ms("get_job", 99),
        bare_p99_ms=bare.latency_ms("get_job", 99),
        per_second={kind: [round(rate) for rate in pair] for kind, pair in rates.items()},
        p50_p99_ms={
            kind: [[side.latency_ms(kind, percent) for percent in (50, 99)] for side in (api, bare)]
            for kind in MIX
        },
        statuses=api.statuses(),
        limited_statuses=limited.statuses(),
        client_cpu_us=round(statistics.median(seen.client_cpu_us() for seen in api.mixed)),
        worker_mb=[sorted(each.values()) for each in memory],
        workers_replaced=len(memory[-1].keys() - memory[0].keys()),
        input=hashlib.sha256(make_input()).hexdigest()[:16],
        settings={
            "connections": CONNECTIONS,
            "mix": MIX,
            "rounds": ROUNDS,
            "seconds": SECONDS,
            "seed": SEED,
            **ENVIRONMENT,
        },
        quick=SECONDS < FULL_SECONDS,
    )


if __name__ == "__main__":
    main()
