"""Rows to requests, and answers to lines: the one thing about a run that differs between the kinds of models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from anex.ids import suffix_of
from anex.jobs.ahead import prepare_ahead
from anex.jobs.row_requests import make_chat_request
from anex.jobs.row_settings import input_terms_of, row_settings_of, video_fps_of
from anex.media.fetch import MediaFetcher, MediaUnavailable
from anex.rows.decisions import decisions_request, questions_key, read_decisions
from anex.rows.inputs import count_inputs
from anex.rows.media_requests import TooManyItems, check_items, engine_parts, has_hosted, media_options
from anex.rows.requests import PRIORITY_RUN, ChatTerms
from anex.rows.result import RowKey, bill_media, classify_answer, fail_answered, fail_row
from anex.rows.settings import row_format
from anex.rows.vectors import parts_request, read_vectors, texts_request, vector_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from anex.catalog import ModelSpec
    from anex.jobs.model import Job
    from anex.rows.chat import ChatRow
    from anex.rows.decide import DecideRow
    from anex.rows.embed import EmbedRow
    from anex.rows.inputs import InputTerms
    from anex.rows.result import RowOutcome
    from anex.services import EngineAnswer, EngineRequest, Services
    from anex.usage import Usage

TEXTS_TOGETHER_MAX = 64
"""Texts of one request: an engine takes up to its own batch at once, and an answer of wide vectors stays under 4 MB."""
TEXTS_TOGETHER_BYTES = 1 << 20

STATES_TOGETHER_MAX = 32
STATES_OPEN_MAX = 256
"""Rows that wait for others with their questions: a file that mixes a few sets of questions still fills requests."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to the engine for some rows."""

    row_numbers: tuple[int, ...]
    request: EngineRequest
    read: Callable[[EngineAnswer], list[RowOutcome] | None]
    """Make the rows' lines, in their order; None where the rows have to be asked for one by one."""
    split: Callable[[], list[Asked]]
    """Return a request for each row alone."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A row that no engine is asked for: its media can't be had, or are too many."""

    row_number: int
    outcome: RowOutcome


Prepared = Asked | Settled


class Asker(Protocol):
    """Makes the requests of one job's rows."""

    def ask(self, rows: Iterable[Any]) -> Iterator[Prepared | None]:
        """Yield what becomes of all of the rows, which are of the job's kind. None while media are awaited."""


def make_asker(services: Services, job: Job) -> Asker:
    """Return what asks for a job's rows."""
    spec = services.catalog.get(job.model)
    if spec.kind == "decide":
        return DecideAsker(job.id, spec)
    fetcher = MediaFetcher(services.outbound)
    inputs = input_terms_of(services, job)
    if spec.kind == "embed":
        return EmbedAsker(job, inputs, fetcher)
    cap = job.max_output_tokens or spec.output_max_tokens
    settings, fps = row_settings_of(job), video_fps_of(job)
    terms = ChatTerms(spec, settings, cap, job.reasoning_budget, PRIORITY_RUN, fps)
    return ChatAsker(job.id, terms, inputs, fetcher)


@dataclass(frozen=True, slots=True)
class ChatAsker:
    """Asks for each conversation by itself."""

    job_id: str
    terms: ChatTerms
    inputs: InputTerms
    fetcher: MediaFetcher

    def ask(self, rows: Iterable[ChatRow]) -> Iterator[Prepared | None]:
        """Yield a request a row; hosted media are fetched ahead."""
        return prepare_ahead(rows, self._prepare, lambda row: has_hosted(row.list_media()))

    def _prepare(self, row: ChatRow) -> Prepared:
        key = RowKey(suffix_of(self.job_id), row.row_number, row.custom_id)
        try:
            made = make_chat_request(self.terms, self.inputs, row, self.fetcher)
        except (MediaUnavailable, TooManyItems) as fault:
            return _settle(key, fault)
        wanted = row_format(self.terms.settings, row.response_format)

        def read(answer: EngineAnswer) -> list[RowOutcome]:
            outcome = classify_answer(key, self.terms.spec.id, answer.status, answer.body, wanted)
            return [bill_media(outcome, made.media)]

        return Asked((row.row_number,), made.request, read, list)


