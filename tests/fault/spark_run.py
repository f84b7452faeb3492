#!/usr/bin/env python3
"""Kills daemon, workers and driver of a running Spark query, and looks for every record in its output.

    spark_run.py --count 300 --drivers 30 --seed 7

A query copies one topic into another by format("treecast"), each record with its source position, while a
feeder writes. Kills come at random moments, each after the query has finished at least one more batch; some
come a second time during recovery. Readers of committed records must find every input in the output exactly
once: the source neither skips nor repeats, and the sink writes once. After some kills of the driver a copy of
the checkpoint continues and writes to another topic, as in a blue-green deployment, or the output topic is
replaced by a new one; then no topic has a record twice, and all topics together have every record. After some
kills the input topic is replaced, with fewer records or with more, and with or without having been read to
its end: the query must fail, report it and write nothing of the new topic, and with failOnDataLoss=false must
read it from its beginning. A query that fails because Spark gave one of its Python workers too little time to
start (10 s) is restarted and counted apart.

It can be interrupted with Ctrl-C; the same command continues: the progress is in out/spark/seed-N/state.json
(`--fresh` starts over). `--seconds` ends it in order after a while; an interrupted life of a data directory
is not counted. Exit code: 0 no problem, 1 a problem, 130 interrupted.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from resumable import INTERRUPTED, Session, options_of
from rich.console import Console
from rich.table import Table
from spark_kills.episode import Episode, Shares


@dataclasses.dataclass
class State:
    """The progress over all sessions of one seed."""

    seed: int
    done: int = 0
    lives: int = 0
    records: int = 0
    gone: int = 0
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)
    kills: dict[str, int] = dataclasses.field(default_factory=dict)
    spent: dict[str, int] = dataclasses.field(default_factory=dict)


def of_driver(number: int, options: argparse.Namespace) -> bool:
    """Returns whether cycle `number` kills the driver: these cycles are spread evenly."""
    total = options.count + options.drivers
    return (number + 1) * options.drivers // total > number * options.drivers // total


def live(state: State, options: argparse.Namespace, folder: Path, until: float) -> None:
    """Runs one life of a data directory and a checkpoint; ends it in order after `until`."""
    begun = time.monotonic()
    shares = Shares(green=options.green, anew=options.anew)
    episode = Episode(folder / "life", state.seed, state.lives, options.python, shares)
    number = state.done
    try:
        episode.begin()
        for _ in range(min(options.life, options.count + options.drivers - state.done)):
            if time.monotonic() > until:
                break
            episode.cycle(number, drivers=of_driver(number, options))
            number += 1
            if (number - state.done) % options.look == 0:
                episode.look()
            if not options.json:
                said = f"{number}/{options.count + options.drivers} kills, {len(episode.problems)} problems"
                print(f"{said}, {time.monotonic() - begun:.0f} s", flush=True)
            if episode.problems:
                break
        episode.end(damage=options.damage)
        state.done = number
    except Exception as error:
        episode.problems.append(f"{type(error).__name__}: {error}")
    finally:
        episode.close()
    where = f"seed {state.seed}, life {state.lives}"
    state.problems += [f"{where}: {problem}" for problem in episode.problems[:20]]
    state.lives += 1
    state.records += episode.accounts.inputs
    state.gone += episode.accounts.gone
    state.seconds = round(state.seconds + time.monotonic() - begun, 1)
    for kept, more in ((state.kills, episode.kills), (state.spent, episode.spent)):
        for name, count in more.items():
            kept[name] = kept.get(name, 0) + count


def show(state: State, total: int) -> None:
    table = Table(title=f"{state.done} of {total} kills, {len(state.problems)} problems", box=None)
    table.add_column("what")
    table.add_column("count", justify="right")
    rows = [("lives of a data directory and a checkpoint", state.lives), ("input records", state.records)]
    rows.append(("records deleted with their topic before they were read", state.gone))
    for what, count in (*rows, *sorted(state.kills.items())):
        table.add_row(what, f"{count:,}")
    table.add_row("seconds", f"{state.seconds:,.0f}")
    for what, count in sorted(state.spent.items(), key=lambda spent: -spent[1]):
        table.add_row(f"- {what}", f"{count:,}")
    console = Console(width=120)
    console.print(table)
    for problem in state.problems:
        console.print(problem, soft_wrap=True, highlight=False, markup=False)


def main() -> int:
    parser = options_of(__doc__, "spark", life=33, kills="kills of the daemon or of a worker")
    parser.add_argument("--drivers", type=int, default=30, help="kills of the driver")
    parser.add_argument(
        "--look", type=int, default=11, help="kills between two complete checks of the output"
    )
    parser.add_argument("--damage", action="store_true", help="write a record twice; the run must report it")
    shares = Shares()
    parser.add_argument(
        "--green",
        type=float,
        default=shares.green,
        help="share of the driver's kills followed by a copied checkpoint",
    )
    parser.add_argument(
        "--anew", type=float, default=shares.anew, help="share of all kills followed by a new input topic"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="end this call after that time")
    options = parser.parse_args()
    session = Session(options, State)
    total, until = options.count + options.drivers, time.monotonic() + options.seconds
    if not options.json:
        print(
            f"seed {options.seed}, {options.count} kills of daemon or worker, {options.drivers} of the driver"
        )
    life = partial(live, session.state, options, session.folder, until)
    code = session.repeat(total, life, until=lambda: time.monotonic() > until)
    if options.json and code != INTERRUPTED:
        print(session.as_json())
    elif not options.json:
        show(session.state, total)
    return code


if __name__ == "__main__":
    sys.exit(main())
