"""Output of commands: tables for people, JSON for programs, errors with the next step."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

Cell = str | int | float
_WIDE = 10_000
_SIZE = re.compile(r"[0-9.]+ [KMGT]?i?B")


class CommandError(Exception):
    """A command cannot do what was requested. The text states the reason and the next step."""


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """Prints a table with right-aligned numbers; prints `empty` if there are no rows."""
    from rich.console import Console
    from rich.table import Table

    listed = [list(row) for row in rows]
    if not listed:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        numeric = all(_is_number(row[number]) for row in listed)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    if sys.stdout.isatty():
        Console(highlight=False, markup=False).print(table)
        return
    console = Console(highlight=False, markup=False, width=_WIDE)  # output for a program is not wrapped
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or cell == "-" or _SIZE.fullmatch(cell) is not None


def print_pairs(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Prints names and values, one pair per line."""
    listed = list(pairs)
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        print(f"{name:<{width}}  {value:,}" if isinstance(value, int) else f"{name:<{width}}  {value}")


def size_text(size: float) -> str:
    """Returns a size for reading: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(seconds: float) -> str:
    """Returns a duration for reading: `2 d 3 h`, `4 min 5 s`."""
    left = int(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
