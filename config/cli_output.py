"""How operators' commands answer: JSON for programs, aligned text for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import orjson

from anex.money import NANOS_PER_CENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NANOS_PER_DOLLAR = 100 * NANOS_PER_CENT

json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")

_NOTHING = "-"
_GAP = "  "


def print_json(data: Any) -> None:
    """Print one JSON document; times are RFC 3339 in UTC."""
    option = orjson.OPT_INDENT_2 | orjson.OPT_PASSTHROUGH_DATETIME
    click.echo(orjson.dumps(data, default=_encode_time, option=option))


def print_fields(fields: Mapping[str, object], indent: int = 0) -> None:
    """Print names and values in two columns; the further lines of a value stand under its first."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        lines = _to_lines(value)
        for number, line in enumerate(lines):
            label = name if number == 0 else ""
            click.echo(f"{' ' * indent}{label:{width}}{_GAP}{line}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], indent: int = 0) -> None:
    """Print rows under their columns' names, numbers flush right."""
    held = [tuple(row) for row in rows]
    texts = [columns, *([" ".join(_to_lines(value)) for value in row] for row in held)]
    widths = [max(len(row[place]) for row in texts) for place in range(len(columns))]
    numeric = [any(isinstance(row[place], int) for row in held) for place in range(len(columns))]
    for row in texts:
        cells = [
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, numeric, strict=True)
        ]
        click.echo((" " * indent + _GAP.join(cells)).rstrip())


def format_nanos(nanos: int) -> str:
    """Return an amount in dollars, exact: at least two decimals, at most nine."""
    sign = "-" if nanos < 0 else ""
    dollars, rest = divmod(abs(nanos), NANOS_PER_DOLLAR)
    decimals = f"{rest:09}".rstrip("0").ljust(2, "0")
    return f"{sign}${dollars}.{decimals}"


def format_time(at: datetime) -> str:
    """Return a time as people read it, in UTC to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _to_lines(value: object) -> list[str]:
    if value is None or value == "":
        return [_NOTHING]
    if isinstance(value, datetime):
        return [format_time(value)]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    return [_make_printable(line) for line in str(value).splitlines()]


def _make_printable(line: str) -> str:
    """Show control characters instead of sending them: a customer's text must not steer an operator's terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def _encode_time(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
