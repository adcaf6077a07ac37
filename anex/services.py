"""The one bag that is passed around, and the ports behind which the outside world stands.

Use cases take a ``Services`` as their first argument and nothing else from outside: no module-level clients,
no environment. ``config.wiring`` fills the bag; tests fill it with real servers and, where a port has one,
a fake that passes the same conformance suite as the real thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from anex.catalog import Catalog, ModelSpec
    from anex.clock import Clock
    from anex.db import Database
    from anex.jobs.model import Step
    from anex.media.clips import ClipReader
    from anex.objects import ObjectStore
    from anex.outbound import Outbound
    from anex.rows.decide import DecideRow
    from anex.sealing import Sealer


class Dispatcher(Protocol):
    """Rings doorbells. Every ring may be lost, late or twice: Postgres is the truth.

    A ring never raises: the sweeper rings again what stays undone (ARCHITECTURE.md, rule 1).
    """

    def ring_step(self, job_id: str, step: Step, model_queue: str) -> None:
        """Ask for the plan of a job from ``step`` on."""

    def ring_spans(self, job_id: str, span_count: int) -> None:
        """Ask for ``span_count`` token-counting messages of a job."""

    def ring_copy(self, input_id: str) -> None:
        """Ask for the copy of an input from its source URL."""

    def ring_deliveries(self, *, again: bool, after_seconds: float = 0.0) -> None:
        """Say, now or within a minute, that something is due in one lane of deliveries: first attempts, or the rest (``again``)."""

    def deliveries_queue_length(self, *, again: bool) -> int:
        """Messages waiting on the queue of a lane of deliveries. Raises ``BrokerUnavailable``."""

    def ring_model(self, model_queue: str, count: int = 1) -> None:
        """Say ``count`` times "there is work" on a model's run queue."""

    def run_queue_length(self, model_queue: str) -> int:
        """Messages waiting on a model's run queue. Raises ``BrokerUnavailable``."""


class Conversation(NamedTuple):
    """Messages as a chat template reads them, and the template's further variables."""

    messages: Sequence[Mapping[str, Any]]
    template_kwargs: Mapping[str, Any]


class TokenCounter(Protocol):
    """Counts what one model's engine will report as ``usage.prompt_tokens``."""

    def count_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any],
        *,
        opens_answer: bool = True,
    ) -> int:
        """Tokens of the rendered conversation, by default with the generation prompt. Of media the template's own marks only."""

    def count_chats(self, conversations: Sequence[Conversation]) -> list[int]:
        """Tokens of each conversation, the generation prompt included: counted together they are counted faster."""

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as an embedding engine reads it, special tokens included."""


class DecisionCounter(Protocol):
    """Counts what one decision model's engine will report as ``usage.input_tokens``."""

    def count_decisions(self, rows: Sequence[DecideRow]) -> list[int]:
        """Tokens of each row, after the cut and with the checkpoint that reads it; 0 for a row that the model refuses."""


class TokenCounters(Protocol):
    """Hands out one counter a model; at most two tokenizers live in a process."""

    def for_model(self, spec: ModelSpec) -> TokenCounter:
        """Return a chat or embedding model's counter. Raises ``ModelFilesMissing`` when its files were never pulled."""

    def for_decisions(self, spec: ModelSpec) -> DecisionCounter:
        """Return a decision model's counter. Raises ``ModelFilesMissing`` when its files were never pulled."""


class Grammar(Protocol):
    """Says what the engine's grammar backend can compile, without putting an engine or this process at risk."""

    def find_fault(self, response_format: Mapping[str, Any]) -> str | None:
        """Return why a well-formed ``response_format`` can't be compiled, None when it can. Raises ``GrammarBusy``."""

    def close(self) -> None:
        """End what was started for it."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request to an engine: the path of its HTTP surface and the encoded JSON body."""

    path: str
    body: bytes
    rows: int = 1
    """How many rows it is for: short texts are embedded side by side."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What an engine answered: HTTP status and raw body, 4xx and 5xx included."""

    status: int
    body: bytes


