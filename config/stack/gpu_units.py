"""GPU units on demand.

On a machine without a GPU an engine starts at the first work for its model and ends when it is idle, and at
most one runs at a time.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from config.stack.status import ServiceStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anex.regions import Region
    from config.stack.spec import ServiceSpec
    from config.stack.supervisor import Supervisor

_LOOK_SECONDS = 1.0
_IDLE_SECONDS = 5.0
"""How long a unit without work keeps its place from a model that waits: between two jobs it would start in vain."""
_PARDON_SECONDS = 30.0
"""How long a model whose unit failed gives way to other models that wait."""


class WantedUnit(NamedTuple):
    """A model that has work in a region."""

    region: Region
    model: str


class WaitingModels:
    """The models that have work now, looked up in a thread: a slow database never holds up the supervisor.

    ``find`` may raise anything: while the database restarts, nobody waits.
    """

    def __init__(self, find: Callable[[], Sequence[WantedUnit]], say: Callable[[str], None]) -> None:
        self._find = find
        self._say = say
        self._models: tuple[WantedUnit, ...] = ()
        self._last_fault = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="waiting-models", daemon=True)
        self._thread.start()

    def __call__(self) -> tuple[WantedUnit, ...]:
        """Return the models found last, those that have waited longest first."""
        return self._models

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join(timeout=_LOOK_SECONDS)

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                self._models = tuple(self._find())
                self._last_fault = ""
            except Exception as fault:  # noqa: BLE001 - whatever it is, the stack must live on
                self._models = ()
                self._note(f"{type(fault).__name__}: {fault}")

    def _note(self, fault: str) -> None:
        if fault != self._last_fault:
            self._last_fault = fault
            self._say(f"gpu        cannot see which models have work ({fault})")


class UnitsOnDemand:
    """Starts the unit of a model that has work when a place is free; ``tick`` is the supervisor's."""

    def __init__(
        self,
        supervisor: Supervisor,
        waiting: Callable[[], Sequence[WantedUnit]],
        describe: Callable[[WantedUnit], ServiceSpec],
        *,
        units_max: int = 1,
        idle_seconds: float = _IDLE_SECONDS,
        always_shown: Sequence[ServiceStatus] = (),
    ) -> None:
        self._supervisor = supervisor
        self._waiting = waiting
        self._describe = describe
        self._units_max = units_max
        self._idle_seconds = idle_seconds
        self._always_shown = tuple(always_shown)
        self._places: dict[WantedUnit, str] = {}
        self._pardoned_at: dict[WantedUnit, float] = {}
        self._worked_at: dict[WantedUnit, float] = {}

    def tick(self) -> None:
        """Free the places of units that ended, give way to models that wait, fill free places."""
        waiting = list(self._waiting())
        self._places = {model: name for model, name in self._places.items() if self._supervisor.has(name)}
        self._drop_failed(waiting)
        self._drop_idle(waiting)
        line = [model for model in waiting if model not in self._places]
        line.sort(key=lambda model: self._pardoned_at.get(model, 0.0) > time.monotonic())
        while line and len(self._places) < self._units_max:
            self._start(line.pop(0))
        self._supervisor.show_others(
            [*self._always_shown, *(self._describe_waiting(model) for model in line)]
        )

    def _start(self, model: WantedUnit) -> None:
        spec = self._describe(model)
        self._supervisor.add(spec)
        self._places[model] = spec.name
        self._worked_at[model] = time.monotonic()

    def _drop_idle(self, waiting: list[WantedUnit]) -> None:
        """Let a unit whose model has had no work for a while make room for one that has."""
        now = time.monotonic()
        self._worked_at.update((model, now) for model in waiting if model in self._places)
        others = sum(model not in self._places for model in waiting)
        free = self._units_max - len(self._places)
        for model, name in list(self._places.items()):
            if others > free and now - self._worked_at[model] >= self._idle_seconds:
                self._supervisor.remove(name)
                del self._places[model]
                free += 1

    def _drop_failed(self, waiting: list[WantedUnit]) -> None:
        """Let a unit that failed keep its place only while its model has work and no other waits."""
        for model, name in list(self._places.items()):
            others_wait = any(other not in self._places for other in waiting)
            failed = self._supervisor.states()[name] == "restarting"
            if failed and (others_wait or model not in waiting):
                self._supervisor.remove(name)
                del self._places[model]
                self._pardoned_at[model] = time.monotonic() + _PARDON_SECONDS

    def _describe_waiting(self, model: WantedUnit) -> ServiceStatus:
        holders = ", ".join(self._places.values())
        return ServiceStatus(
            name=self._describe(model).name,
            state="waiting",
            detail=f"has work; starts when {holders} has none left",
        )
