"""The fake engine's speed: continuous batching, simulated by events instead of steps.

Model: at most ``max_num_seqs`` sequences run; a decode step costs ``base + per_sequence * running`` seconds
and makes one token for each; the rest wait by (priority, arrival). All running sequences advance together, so one
number, the steps made so far, places every one of them: a sequence admitted at step s ends at step s + its
tokens. Only arrivals, ends and aborts cost work here, whatever the lengths. With both costs 0 every answer is
instant.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engines.fake_switches import Switches

HANG_LOOK_SECONDS = 0.05
"""How often a hanging engine looks whether it may go on, and a working one whether it must hang."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of one decode step: ``base_seconds + sequence_seconds * running``."""

    base_seconds: float = 0.0
    sequence_seconds: float = 0.0
    max_num_seqs: int = 256


@dataclass(eq=False, slots=True)
class _Sequence:
    """One request's decoding; ``end_step`` is set when it is admitted, ``writers`` is 0 for an embedding."""

    steps: int
    writers: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    end_step: float = 0.0
    admitted: bool = False
    aborted: bool = False


class Schedule:
    """Decides when each request's answer is complete, and counts tokens as they are made."""

    def __init__(self, speed: Speed, switches: Switches, monotonic: Callable[[], float]) -> None:
        self._speed = speed
        self._switches = switches
        self._monotonic = monotonic
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, _Sequence]] = []
        self._ends: list[tuple[float, int, _Sequence]] = []
        self._waiting_count = 0
        self._running_count = 0
        self._writing_count = 0
        self._steps = 0.0
        self._tokens_made = 0.0
        self._advanced_at = monotonic()
        self._changed = asyncio.Event()

    @property
    def running(self) -> int:
        """Sequences being decoded."""
        return self._running_count

    @property
    def waiting(self) -> int:
        """Sequences accepted and not yet decoded."""
        return self._waiting_count

    def tokens_made(self) -> int:
        """Tokens generated since the start, those of unfinished and aborted sequences included."""
        self._advance()
        return round(self._tokens_made)

    async def decode(self, tokens: int, priority: int = 0) -> None:
        """Return when ``tokens`` tokens have been made; cancellation frees the place at once.

        With 0 tokens (an embedding) the request takes one step and makes none.
        """
        self._advance()  # idle time before the arrival must not be spent on it
        sequence = _Sequence(max(tokens, 1), min(tokens, 1))
        heapq.heappush(self._waiting, (priority, next(self._order), sequence))
        self._waiting_count += 1
        self._changed.set()
        try:
            await sequence.ended.wait()
        except asyncio.CancelledError:
            self._abort(sequence)
            raise

    async def run(self) -> None:
        """Advance for ever: sleep until the next end, or until something changes."""
        while True:
            self._advance()
            pause = self._seconds_to_next_end()
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), pause)
            except TimeoutError:
                continue

    def _seconds_to_next_end(self) -> float | None:
        if self._switches.hang:
            return HANG_LOOK_SECONDS
        if not self._ends:
            return None
        return min(max(self._ends[0][0] - self._steps, 0.0) * self._step_seconds(), HANG_LOOK_SECONDS)

    def _step_seconds(self) -> float:
        base = self._speed.base_seconds + self._switches.slow_step_seconds
        return base + self._speed.sequence_seconds * self._running_count

    def _advance(self) -> None:
        """Bring the steps up to now: spend the elapsed time event by event, admitting at each end."""
        now = self._monotonic()
        left = now - self._advanced_at
        self._advanced_at = now
        if self._switches.hang:
            return
        self._admit()
        while self._ends:
            step_seconds = self._step_seconds()
            gap = self._ends[0][0] - self._steps
            if gap * step_seconds > left:
                self._make_steps(left / step_seconds)
                return
            left -= gap * step_seconds
            self._make_steps(gap)
            self._end_first()
            self._admit()

    def _make_steps(self, steps: float) -> None:
        self._steps += steps
        self._tokens_made += steps * self._writing_count

    def _end_first(self) -> None:
        _, _, sequence = heapq.heappop(self._ends)
        if not sequence.aborted:
            self._leave(sequence)
            sequence.ended.set()

    def _leave(self, sequence: _Sequence) -> None:
        self._running_count -= 1
        self._writing_count -= sequence.writers

    def _admit(self) -> None:
        while self._waiting and self._running_count < self._speed.max_num_seqs:
            _, order, sequence = heapq.heappop(self._waiting)
            if sequence.aborted:
                continue
            sequence.admitted = True
            sequence.end_step = self._steps + sequence.steps
            self._waiting_count -= 1
            self._running_count += 1
            self._writing_count += sequence.writers
            heapq.heappush(self._ends, (sequence.end_step, order, sequence))

    def _abort(self, sequence: _Sequence) -> None:
        """Free the place; the heap entry stays behind, marked, until it comes up."""
        if sequence.ended.is_set():
            return
        self._advance()
        if sequence.ended.is_set():
            return
        sequence.aborted = True
        if sequence.admitted:
            self._leave(sequence)
        else:
            self._waiting_count -= 1
        self._changed.set()
