"""A result as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from .figure import Result


def as_json(result: Result) -> dict[str, Any]:
    """All of a result but how it is drawn."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    del found["plots"]
    return found


def print_result(result: Result, console: Console) -> None:
    """Table, notes, and the statements with what was seen."""
    table = Table(title=f"{result.name}: {result.title}", title_justify="left")
    for column in result.columns:
        table.add_column(column, justify="right" if _is_number(result, column) else "left")
    for row in result.rows:
        table.add_row(*(_cell(row.get(column, "")) for column in result.columns))
    console.print(table)
    for note in result.notes:
        console.print(f"note: {note}", highlight=False)
    for check in result.checks:
        mark = "[green]holds[/]" if check.holds else "[red]does not hold[/]"
        console.print(f"{mark}: {check.statement} ({check.seen})", highlight=False)


def _is_number(result: Result, column: str) -> bool:
    return bool(result.rows) and isinstance(result.rows[0].get(column), int | float)


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def write(result: Result, folder: Path) -> list[Path]:
    """The JSON, the table and the plots of a result; the files. Plots need matplotlib and are left out
    without."""
    folder.mkdir(parents=True, exist_ok=True)
    data, text = folder / f"{result.name}.json", folder / f"{result.name}.txt"
    data.write_text(json.dumps(as_json(result), indent=2, ensure_ascii=False) + "\n")
    with text.open("w") as file:
        print_result(result, Console(file=file, width=160))
    from .plots import draw

    return [data, text, *draw(result, folder)]
