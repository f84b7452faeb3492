"""Runs a figure's tasks, over processes where there are jobs for them, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .figure import Figure, Options, Result, Row, Task


def run(figure: Figure, options: Options, *, quiet: bool = False) -> Result:
    """The result; the same for the same seed whatever the number of jobs. RoutingError of a network."""
    runs = options.runs or figure.runs
    tasks = [Task(point, number) for point in figure.points(options) for number in range(runs)]
    rows: list[Row] = []
    with _progress(quiet) as progress:
        bar = progress.add_task(figure.name, total=len(tasks))
        for found in _results(figure, options, tasks):
            rows += found
            progress.advance(bar)
    return figure.finish(options, rows)


def _results(figure: Figure, options: Options, tasks: list[Task]) -> Iterator[list[Row]]:
    if options.jobs < 2:
        for task in tasks:
            yield figure.work(options, task)
        return
    # Fresh processes: a forked one would hold locks that other threads of this one had.
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(figure.work, [options] * len(tasks), tasks, chunksize=1)


def _progress(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=quiet)
