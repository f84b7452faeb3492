"""Kills the daemon at random points under load, and looks for every acknowledged record after each kill.

    crash_run.py --count 300 --seed 7

Producers of five kinds (plain, idempotent, transactional, to a compacted topic, and librdkafka's), a group of
two members, a committer of offsets and a creator of topics work while the daemon is killed with SIGKILL,
sometimes once more during its start. After each restart everything new is read; at the end of each life of a
data directory (`--life` kills) everything is read again, by the group as well.

It can be interrupted with Ctrl-C; the same command continues: finished cycles are in
out/crash/seed-N/state.json. A finished run with the same seed only shows its summary (`--fresh` repeats it).
Exit code: 0 no problem, 1 a problem, 130 interrupted.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from crash.episode import Cycle, DaemonFailed, Episode
from crash.oracle import Tally
from resumable import INTERRUPTED, MOST_PROBLEMS, Session, options_of


@dataclasses.dataclass
class State:
    """The progress over all sessions of one seed."""

    seed: int
    done: int = 0
    kills: int = 0
    kills_during_start: int = 0
    lives: int = 0
    seconds: float = 0.0
    restarts: list[float] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    tally: Tally = dataclasses.field(default_factory=Tally)

    def absorb(self, episode: Episode, number: int) -> None:
        """Adds what an episode has counted since the last call."""
        self.kills += episode.times.kills
        self.kills_during_start += episode.times.kills_during_start
        self.restarts += [round(seconds, 3) for seconds in episode.times.restarts]
        self.tally.add(episode.oracle.tally)
        where = f"seed {self.seed}, cycle {number}, fsync {episode.fsync}"
        self.problems += [f"{where}: {problem}" for problem in episode.oracle.problems]
        episode.times.kills = episode.times.kills_during_start = 0
        episode.times.restarts.clear()
        episode.oracle.tally = Tally()
        episode.oracle.problems.clear()


class Run:
    """Runs lives of data directories until `count` cycles are done."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options = options
        self.console = console
        self.session = Session(options, State)
        self.state = self.session.state

    def run(self) -> int:
        """Returns the exit code."""
        columns = (
            TextColumn("[bold]kill -9"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}"),
        )
        show = not self.options.json and self.console.is_terminal
        with Progress(*columns, console=self.console, disable=not show) as progress:
            task = progress.add_task("", total=self.options.count, completed=self.state.done, said="")
            life = partial(self._life, progress, task)
            return self.session.repeat(self.options.count, life, most_problems=MOST_PROBLEMS)

    def _life(self, progress: Progress, task: Any) -> None:
        state, number, known = self.state, self.state.done, len(self.state.problems)
        folder = self.session.folder
        episode = Episode(folder / "life", state.seed, state.lives, self.options.python, self.options.fsync)
        state.lives += 1
        begun = time.monotonic()
        failed = True
        try:
            episode.begin()
            for _ in range(min(self.options.life, self.options.count - number)):
                number = state.done
                episode.run(Cycle.of(state.seed, number), damage=number == self.options.damage)
                state.done += 1
                begun = self._note(episode, number, begun)
                progress.update(task, completed=state.done, said=self._said())
                if not self.console.is_terminal and not self.options.json and state.done % 10 == 0:
                    self.console.print(f"{state.done}/{self.options.count} {self._said()}")
                if len(state.problems) > known:
                    break
            else:
                episode.end()
                failed = False
        except KeyboardInterrupt:
            failed = False
            raise
        except Exception as error:
            episode.oracle.problem(f"{type(error).__name__}: {error}")
            if isinstance(error, DaemonFailed):
                state.done += 1
        finally:
            failed = failed or bool(episode.oracle.problems)
            keep = folder / f"failed-{number}" if failed else None
            try:
                episode.close(keep=keep)
            finally:
                self._note(episode, number, begun)

    def _note(self, episode: Episode, number: int, begun: float) -> float:
        self.state.absorb(episode, number)
        now = time.monotonic()
        self.state.seconds += now - begun
        self.session.save()
        return now

    def _said(self) -> str:
        acked = sum(self.state.tally.acked.values())
        return f"{acked:,} acknowledged, {len(self.state.problems)} problems"


def summary(state: State, options: argparse.Namespace) -> Table:
    tally = state.tally
    table = Table(title=f"crash run: seed {state.seed}, {state.done} of {options.count} cycles")
    table.add_column("what")
    table.add_column("count", justify="right")
    rows: list[tuple[str, Any]] = [
        ("kill -9", state.kills),
        ("  of them while it was starting", state.kills_during_start),
        ("data directories", state.lives),
        *((f"acknowledged by {kind} producers", count) for kind, count in sorted(tally.acked.items())),
        ("records verified after a restart", tally.verified),
        ("records read again at the end", tally.reread),
        ("stored without an acknowledgement before the kill", tally.unknown_found),
        ("neither acknowledged nor stored", tally.unknown_gone),
        ("retried batches recognised as repetitions", tally.repeats_answered),
        ("transactions committed", tally.committed),
        ("transactions aborted", tally.aborted),
        ("transaction decisions interrupted by a kill", tally.decisions_repeated),
        ("offset commits", tally.offset_commits),
        ("topics made", tally.topics_made),
        ("records compacted away (maximum of a check)", tally.compacted_away),
        ("records read by the group of two", tally.group_read),
    ]
    for what, count in rows:
        table.add_row(what, f"{count:,}")
    if state.restarts:
        table.add_row("restart, median", f"{statistics.median(state.restarts):.2f} s")
        table.add_row("restart, longest", f"{max(state.restarts):.2f} s")
    table.add_row("time", f"{state.seconds:.0f} s")
    verdict = "[green]none" if not state.problems else f"[red]{len(state.problems)}"
    table.add_row("[bold]lost, invented, repeated, moved or rolled back", f"[bold]{verdict}")
    return table


def main() -> int:
    parser = options_of(__doc__, "crash", life=30, kills="cycles")
    parser.add_argument("--fsync", choices=("never", "interval", "batch"), help="default: each in turn")
    parser.add_argument(
        "--damage",
        type=int,
        metavar="CYCLE",
        help="cut off acknowledged records in this cycle; the run must report it",
    )
    options = parser.parse_args()
    console = Console(stderr=options.json)
    console.print(f"seed {options.seed}, {options.count} cycles")
    run = Run(options, console)
    code = run.run()
    state = run.state
    if options.json:
        print(run.session.as_json())
    else:
        console.print(summary(state, options))
    for problem in state.problems[:MOST_PROBLEMS]:
        console.print(f"[red]{problem}", soft_wrap=True, highlight=False)
    if state.problems:
        console.print(f"data directories and logs: {run.session.folder}/failed-*; --fresh starts over")
    elif code == INTERRUPTED:
        console.print("interrupted; the same command continues")
    return code


if __name__ == "__main__":
    sys.exit(main())
