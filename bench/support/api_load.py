"""The load of an API, in a process of its own: so many keep-alive connections, each of which asks again as soon as it is answered.

It reads a plan (``Plan`` as JSON) from standard input and writes what it saw as one line of JSON. A process of its own shares no
interpreter lock with what is measured, but it does share the machine: what it costs of a core (``Seen.client_cpu_seconds``) it
costs on either side, and so draws every ratio towards 1.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

REQUEST_TIMEOUT_SECONDS = 60.0
_OK = 200


@dataclass(frozen=True, slots=True)
class Customer:
    """Whose connection it is: a key, and what it asks for."""

    key: str
    job_id: str
    input_id: str
    model: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send: ``mix`` weighs the kinds ``get_job``, ``get_input`` and ``submit``; each customer has one connection."""

    address: str
    seconds: float
    mix: dict[str, float]
    customers: list[Customer]
    seed: int


@dataclass(slots=True)
class Seen:
    """What came back. A ``submit`` is followed by a ``cancel``, or the queue for approval would be full."""

    seconds: float = 0.0
    client_cpu_seconds: float = 0.0
    statuses: dict[str, dict[str, int]] = field(default_factory=dict)
    """By kind: how often each status came, or ``broken`` where the connection broke."""
    latencies_ms: dict[str, list[float]] = field(default_factory=dict)
    """Of the answers, by kind."""

    def note(self, kind: str, status: str) -> None:
        """Count what became of one request."""
        counts = self.statuses.setdefault(kind, {})
        counts[status] = counts.get(status, 0) + 1

    def client_cpu_us(self) -> float:
        """Return what a request cost the client itself, in microseconds of a core."""
        return self.client_cpu_seconds * 1e6 / sum(sum(each.values()) for each in self.statuses.values())

    def per_second(self, kind: str) -> float:
        """Return how many requests of a kind were answered with 200 in a second."""
        return self.statuses[kind].get(str(_OK), 0) / self.seconds


def apply_load(plan: Plan) -> Seen:
    """Run the plan in a process of its own; return what it saw."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(asdict(plan)).encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=plan.seconds + 2 * REQUEST_TIMEOUT_SECONDS,
    )
    return Seen(**json.loads(done.stdout))


async def _run(plan: Plan) -> Seen:
    seen = Seen()
    connector = TCPConnector(limit=len(plan.customers))
    timeout = ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
    async with ClientSession(f"{plan.address}/batch/v1/", connector=connector, timeout=timeout) as session:
        began, cpu_before = time.perf_counter(), time.process_time()
        connections = (
            _Connection(session, plan, place, seen).run(began + plan.seconds)
            for place in range(len(plan.customers))
        )
        await asyncio.gather(*connections)
        seen.seconds, seen.client_cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_before
    return seen


class _Connection:
    """One customer's requests, one after the other."""

    def __init__(self, session: ClientSession, plan: Plan, place: int, seen: Seen) -> None:
        customer = plan.customers[place]
        self._session, self._customer, self._seen = session, customer, seen
        self._chance = random.Random(plan.seed + place)  # noqa: S311 - load, no secret
        self._kinds, self._weights = list(plan.mix), list(plan.mix.values())
        self._headers = {"Authorization": f"Bearer {customer.key}"}
        self._submission = {"input_id": customer.input_id, "model": customer.model, "max_output_tokens": 16}

    async def run(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            kind = self._chance.choices(self._kinds, self._weights)[0]
            if kind == "submit":
                await self._submit()
            elif kind == "get_input":
                await self._ask(kind, "GET", f"inputs/{self._customer.input_id}")
            else:
                await self._ask(kind, "GET", f"jobs/{self._customer.job_id}")

    async def _submit(self) -> None:
        job = await self._ask("submit", "POST", "jobs", self._submission)
        if job is not None:
            await self._ask("cancel", "POST", f"jobs/{job['id']}/cancel")

    async def _ask(self, kind: str, method: str, path: str, body: Any = None) -> dict[str, Any] | None:
        began = time.perf_counter()
        try:
            async with self._session.request(method, path, json=body, headers=self._headers) as answer:
                content = await answer.read()
        except (ClientError, TimeoutError):
            self._seen.note(kind, "broken")
            return None
        self._seen.latencies_ms.setdefault(kind, []).append(round((time.perf_counter() - began) * 1000, 3))
        self._seen.note(kind, str(answer.status))
        if answer.status != _OK:
            return None
        found: dict[str, Any] = json.loads(content)
        return found


def _main() -> None:
    told = json.load(sys.stdin)
    told["customers"] = [Customer(**each) for each in told["customers"]]
    seen = asyncio.run(_run(Plan(**told)))
    sys.stdout.write(json.dumps(asdict(seen)) + "\n")


if __name__ == "__main__":
    _main()
