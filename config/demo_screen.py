"""What the demo shows: stages with their durations, one live line while it waits, answers, and money."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_INDENT = 2


class Screen:
    """Writes for people: on a terminal with a line that moves, elsewhere with a line for each change."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, markup=False, highlight=False, soft_wrap=True)
        self.durations: list[tuple[str, float]] = []
        """The finished stages and their seconds, in order."""

    def say(self, line: str = "", style: str = "") -> None:
        """Write a line."""
        self._console.print(line, style=style or None)

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Head what follows with ``title``; when it ends well, say and keep how long it took."""
        self.say(f"\n{title}", style="bold")
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        self.durations.append((title, seconds))
        self.say(f"  done in {seconds:.1f} s", style="green")

    @contextmanager
    def follow(self) -> Iterator[Callable[[str], None]]:
        """Give a function that shows where a wait stands; say only what changes, it adds the time itself."""
        if not self._console.is_terminal:
            yield _PlainLine(self.say)
            return
        begun = time.monotonic()
        with self._console.status("") as live:
            yield lambda text: live.update(
                Text(f"{time.monotonic() - begun:.0f} s  {text}", no_wrap=True, overflow="ellipsis")
            )

    def show_answers(self, answers: Sequence[tuple[str, str, str]]) -> None:
        """Show answers as (custom_id, prompt, answer)."""
        for row_id, prompt, answer in answers:
            self.say(f"\n  {row_id}", style="bold")
            self._indent(Text(prompt, style="dim"))
            self._indent(Text(f"→ {answer}"))

    def show_table(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Show (what, figure, remark) in three columns, figures flush right."""
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column()
        table.add_column(justify="right")
        table.add_column(style="dim")
        for row in rows:
            table.add_row(*map(Text, row))
        self._indent(table)

    def _indent(self, content: Text | Table) -> None:
        self._console.print(Padding(content, (0, 0, 0, _INDENT), expand=False), soft_wrap=False)


class _PlainLine:
    """Says a text when it differs from the one before."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = ""

    def __call__(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(f"  {text}")
