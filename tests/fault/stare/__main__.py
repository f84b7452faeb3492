"""STARE over 20 emulated switches on links that lose, double and delay; VNFs subscribe, leave and publish.

    python -m tests.fault.stare                                    100,000 states, the embedded design
    python -m tests.fault.stare --design register --states 10000
    python -m tests.fault.stare --states 2000 --seed 7             a few minutes

At the end every subscriber has the last value of each state that it subscribes to, and of no other; update
numbers were in order and each came once. In the embedded design each switch holds exactly the ports that the
subscriptions imply; for the register design the report states the superfluous and the missing ports. Accounts
close: of updates, of packets on links, of the replica controller's backlog.

With --parts N the states are divided into N runs with seeds of their own, for machines with less memory.
Finished parts are kept in --out and not repeated; --fresh repeats them.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .plan import Options
from .run import Result, run

ROOT = Path(__file__).resolve().parents[3]
_SAY_EVERY = 5.0  # seconds


def parsed() -> argparse.Namespace:
    description, _, epilog = (__doc__ or "").partition("\n\n")
    known = Options()
    parser = argparse.ArgumentParser(
        prog="python -m tests.fault.stare",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--design", choices=["embedded", "register"], default=known.design)
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument(
        "--parts", type=int, default=1, help="number of runs with seeds of their own, one after the other"
    )
    for name, help_ in (
        ("switches", ""),
        ("vnfs", ""),
        ("operations", "for each state: half publish, a quarter each join and leave"),
        ("rate", "operations per simulated second"),
        ("loss", "share of packets on each link, and of signals"),
        ("duplicate", "share"),
        ("reorder", "share"),
        ("refresh", "simulated seconds between a host's refreshes"),
        ("settle", "maximum simulated seconds until everything is at rest"),
        ("seed", ""),
    ):
        default = getattr(known, name)
        parser.add_argument(f"--{name}", type=type(default), default=default, help=help_)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "stare")
    parser.add_argument("--fresh", action="store_true", help="repeat finished runs")
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    return parser.parse_args()


def parts(given: argparse.Namespace) -> list[Options]:
    """Returns the runs; together they have all states."""
    names = Options.__dataclass_fields__
    whole = Options(**{name: getattr(given, name) for name in names})
    if given.parts == 1:
        return [whole]
    share, more = divmod(given.states, given.parts)
    return [
        replace(whole, states=share + (number < more), seed=given.seed * 1000 + number)
        for number in range(given.parts)
    ]


def label(options: Options) -> str:
    return "-".join(
        f"{value:g}" if isinstance(value, float) else str(value) for value in asdict(options).values()
    )


class Progress:
    """Prints progress to standard error at intervals."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._begun = self._said = time.monotonic()

    def __call__(self, what: str, share: float) -> None:
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY:
            self._said = now
            self._console.print(
                f"- {self._name}: {what} {share:.0%}, {now - self._begun:.0f} s", highlight=False
            )


def finished(path: Path, fresh: bool, console: Console) -> dict[str, Any] | None:
    if fresh or not path.exists():
        return None
    known: dict[str, Any] = json.loads(path.read_text())
    console.print(f"- finished on {known['date']}: {path}; --fresh repeats it", soft_wrap=True)
    return known


def one(options: Options, path: Path, progress: Progress) -> dict[str, Any]:
    """Runs one part; keeps a result without problems, and writes wrong switch entries beside it."""
    begun = time.process_time()
    result: Result = run(options, progress)
    rows = {
        **result.rows,
        "seconds of processor time": round(time.process_time() - begun, 1),
        "MB of memory at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    found = {
        "options": asdict(options),
        "rows": rows,
        "problems": result.problems,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }
    if result.views:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".views.json").write_text(json.dumps(result.views, indent=1) + "\n")
    if not result.problems:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def show(found: dict[str, Any], console: Console) -> None:
    options = found["options"]
    wrong = len(found["problems"])
    title = f"{options['design']} design, {options['states']:,} states, {options['switches']} switches, loss "
    table = Table("what", title=f"{title}{options['loss']:.0%}, seed {options['seed']}")
    table.add_column("value", justify="right")
    for name, value in found["rows"].items():
        table.add_row(name, f"{value:,}")
    table.add_row("[bold]problems", f"[bold {'red' if wrong else 'green'}]{wrong}")
    console.print(table)
    for problem in found["problems"][:20]:
        console.print(f"[red]{problem}", soft_wrap=True, highlight=False)


def main() -> int:
    given = parsed()
    console = Console(stderr=True)
    gc.set_threshold(
        100_000, 50, 100
    )  # millions of objects live long; a collection of all of them takes seconds
    bad = 0
    for number, options in enumerate(runs := parts(given), 1):
        path = given.out / f"{label(options)}.json"
        name = f"part {number} of {len(runs)}" if len(runs) > 1 else options.design
        found = finished(path, given.fresh, console) or one(options, path, Progress(console, name))
        bad += len(found["problems"])
        if given.json:
            print(json.dumps(found))
        else:
            show(found, Console())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
