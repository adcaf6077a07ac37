"""The fake engine's failure switches: what goes wrong, when, and how it is set from outside.

Every fault of a real engine that the pipeline must survive has a switch here. They are set by a flag at the
start or through ``POST /fake/switches`` at run time; a field left out keeps its value.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

CRASH_EXIT_CODE = 70
"""Exit code of a provoked crash, so that a log shows that it was wanted."""


class SwitchUnknown(ValueError):
    """A switch name or a value's type that the fake engine does not have."""


@dataclass(slots=True)
class Switches:
    """Current faults; the defaults are a healthy engine."""

    delay_seconds: float = 0.0
    """Wait this long before each answer, on top of the simulated speed."""
    slow_step_seconds: float = 0.0
    """Make each decode step this much longer: an engine that works, but too slowly."""
    length_factor: float = 1.0
    """Multiply drawn answer lengths: answers longer than the sample promised."""
    crash_at_request: int = 0
    """Die when this many requests have arrived, counted from the start; 0 is never."""
    poison_text: str = ""
    """Die on every request whose body holds this text; empty is never."""
    hang: bool = False
    """Accept requests and never answer: no token is made and the counters stand still."""
    fail_requests: int = 0
    """Answer 500 to this many of the next requests."""
    cut_requests: int = 0
    """Cut the connection of this many of the next requests without an answer."""
    unhealthy: bool = False
    """Answer 503 on ``/health`` while serving goes on."""

    def update(self, changes: Mapping[str, Any]) -> None:
        """Set the named switches, all or none. Raises ``SwitchUnknown``."""
        types = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        for name, value in changes.items():
            if name not in types:
                raise SwitchUnknown(f"no switch {name!r}; there are: {', '.join(types)}")
            if not _fits(value, types[name]):
                raise SwitchUnknown(f"switch {name!r} takes {types[name].__name__}, not {value!r}")
        for name, value in changes.items():
            setattr(self, name, types[name](value))

    def as_dict(self) -> dict[str, Any]:
        """Return all switches by name."""
        return asdict(self)

    def take_failure(self) -> bool:
        """Whether this request is to be answered with 500; uses up one of ``fail_requests``."""
        if self.fail_requests <= 0:
            return False
        self.fail_requests -= 1
        return True

    def take_cut(self) -> bool:
        """Whether this request's connection is to be cut; uses up one of ``cut_requests``."""
        if self.cut_requests <= 0:
            return False
        self.cut_requests -= 1
        return True

    def crash_if_due(self, requests_seen: int, body: bytes) -> None:
        """End the process at once, as a segmentation fault would, when a crash switch says so."""
        poisoned = bool(self.poison_text) and self.poison_text.encode() in body
        if poisoned or (self.crash_at_request and requests_seen >= self.crash_at_request):
            os._exit(CRASH_EXIT_CODE)


def _fits(value: Any, kind: type) -> bool:
    """Whether a JSON value suits a switch of this type: an int passes for a float, a bool for neither."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)
