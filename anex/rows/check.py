"""Check a whole input in one pass: faults, rows, spans, and the sample's candidates.

Memory does not grow with rows except by 8 bytes an id (``duplicates``), a few numbers a span, and the
reservoir's bound. A second pass over the file is needed only where two ids have one hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from anex.estimating.sample import SAMPLE_ROWS
from anex.rows.decode import collector_off, decode_cut, line_format
from anex.rows.duplicates import IdHashes, Suspects, find_duplicates
from anex.rows.envelope import OwnSettings
from anex.rows.faults import FaultList, RowRefused, describe_line
from anex.rows.format_verdicts import FormatVerdicts
from anex.rows.jsonl import LINE_MAX_BYTES, cut_line_blocks
from anex.rows.media import MediaTerms, check_media
from anex.rows.reservoir import Reservoir, Sample
from anex.rows.spans import Span, SpanCutter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from anex.catalog import ModelSpec
    from anex.rows.decode import DecodedBlock
    from anex.rows.envelope import RowClass
    from anex.rows.media_items import Hosted
    from anex.rows.settings import RowSettings
_encode = msgspec.json.Encoder().encode

PROGRESS_BYTES = 8 << 20
HOSTED_MAX = 48
"""Hosted clips of a job that are asked about: the first distinct ones."""
PLACED_AT_ONCE = 4096
VERDICTS_REMEMBERED = 4096
"""How many different settings of rows are judged once only; a file with more has some judged again."""


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """Bounds of an input (``services.Limits`` has the installation's)."""

    rows_max: int = 10_000_000
    line_max_bytes: int = LINE_MAX_BYTES
    faults_reported_max: int = 20
    sample_rows: int = SAMPLE_ROWS


@dataclass(frozen=True, slots=True)
class HostedClip:
    """A clip of unknown length, and the first row that carries it."""

    custom_id: str
    clip: Hosted


@dataclass(frozen=True, slots=True)
class Summary:
    """What one pass found. Spans, classes and sample mean something only where there are no faults.

    ``suspects`` with hashes ask for ``RowChecker.find_duplicates`` before the input may be called valid.
    """

    rows: int
    size_bytes: int
    spans: tuple[Span, ...]
    sample: Sample
    classes: tuple[RowClass, ...]
    """The classes that occurred; ``Stratum.class_index`` is a place in here."""
    class_rows: tuple[int, ...]
    """How many rows each class has."""
    faults: FaultList
    suspects: Suspects
    hosted: tuple[HostedClip, ...]
    """The first ``HOSTED_MAX`` distinct clips whose length only their hosts may know."""


@dataclass(frozen=True, slots=True)
class RowChecker:
    """Checks inputs for one job: its model, its settings, and a seed (the input's ETag) for the sample.

    ``find_grammar_fault`` is asked about each distinct well-formed ``response_format`` of a row; it returns
    why the grammar backend can't compile it, or None. What it raises ends the check.
    """

    spec: ModelSpec
    settings: RowSettings
    seed: str
    find_grammar_fault: Callable[[Mapping[str, Any]], str | None]
    limits: CheckLimits = field(default_factory=CheckLimits)
    media: MediaTerms | None = None
    """What decides about media, where it isn't the model alone."""

    def check_stream(
        self, blocks: Iterable[bytes], on_progress: Callable[[int, int], None] | None = None
    ) -> Summary:
        """Read the whole file, given as blocks cut anywhere, and return what it holds.

        ``on_progress(bytes, rows)`` is called every 8 MiB. Reading stops early only at too many rows.
        """
        check = _Pass(self)
        metered = _meter(blocks, check, on_progress)
        for block in cut_line_blocks(metered, line_max_bytes=self.limits.line_max_bytes):
            with collector_off():
                check.add_block(decode_cut(block, check.line_reader, self.limits.line_max_bytes))
            if check.rows > self.limits.rows_max:
                break
        return check.summarize()

    def find_duplicates(self, summary: Summary, blocks: Iterable[bytes]) -> None:
        """Read the file again where ids are suspected of repeating; add what is true to its faults."""
        if summary.suspects.hashes:
            find_duplicates(summary.suspects, self.iterate_ids(blocks), summary.faults)

    def iterate_ids(self, blocks: Iterable[bytes]) -> Iterator[tuple[str, int]]:
        """Yield (custom_id, line) of each good line of the file."""
        reader = line_format(self.spec)
        for block in cut_line_blocks(blocks, line_max_bytes=self.limits.line_max_bytes):
            decoded = decode_cut(block, reader)
            ids = [line.custom_id for line in decoded.lines]
            yield from zip(ids, decoded.numbers.tolist(), strict=True)


def _meter(
    blocks: Iterable[bytes], check: _Pass, on_progress: Callable[[int, int], None] | None
) -> Iterator[bytes]:
    """Count the bytes that pass, and report."""
    reported = 0
    for block in blocks:
        check.size_bytes += len(block)
        yield block
        if on_progress is not None and check.size_bytes - reported >= PROGRESS_BYTES:
            reported = check.size_bytes
            on_progress(check.size_bytes, check.rows)


class _Pass:
    """The state of one pass."""

    def __init__(self, checker: RowChecker) -> None:
        self.rows = 0
        self.size_bytes = 0
        self.line_reader = line_format(checker.spec)
        self._checker = checker
        self._faults = FaultList(checker.limits.faults_reported_max)
        self._spans = SpanCutter()
        self._ids = IdHashes()
        self._waiting: list[tuple[NDArray[np.int64], ...]] = []
        self._placed = 0
        self._reservoir = Reservoir(
            xxhash.xxh3_64_intdigest(checker.seed.encode()), checker.limits.sample_rows
        )
        self._class_places = {self.line_reader.classify(OwnSettings(), checker.settings): 0}
        self._class_rows = [0]
        self._verdicts: dict[bytes, int | str] = {}
        self._formats = FormatVerdicts(checker.find_grammar_fault)
        self._media_terms = checker.media or MediaTerms(checker.spec)
        self._hosted: dict[str, HostedClip] = {}

    def add_block(self, decoded: DecodedBlock[Any]) -> None:
        """Take the rows of a block."""
        classes, refused = self._classify(decoded)
        refused += self._check_media(decoded)
        self._add_faults(sorted(decoded.faults + refused) if refused else decoded.faults)
        if not decoded.lines:
            return
        self._ids.add_ids([line.custom_id for line in decoded.lines])
        self._waiting.append((decoded.starts, decoded.ends, decoded.numbers, classes))
        self.rows += len(decoded.lines)
        if self.rows - self._placed >= PLACED_AT_ONCE:
            self._place_rows()

    def _place_rows(self) -> None:
        """Put the rows that wait into spans and sample: what that costs a call is shared by many rows."""
        if not self._waiting:
            return
        starts, ends, numbers, classes = (
            np.concatenate(column) for column in zip(*self._waiting, strict=True)
        )
        self._waiting.clear()
        self._reservoir.add_rows(self._placed + 1, starts, ends, classes)
        self._spans.add_rows(starts, ends, numbers)
        self._placed = self.rows

    def _add_faults(self, faults: Iterable[tuple[int, str]]) -> None:
        """Note faults as (line, sentence), in the order of lines."""
        for _, sentence in faults:
            self._faults.add(sentence)

    def summarize(self) -> Summary:
        """Close the pass."""
        limits = self._checker.limits
        if self.rows > limits.rows_max:
            self._faults.add(f"The input has more than {limits.rows_max:,} rows. Split it over several jobs.")
        if self.rows == 0 and not self._faults:
            self._faults.add("The input has no rows.")
        self._place_rows()
        self._spans.close()
        return Summary(
            rows=self.rows,
            size_bytes=self.size_bytes,
            spans=tuple(self._spans.spans),
            sample=self._reservoir.draw(limits.sample_rows),
            classes=tuple(self._class_places),
            class_rows=tuple(self._class_rows),
            faults=self._faults,
            suspects=self._ids.find_suspects(),
            hosted=tuple(self._hosted.values()),
        )

    def _classify(self, decoded: DecodedBlock[Any]) -> tuple[NDArray[np.int64], list[tuple[int, str]]]:
        """Return the place of each row's class (0 where it sets nothing), and faults."""
        owners = self.line_reader.list_own_settings(decoded.lines)
        self._class_rows[0] += len(decoded.lines) - len(owners)
        classes = np.zeros(len(decoded.lines), dtype=np.int64)
        refused: list[tuple[int, str]] = []
        for place, own in owners:
            verdict = self._judge(own)
            if isinstance(verdict, str):
                number = int(decoded.numbers[place])
                refused.append((number, describe_line(number, verdict)))
            else:
                classes[place] = verdict
                self._class_rows[verdict] += 1
        return classes, refused

    def _check_media(self, decoded: DecodedBlock[Any]) -> list[tuple[int, str]]:
        """Return the faults of rows' media; note which clips their hosts may be asked about."""
        refused: list[tuple[int, str]] = []
        for place, parts in self.line_reader.list_media(decoded.lines):
            custom_id = decoded.lines[place].custom_id
            try:
                unknown = check_media(self._media_terms, custom_id, parts)
            except RowRefused as refusal:
                number = int(decoded.numbers[place])
                refused.append((number, refusal.describe(number)))
                continue
            for clip in unknown:
                if len(self._hosted) < HOSTED_MAX:
                    self._hosted.setdefault(clip.address, HostedClip(custom_id, clip))
        return refused

    def _judge(self, own: OwnSettings) -> int | str:
        """Return the place of a row's class, or why the row is refused. Equal settings are judged once."""
        digest = xxhash.xxh3_128_digest(_encode(own))
        verdict = self._verdicts.get(digest)
        if verdict is None:
            if len(self._verdicts) >= VERDICTS_REMEMBERED:
                self._verdicts.clear()
            verdict = self._verdicts[digest] = self._judge_anew(own)
        return verdict

    def _judge_anew(self, own: OwnSettings) -> int | str:
        fault = None if own.response_format is None else self._formats.judge(own.response_format)
        if fault is not None:
            return fault
        try:
            row_class = self.line_reader.classify(own, self._checker.settings)
        except RowRefused as refusal:
            return refusal.message
        place = self._class_places.setdefault(row_class, len(self._class_places))
        if place == len(self._class_rows):
            self._class_rows.append(0)
        return place
