"""Hosts in network namespaces under load: bad links, cut-off hosts, kills; every record is accounted for.

    python -m tests.fault.hosts loss --loss 0.01 --seconds 600
    python -m tests.fault.hosts loss --loss 0.1 --seconds 600
    python -m tests.fault.hosts outage --behind 1000000
    python -m tests.fault.hosts kills --count 100
    python -m tests.fault.hosts leader
    python -m tests.fault.hosts disk-loss --count 20
    python -m tests.fault.hosts full-disk --count 6
    python -m tests.fault.hosts old-copy --count 20
    python -m tests.fault.hosts lan --seconds 600 --events link,address,suspend
    python -m tests.fault.hosts wire
    python -m tests.fault.hosts burst --receivers 2,8 --mb 100
    python -m tests.fault.hosts all         all of these, about 75 minutes

Producers record acknowledgements with offsets; consumers on every host record what they read. Both ledgers
must agree on every record: each once, in order, at the same offset everywhere; and the accounts of `treecast
streams` must close. `outage` also reports the effect on the remaining hosts, compared with windows without
any event, and fails if it stands out. A finished run is kept in out/hosts/ and only shown again (`--fresh`
repeats it). Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from . import burst, lan
from .result import Options, Result, Shown
from .scenarios import SCENARIOS
from .site import Amiss

ALL: list[tuple[str, dict[str, Any]]] = [
    ("loss", {"loss": 0.01, "seconds": 600.0}),
    ("loss", {"loss": 0.1, "seconds": 600.0}),
    ("outage", {"behind": 1_000_000}),
    ("kills", {"count": 100}),
    ("leader", {}),
    ("disk-loss", {"count": 20}),
    ("full-disk", {"count": 6}),
    ("old-copy", {"count": 20}),
    ("lan", {"seconds": 600.0}),
    ("wire", {}),
    ("burst", {}),
]
ROOT = Path(__file__).resolve().parents[3]


def run(name: str, options: Options, keep: Path) -> Result:
    """Runs one scenario; copies the daemons' logs to `keep` if there is a problem."""
    with tempfile.TemporaryDirectory(prefix="treecast-hosts-") as folder:
        try:
            result = SCENARIOS[name](options, Path(folder))
        except Amiss as error:
            result = Result(problems=[str(error)])
        if result.problems:
            keep.mkdir(parents=True, exist_ok=True)
            for log in Path(folder).rglob("*.log"):
                if log.stat().st_size < 50_000_000 and "logs" not in log.parts:
                    (keep / log.name).write_bytes(log.read_bytes())
    return result


def show(name: str, result: Result, seconds: float, console: Console) -> None:
    table = Table(title=f"{name}: {'nothing is wrong' if not result.problems else 'something is wrong'}")
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, value in result.rows:
        table.add_row(what, value)
    table.add_row("time", f"{seconds:.0f} s")
    colour = "red" if result.problems else "green"
    table.add_row(
        "[bold]lost, invented, repeated, moved, unaccounted", f"[bold {colour}]{len(result.problems)}"
    )
    console.print(table)
    for shown in result.tables:
        _show_table(shown, console)
    for problem in result.problems[:10]:
        console.print(f"[red]{problem}", soft_wrap=True, highlight=False)


def _show_table(shown: Shown, console: Console) -> None:
    table = Table(title=shown.title, box=None)
    for number, name in enumerate(shown.head):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in shown.rows:
        table.add_row(*row)
    console.print(table)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    description, _, epilog = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.fault.hosts",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", choices=[*sorted(SCENARIOS), "all"])
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--loss", type=float, default=0.01, help="share of packets lost, reordered, doubled")
    parser.add_argument("--rate", type=float, default=1000.0, help="records per second")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a record")
    parser.add_argument("--behind", type=int, default=1_000_000, help="records that a cut-off host lacks")
    parser.add_argument("--count", type=int, default=20, help="kills, lost, full or old disks")
    parser.add_argument(
        "--events",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="NAME,...",
        help=f"of lan; default: all of {', '.join(lan.EVENTS)}",
    )
    parser.add_argument("--age", type=float, default=5.0, help="seconds in which a copy of a disk grows old")
    parser.add_argument(
        "--rounds", type=int, default=3, help="outages, each with a control; also for --compare"
    )
    burst.add_arguments(parser)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemons")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "hosts")
    parser.add_argument("--fresh", action="store_true", help="repeat a finished run")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    return parser.parse_args(words)


def chosen(given: argparse.Namespace, say: Callable[[str], None]) -> list[tuple[str, Options]]:
    """Returns the scenarios to run; `all` selects those that the project promises, in full length."""
    values = {f.name: getattr(given, f.name) for f in fields(Options) if hasattr(given, f.name)}
    values |= {"python": str(Path(given.python).absolute()), "burst": burst.chosen(given)}
    options = Options(**values, judged=True, say=say)
    if given.scenario != "all":
        return [(given.scenario, options)]
    return [(name, replace(options, **larger)) for name, larger in ALL]


def finished(name: str, options: Options, given: argparse.Namespace) -> tuple[Result, float] | None:
    """Returns the result of an identical run that finished before."""
    path = given.out / f"{label(name, options)}.json"
    if given.fresh or not path.exists():
        return None
    known = json.loads(path.read_text())
    options.say(f"{name} was finished on {known['date']}; --fresh repeats it")
    tables = [Shown(**table) for table in known.get("tables", [])]
    return Result([tuple(row) for row in known["rows"]], [], known["data"], tables), known["took"]


def label(name: str, options: Options) -> str:
    if name == "burst":
        return f"{name}-seed{options.seed}-size{options.size}-{burst.label(options.burst)}"
    if name == "lan":
        return lan.label(options)
    numbers = ("seconds", "seed", "hosts", "loss", "rate", "size", "behind", "count", "age", "rounds")
    return "-".join([name, *(f"{key}{getattr(options, key):g}" for key in numbers)])


def fresh(name: str, options: Options, given: argparse.Namespace) -> tuple[Result, float]:
    begun = time.monotonic()
    result = run(name, options, given.out / f"failed-{label(name, options)}")
    took = time.monotonic() - begun
    if not result.problems:
        given.out.mkdir(parents=True, exist_ok=True)
        kept = {**asdict(result), "took": took, "date": time.strftime("%Y-%m-%d %H:%M")}
        (given.out / f"{label(name, options)}.json").write_text(json.dumps(kept, indent=1) + "\n")
    return result, took


def main() -> int:
    given = parsed()
    if os.geteuid() != 0:
        print("network namespaces need root; run it again as root, for example with sudo", file=sys.stderr)
        return 2
    console = Console(stderr=given.json, width=None if sys.stdout.isatty() else 120)
    bad = 0
    for name, options in chosen(given, lambda text: console.print(f"- {text}")):
        result, took = finished(name, options, given) or fresh(name, options, given)
        bad += len(result.problems)
        if given.json:
            print(json.dumps({"scenario": name, **asdict(result)}))
        else:
            show(name, result, took, console)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
