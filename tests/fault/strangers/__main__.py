"""Strangers at a daemon, beside a steady pair of each face.

    python -m tests.fault.strangers                 all of them, about 8 minutes
    python -m tests.fault.strangers --only kafka-bombs,mqtt-filters

Each has a daemon of its own with all faces and a coordinator, and 512 file descriptors. While the stranger
is there, p99 of each pair must stay under 50 ms and the daemon under 512 MiB; ten seconds after it has gone,
p99, memory and descriptors must be where they were. Times hold on a quiet machine only: `--times off` leaves
them out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import msgspec
from rich.console import Console
from rich.table import Table

from .run import GONE_S, MIB, Pace, Visit, visit
from .visitors import VISITORS


def table(visits: list[Visit]) -> Table:
    made = Table(title="strangers beside a steady pair of each face")
    for column in ("stranger", "what it does", "p99 before, during, after (ms)", "longest (ms)"):
        made.add_column(column, no_wrap=column == "stranger")
    for column in ("memory before, most, after (MiB)", "CPU (s)", ""):
        made.add_column(column)
    for one in visits:
        p99 = " / ".join(f"{window.worst * 1e3:.1f}" for window in (one.before, one.during, one.after))
        sizes = (one.used_before.resident, one.used.peak, one.used_after.resident)
        made.add_row(
            one.name,
            f"{VISITORS[one.name].what}: {one.did}",
            p99,
            f"{max(one.during.longest.values()) * 1e3:.0f}",
            " / ".join(str(size // MIB) for size in sizes),
            f"{one.used.cpu - one.used_before.cpu:.1f}",
            "[red]wrong[/]" if one.problems else "[green]as it should be[/]",
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(VISITORS), help="names, separated by commas")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemon")
    parser.add_argument("--gone", type=float, default=GONE_S, help="seconds after which nothing is left")
    parser.add_argument("--times", choices=("on", "off"), default="on", help="whether p99 is judged")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in VISITORS]:
        parser.error(f"no such strangers: {', '.join(unknown)}; there are {', '.join(VISITORS)}")
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(f"load average {os.getloadavg()[0]:.1f} at the start")
    visits = []
    for number, name in enumerate(names, 1):
        one = visit(name, options.python, Pace(gone=options.gone))
        if options.times == "off":
            kept = [text for text in one.problems if "p99" not in text]
            one = msgspec.structs.replace(one, problems=kept)
        visits.append(one)
        console.print(f"- {number}/{len(names)}: {name}: {one.did}; {'; '.join(one.problems) or 'ok'}")
    if options.json:
        print(json.dumps([msgspec.to_builtins(one) for one in visits]))
    else:
        console.print(table(visits))
    return 1 if any(one.problems for one in visits) else 0


if __name__ == "__main__":
    sys.exit(main())
