"""A figure: tasks that can run anywhere, and the result of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, field

Row = dict[str, Any]


class NotMeasured(Exception):
    """A figure cannot be measured here, or not with these options. The text says why."""


class Options(Struct, frozen=True):
    """The options of the command line. `runs` 0 stands for a figure's own number.

    Of figures that are measured on this machine: `scenarios` (none: all), `quick` (short loads), and `scale`,
    by which rates and links are divided (0: the figure's own).
    """

    seed: int = 1
    runs: int = 0
    jobs: int = 1
    rules: int = 40
    topologies: tuple[str, ...] = ()
    topology_dir: Path | None = None
    encoder: str = "largest"
    scenarios: tuple[str, ...] = ()
    quick: bool = False
    scale: float = 0.0


class Check(Struct, frozen=True):
    """A statement of the paper, whether it holds here, and the numbers behind that."""

    statement: str
    holds: bool
    seen: str


class Plot(Struct, frozen=True):
    """How rows are drawn: one picture per value of `panel`, one line, bar or colour per value of `series`.
    Rows without them are left out.

    `kind`: lines, columns (standing, the series beside each other at each `x`), boxes (the same, from five
    columns of `stacked`: whisker, quartile, median, quartile, whisker), bars, dots (for each `x` one per
    column of `stacked`), grid (of `x` and `y`, coloured), scatter (at `x` and `y`, sized by `stacked`).
    `error` is a column for error bars of lines. `title` and `labels` (of both axes) say in words what is
    shown; without them the result's title and the columns' names do. `zero`: whether the axis of `y` begins
    there. `log`: both axes of lines, and that of `y` of boxes, are logarithmic.
    """

    x: str
    y: str
    series: str
    panel: str = ""
    kind: str = "lines"
    stacked: tuple[str, ...] = ()
    error: str = ""
    title: str = ""
    labels: tuple[str, str] = ("", "")
    zero: bool = True
    log: bool = False


class Table(Struct, frozen=True):
    """A printed summary of rows that are too many to read."""

    columns: tuple[str, ...]
    rows: list[Row]


class Result(Struct, frozen=True):
    """The result of a figure. If `table` is set, it is printed instead of `columns` and `rows`."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[Row]
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plots: tuple[Plot, ...] = ()
    settings: Row = field(default_factory=dict)
    table: Table | None = None


class Task(Struct, frozen=True):
    """One piece of work: its point in the figure, and the number of its run."""

    point: tuple[Any, ...]
    run: int


class Figure(Struct, frozen=True):
    """The measurements and presentation of a result.

    `points` lists the points to measure; `work` measures one run of one point (a function of a module, so
    that another process finds it); `finish` computes the result from all rows. `alone`: one task at a time,
    in this process, as they measure this machine.
    """

    name: str
    title: str
    runs: int
    points: Callable[[Options], Sequence[tuple[Any, ...]]]
    work: Callable[[Options, Task], list[Row]]
    finish: Callable[[Options, list[Row]], Result]
    alone: bool = False


def rng_of(options: Options, *what: object) -> Random:
    """Returns a separate generator for the named things, the same in whatever process."""
    return Random("/".join(map(str, (options.seed, *what))))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def averages(rows: Sequence[Row], keys: Sequence[str], values: Sequence[str]) -> list[Row]:
    """Rows of equal keys as one, with the mean of each value; in the order in which keys first came."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        {
            **dict(zip(keys, group, strict=True)),
            **{v: round(mean([row[v] for row in found]), 3) for v in values},
        }
        for group, found in groups.items()
    ]


def value(rows: Sequence[Row], column: str, **where: Any) -> float:
    """Returns the mean of a column over the rows that match."""
    return mean([row[column] for row in rows if all(row[key] == wanted for key, wanted in where.items())])
