"""Runs a figure's tasks, in several processes if requested, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .figure import Figure, Options, Result, Row, Task
from .journal import Journal, key_of


def run(
    figure: Figure,
    options: Options,
    *,
    quiet: bool = False,
    rows_file: Path | None = None,
    resume: bool = False,
) -> Result:
    """Returns the result; the same for the same seed whatever the number of jobs. Raises RoutingError for a
    network.

    `rows_file` keeps the rows of completed tasks; with `resume` these are not repeated, and JournalError is
    raised if the file belongs to another run.
    """
    runs = options.runs or figure.runs
    tasks = [Task(point, number) for point in figure.points(options) for number in range(runs)]
    journal = Journal(rows_file, figure, options) if rows_file is not None else None
    done = journal.begin(resume=resume) if journal is not None else {}
    left = [task for task in tasks if key_of(task) not in done]
    with _progress(quiet) as progress:
        bar = progress.add_task(figure.name, total=len(tasks), completed=len(tasks) - len(left))
        for task, found in zip(left, _results(figure, options, left), strict=True):
            done[key_of(task)] = found
            if journal is not None:
                journal.add(task, found)
            progress.advance(bar)
    if journal is not None:
        journal.close()
    return figure.finish(options, [row for task in tasks for row in done[key_of(task)]])


def _results(figure: Figure, options: Options, tasks: list[Task]) -> Iterator[list[Row]]:
    if options.jobs < 2 or figure.alone:
        for task in tasks:
            yield figure.work(options, task)
        return
    # Fresh processes: a forked one would inherit locks of this process' other threads.
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(figure.work, [options] * len(tasks), tasks, chunksize=1)


def _progress(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=quiet)
