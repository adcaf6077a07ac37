"""What a unit's parent tells the database of its unit, and asks it.

A database or a broker that is away is never a reason to end or to restart anything: it is told next time, and what it can't answer
is taken as the answer that changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog

from anex.errors import BrokerUnavailable, DatabaseUnavailable
from anex.units.model import EngineState
from anex.units.speed import note_start
from anex.units.store import (
    delete_dead_units,
    delete_unit,
    has_work,
    is_deaf,
    note_heartbeat,
    return_leases,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from anex.db import Transaction
    from anex.services import Services
    from anex.units.model import Unit

T = TypeVar("T")

log = structlog.get_logger(__name__)


class UnitRecord:
    """One unit's row and leases."""

    def __init__(self, services: Services, unit: Unit) -> None:
        self._services = services
        self._unit = unit

    def begin(self, detail: str) -> None:
        """Register the unit, and forget those that died long ago."""
        self._try(delete_dead_units)
        self.tell(EngineState.STARTING, detail)

    def tell(self, state: EngineState, detail: str) -> None:
        """Say that the unit lives, and how its engine is."""
        self._try(lambda transaction: note_heartbeat(transaction, self._unit, state, detail))

    def note_start(self, seconds: float) -> None:
        """Say how long the engine took to be ready."""
        self._try(lambda transaction: note_start(transaction, self._unit, seconds))

    def return_leases(self) -> None:
        """Give back what the slots of a dead worker held: it need not wait for the leases to run out."""
        self._try(lambda transaction: return_leases(transaction, self._unit.id))

    def end(self) -> None:
        """Give back what is still held, and forget the unit."""
        self.return_leases()
        self._try(lambda transaction: delete_unit(transaction, self._unit.id))

    def has_work(self) -> bool:
        """Whether the unit has something to do; yes where nobody can tell."""
        return self._try(lambda transaction: has_work(transaction, self._unit)) is not False

    def is_deaf(self) -> bool:
        """Whether chunks wait and the run worker does not look for them, although the broker answers; no where nobody can tell."""
        quiet_seconds = self._services.timings.worker_alive_seconds
        if not self._try(lambda transaction: is_deaf(transaction, self._unit, quiet_seconds)):
            return False
        try:
            self._services.dispatcher.run_queue_length(self._unit.model_queue)
        except BrokerUnavailable:
            return False
        return True

    def _try(self, act: Callable[[Transaction], T]) -> T | None:
        try:
            with self._services.database.transaction() as transaction:
                return act(transaction)
        except DatabaseUnavailable:
            log.warning("unit_not_recorded", unit=self._unit.id)
            return None