@dataclass(frozen=True, slots=True)
class EmbedAsker:
    """Asks for several texts at once, as long as they want vectors of one width; for rows with parts by themselves."""

    job: Job
    inputs: InputTerms
    fetcher: MediaFetcher

    def ask(self, rows: Iterable[EmbedRow]) -> Iterator[Prepared | None]:
        """Yield requests of up to ``TEXTS_TOGETHER_MAX`` rows."""
        return prepare_ahead(self._group(rows), self._prepare, _is_slow)

    def _group(self, rows: Iterable[EmbedRow]) -> Iterator[list[EmbedRow]]:
        open_rows: list[EmbedRow] = []
        size_bytes = 0
        for row in rows:
            row_bytes = len(row.input)
            full = len(open_rows) == TEXTS_TOGETHER_MAX or size_bytes + row_bytes > TEXTS_TOGETHER_BYTES
            if open_rows and (full or self._kind(row) != self._kind(open_rows[0])):
                yield open_rows
                open_rows, size_bytes = [], 0
            open_rows.append(row)
            size_bytes += row_bytes
        if open_rows:
            yield open_rows

    def _kind(self, row: EmbedRow) -> object:
        """Return what rows of one request have in common; a row with parts is unlike any other."""
        return self._width(row) if isinstance(row.input, str) else row.row_number + 0.5

    def _width(self, row: EmbedRow) -> int | None:
        return vector_width(self.inputs.media.spec, row.dimensions, self.job.dimensions)

    def _key(self, row: EmbedRow) -> RowKey:
        return RowKey(suffix_of(self.job.id), row.row_number, row.custom_id)

    def _prepare(self, rows: Sequence[EmbedRow]) -> Prepared:
        try:
            request = self._request(rows)
        except (MediaUnavailable, TooManyItems) as fault:
            return _settle(self._key(rows[0]), fault)
        spec = self.inputs.media.spec
        usages = [found.usage for found in count_inputs(self.inputs, rows)]
        read = partial(_read, spec.id, [self._key(row) for row in rows], usages)
        return Asked(tuple(row.row_number for row in rows), request, read, partial(self._split, list(rows)))

    def _request(self, rows: Sequence[EmbedRow]) -> EngineRequest:
        spec, width = self.inputs.media.spec, self._width(rows[0])
        texts = [row.input for row in rows if isinstance(row.input, str)]
        if texts:
            return texts_request(spec, texts, width, PRIORITY_RUN)
        [row] = rows
        media = row.list_media()
        check_items(spec, media)
        parts = engine_parts(row.input, self.fetcher)  # type: ignore[arg-type] # it is no text
        return parts_request(spec, parts, width, PRIORITY_RUN, media_options(spec, None, media))

    def _split(self, rows: list[EmbedRow]) -> list[Asked]:
        prepared = [self._prepare([row]) for row in rows]
        return [asked for asked in prepared if isinstance(asked, Asked)]


@dataclass(frozen=True, slots=True)
class DecideAsker:
    """Asks for several rows at once, as long as they are asked the same: an engine reads such rows in one pass."""

    job_id: str
    spec: ModelSpec

    def ask(self, rows: Iterable[DecideRow]) -> Iterator[Prepared | None]:
        """Yield requests of up to ``STATES_TOGETHER_MAX`` rows, in the order in which they are full."""
        for group in _group_by_questions(rows):
            yield self._prepare(group)

    def _prepare(self, rows: list[DecideRow]) -> Asked:
        keys = [RowKey(suffix_of(self.job_id), row.row_number, row.custom_id) for row in rows]
        request = decisions_request(self.spec, rows, PRIORITY_RUN)
        read = partial(_read_decided, self.spec.id, keys)
        return Asked(
            tuple(row.row_number for row in rows),
            request,
            read,
            lambda: [self._prepare([row]) for row in rows],
        )


def _group_by_questions(rows: Iterable[DecideRow]) -> Iterator[list[DecideRow]]:
    open_groups: dict[bytes, list[DecideRow]] = {}
    open_rows = 0
    for row in rows:
        key = questions_key(row)
        open_groups.setdefault(key, []).append(row)
        open_rows += 1
        if len(open_groups[key]) < STATES_TOGETHER_MAX:
            if open_rows < STATES_OPEN_MAX:
                continue
            key = next(iter(open_groups))
        open_rows -= len(open_groups[key])
        yield open_groups.pop(key)
    yield from open_groups.values()


def _is_slow(rows: Sequence[EmbedRow]) -> bool:
    return has_hosted(rows[0].list_media())


def _settle(key: RowKey, fault: MediaUnavailable | TooManyItems) -> Settled:
    kind = "media_error" if isinstance(fault, MediaUnavailable) else "invalid_request_error"
    return Settled(key.row_number, fail_row(key, fault.message, kind))  # type: ignore[arg-type] # both are kinds


def _read_decided(model_id: str, keys: Sequence[RowKey], answer: EngineAnswer) -> list[RowOutcome] | None:
    outcomes = read_decisions(answer.body, model_id, keys) if answer.status < 400 else None  # noqa: PLR2004 - HTTP's errors
    if outcomes is None and len(keys) == 1:
        return [fail_answered(keys[0], answer.status, answer.body)]
    return outcomes


def _read(
    model_id: str, keys: Sequence[RowKey], usages: Sequence[Usage], answer: EngineAnswer
) -> list[RowOutcome] | None:
    outcomes = read_vectors(answer.body, model_id, keys, usages) if answer.status < 400 else None  # noqa: PLR2004 - HTTP's errors
    if outcomes is None and len(keys) == 1:
        return [fail_answered(keys[0], answer.status, answer.body)]
    return outcomes
