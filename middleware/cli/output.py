"""Output of commands: tables for people, JSON for programs, errors with the next step.

Names come from clients and other hosts, and whoever chose one must not be able to move the cursor, change
colours or forge a line. All that commands print of them therefore goes through this module, which shows each
control character, and each that changes the direction of text, by its escape (`\\x1b`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

Cell = str | int | float
_WIDE = 10_000
_SIZE = re.compile(r"[0-9.]+ [KMGT]?i?B")
# C0 and C1 controls, line and paragraph separators, marks of direction, halves of surrogate pairs
_UNSHOWN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_UNSHOWN}]")
_IN_NAME = re.compile(f"[{_UNSHOWN}\t\n]")


class CommandError(Exception):
    """A command cannot do what was requested. The text states the reason and the next step."""


def plain(name: str) -> str:
    """Returns a name as it may be shown: on one line, without characters that a terminal obeys."""
    return _IN_NAME.sub(_escape, name)


def plain_text(text: str) -> str:
    """As `plain`, for text of several lines."""
    return _IN_TEXT.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def say(text: str, *, err: bool = False) -> None:
    """Prints a line, or several, on standard output or standard error."""
    print(plain_text(text), file=sys.stderr if err else sys.stdout, flush=err)


def print_json(value: Any) -> None:
    print(_IN_TEXT.sub(_json_escape, json.dumps(value, indent=2, ensure_ascii=False)))


def json_line(value: Any) -> str:
    return _IN_TEXT.sub(_json_escape, json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """Prints a table with right-aligned numbers; prints `empty` if there are no rows."""
    from rich.console import Console
    from rich.table import Table

    listed = [list(row) for row in rows]
    if not listed:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        numeric = all(_is_number(row[number]) for row in listed)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else plain(str(cell)) for cell in row))
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
        shown = f"{value:,}" if isinstance(value, int) else plain(str(value))
        print(f"{name:<{width}}  {shown}")


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
