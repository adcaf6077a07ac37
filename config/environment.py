"""Reads variables one by one and gathers the faults: the machinery under ``config.settings``."""

from __future__ import annotations

import difflib
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from anex.errors import AnexError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from anex.services import Limits, Timings

PREFIX = "ANEX_"

T = TypeVar("T")


class SettingsInvalid(AnexError):
    """The environment cannot be used; ``faults`` holds one sentence for each variable."""

    code = "invalid_settings"

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class EnvironmentReader:
    """Reads variables one by one, remembers which it knows and gathers the faults.

    A variable that is set to nothing counts as not set: compose files pass variables on that way.
    """

    def __init__(self, environ: Mapping[str, str], stack_file: Path, known: Sequence[str]) -> None:
        self.faults: list[str] = []
        self._known = set(known)
        self._values = _read_stack_file(stack_file, self.faults)
        self._values.update((name, value) for name, value in environ.items() if value)

    def read(self, name: str, parse: Callable[[str], T], expected: str, default: Any) -> Any:
        """Return the parsed variable; on a ``ValueError`` note a fault that shows the value."""
        return self._parse(name, parse, expected, default, shown=True)

    def secret(self, name: str, parse: Callable[[str], T], expected: str, default: Any) -> Any:
        """Like ``read``, but the fault does not show what the variable holds."""
        return self._parse(name, parse, expected, default, shown=False)

    def _parse(
        self, name: str, parse: Callable[[str], T], expected: str, default: Any, *, shown: bool
    ) -> Any:
        variable = PREFIX + name
        self._known.add(variable)
        text = self._values.get(variable)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError:
            held = repr(text) if shown else "something else (not shown)"
            self.faults.append(f"{variable} holds {held}; expected is {expected}")
            return default

    def address(self, name: str, schemes: Sequence[str]) -> str | None:
        """Return a URL with one of ``schemes`` and a host. It may hold a password, so it is never shown."""

        def parse(text: str) -> str:
            parts = urlsplit(text)
            if parts.scheme not in schemes or not parts.netloc:
                raise ValueError
            return text

        expected = " or ".join(f"{scheme}://…" for scheme in schemes)
        address: str | None = self.secret(name, parse, expected, None)
        return address

    def choice(self, name: str, choices: Sequence[str], default: str) -> Any:
        """Return one of ``choices``."""

        def parse(text: str) -> str:
            if text not in choices:
                raise ValueError
            return text

        return self.read(name, parse, "one of " + ", ".join(choices), default)

    def count(self, name: str, default: int) -> int:
        """Return a whole number above 0."""
        count: int = self.read(name, _parse_count, "a whole number above 0", default)
        return count

    def number(self, name: str, default: float) -> float:
        """Return a finite number above 0."""
        number: float = self.read(name, _parse_number, "a number above 0", default)
        return number

    def number_or_zero(self, name: str, default: float) -> float:
        """Return a finite number, 0 or more."""
        number: float = self.read(name, _parse_number_or_zero, "a number, 0 or more", default)
        return number

    def numbers_of(self, bag: type[Timings | Limits]) -> dict[str, Any]:
        """Read one variable for each field of a bag of numbers."""
        return {name: self._number_like(name.upper(), default) for name, default in asdict(bag()).items()}

    def _number_like(self, name: str, default: Any) -> Any:
        """Return what a variable holds in the form of its default: a whole number, one with a fraction, or several."""
        if isinstance(default, tuple):
            return self.read(name, _parse_numbers, "numbers above 0, separated by commas", default)
        return self.count(name, default) if isinstance(default, int) else self.number(name, default)

    def check_names(self) -> None:
        """Note every ``ANEX_`` variable that nothing has read: a misspelt setting must not be ignored."""
        for name in sorted(self._values):
            if name.startswith(PREFIX) and name not in self._known:
                close = difflib.get_close_matches(name, self._known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self.faults.append(f"{name} is not a setting{hint}")


def _read_stack_file(path: Path, faults: list[str]) -> dict[str, str]:
    """Read ``KEY=VALUE`` lines, values as they stand; blank lines and lines that begin with # say nothing."""
    if not path.is_file():
        return {}
    values = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator:
            faults.append(f"{path}, line {number}: expected is KEY=VALUE")
        values[key.strip()] = value
    return {key: value for key, value in values.items() if value}


def _parse_count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def _parse_number(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and number > 0):
        raise ValueError
    return number


def _parse_numbers(text: str) -> tuple[float, ...]:
    return tuple(_parse_number(number) for number in text.split(","))


def _parse_number_or_zero(text: str) -> float:
    return 0.0 if float(text) == 0 else _parse_number(text)
