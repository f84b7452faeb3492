"""Other people's test suites against our daemon: `python -m tests.foreign`, or `make foreign`.

kafka-python's integration suite comes with its sdist from the package registry. `make foreign` also runs
modules beside this one: p4runtime-shell against a switch, and P4 programs from a folder.

Exit code 0: exactly the tests on the allow list failed. Tests that it lists as flaky must pass in one of
three runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import sys

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from .suite import Known, Outcome, broker, known_failures, run_suite

# The settings of the suite's own broker: four partitions, and sessions of three seconds.
FLAGS = ("--default-partitions", "4", "--group-min-session-timeout-ms", "100")

FURTHER_RUNS = 2  # of flaky tests that failed


def show_progress(console: Console, progress: Progress, line: str) -> None:
    found = re.search(r"::(\S+?) (PASSED|FAILED|SKIPPED|ERROR)", line)
    if found and console.is_terminal:
        progress.update(progress.task_ids[0], description=f"{found[2].lower()} {found[1]}")


def table(outcome: Outcome, known: list[Known]) -> Table:
    shown = Table(title="kafka-python's integration suite")
    for column in ("outcome", "tests"):
        shown.add_column(column, justify="right" if column == "tests" else "left")
    unexpected = outcome.unexpected_failures(known)
    shown.add_row("passed", str(len(outcome.passed)))
    shown.add_row("failed as the allow list says", str(len(outcome.failed) - len(unexpected)))
    shown.add_row("failed, not on the allow list", str(len(unexpected)))
    shown.add_row("passed, though on the allow list", str(len(outcome.unexpected_passes(known))))
    shown.add_row("skipped by the suite", str(len(outcome.skipped)))
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--kafka", metavar="HOST:PORT", help="use this broker instead of a daemon of our own")
    parser.add_argument("-k", dest="select", default="", help="only tests that match, as pytest's -k")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    known = known_failures()
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with (
        broker(options.kafka, FLAGS) as address,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        progress.add_task("starting")
        follow = functools.partial(show_progress, console, progress)
        outcome = run_suite(address, select=options.select, progress=follow)
        for _ in range(FURTHER_RUNS):
            if failed := outcome.failed_flaky(known):
                outcome.take_again(run_suite(address, only=failed, progress=follow))
    lines = outcome.news([] if options.kafka else known) if not options.select else []
    if options.json:
        print(json.dumps(dataclasses.asdict(outcome) | {"news": lines}))
    else:
        console.print(table(outcome, known))
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
