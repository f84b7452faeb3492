"""A result as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table as Lines

from .figure import Result, Table


def as_json(result: Result) -> dict[str, Any]:
    """Returns all of a result but how it is shown."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    del found["plots"], found["table"]
    return found


def print_result(result: Result, console: Console) -> None:
    """Prints table, notes, and the statements with the observations."""
    table = result.table or Table(result.columns, result.rows)
    lines = Lines(title=f"{result.name}: {result.title}", title_justify="left")
    for column in table.columns:
        lines.add_column(column, justify="right" if _is_number(table, column) else "left")
    for row in table.rows:
        lines.add_row(*(_cell(row.get(column, "")) for column in table.columns))
    console.print(lines)
    for note in result.notes:
        console.print(f"note: {note}", highlight=False)
    for check in result.checks:
        mark = "[green]holds[/]" if check.holds else "[red]does not hold[/]"
        console.print(f"{mark}: {check.statement} ({check.seen})", highlight=False)


def _is_number(table: Table, column: str) -> bool:
    return bool(table.rows) and isinstance(table.rows[0].get(column), int | float)


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def write(result: Result, folder: Path) -> list[Path]:
    """Returns the JSON, the table and the plots of a result; the files. Plots need matplotlib and are left
    out without.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data, text = folder / f"{result.name}.json", folder / f"{result.name}.txt"
    data.write_text(json.dumps(as_json(result), indent=2, ensure_ascii=False) + "\n")
    with text.open("w") as file:
        print_result(result, Console(file=file, width=160))
    from .plots import draw

    return [data, text, *draw(result, folder)]