class Engine(Protocol):
    """A running model server (vLLM, laya or the fake), reached over its Unix socket.

    One client serves a whole worker process and may be used from any thread. It bounds rows in flight and request bytes
    (``submit`` blocks while the budget is used up), so that memory does not grow with the job.
    """

    def submit(
        self, request: EngineRequest, meanwhile: Callable[[], bool] | None = None
    ) -> Future[EngineAnswer]:
        """Start one request; blocks for budget.

        While it blocks, ``meanwhile`` is called every half second or so; its True ends the wait with ``WaitEnded``.
        The future raises ``EngineGone`` when the engine died or cut the connection before answering, and
        ``CancelledError`` after ``abort``.
        """

    def alone(self, meanwhile: Callable[[], bool] | None = None) -> AbstractContextManager[None]:
        """Let this thread's requests, and no other's of this process, in for the block; begins when nothing is in flight.

        ``meanwhile`` is called as ``submit`` does. Entering raises ``WaitEnded`` and ``EngineGone``.
        """

    def abort(self, futures: Sequence[Future[EngineAnswer]]) -> None:
        """Give up on requests in flight; the engine stops computing them."""

    def progress(self) -> int:
        """Return a counter that grows while the engine works: tokens in, tokens out and finished requests."""

    def in_flight(self) -> int:
        """Return the number of rows whose requests were started and are not yet answered."""

    def is_ready(self) -> bool:
        """Whether the engine answers its health check now."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Every duration the core waits for or promises, in seconds. Tests use short ones."""

    lease_seconds: float = 90.0
    heartbeat_seconds: float = 20.0
    sweep_seconds: float = 15.0
    ring_backoff_seconds: float = 15.0
    ring_backoff_max_seconds: float = 600.0
    drain_seconds: float = 30.0
    checkpoint_seconds: float = 60.0
    row_retry_seconds: float = 1.0
    """Before a row is asked again that the engine failed; twice as long each time."""
    upload_window_seconds: int = 3600
    upload_grace_seconds: int = 3600
    approval_window_seconds: int = 24 * 3600
    input_retention_seconds: int = 7 * 24 * 3600
    result_retention_seconds: int = 30 * 24 * 3600
    attempt_retention_seconds: int = 30 * 24 * 3600
    """Of what came of deliveries."""
    purge_seconds: float = 600.0
    """Between two looks for what is too old."""
    result_link_seconds: int = 3600
    estimate_stall_seconds: int = 2 * 3600
    worker_alive_seconds: float = 60.0
    source_probe_seconds: float = 3.0
    copy_seconds: float = 3600.0
    copy_idle_seconds: float = 30.0
    copy_retry_seconds: float = 0.5
    delivery_seconds: float = 15.0
    """For one attempt, from the name's look-up to the answer."""
    delivery_retry_seconds: tuple[float, ...] = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 28_800.0, 28_800.0)
    """Between attempts, give or take a tenth; after the last one a delivery is given up."""
    endpoint_patience_seconds: int = 5 * 24 * 3600
    """After which time without one success a webhook endpoint is disabled."""
    previous_secret_seconds: int = 24 * 3600
    """How long the secret before the present one signs too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Every bound of the contract that is not a model's own."""

    input_max_bytes: int = 1 << 30
    rows_max: int = 10_000_000
    line_max_bytes: int = 400 << 20
    first_look_bytes: int = 64 << 10
    jobs_awaiting_approval_max: int = 10
    sampled_rows_per_day: int = 100_000
    faults_reported_max: int = 20
    output_tokens_max: int = 32_768
    copy_attempts_max: int = 8
    organization_copies_max: int = 2
    """Under way at a time in one region, so that slow sources of one organization leave threads for the others' copies."""
    host_deliveries_max: int = 4
    """Under way to one host at a time in one region."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a use case may touch."""

    catalog: Catalog
    database: Database
    objects: ObjectStore
    dispatcher: Dispatcher
    counters: TokenCounters
    grammar: Grammar
    outbound: Outbound
    clips: ClipReader
    sealer: Sealer
    clock: Clock
    timings: Timings
    limits: Limits
    region: str
