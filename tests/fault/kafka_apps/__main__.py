"""Kafka Streams, Connect and MirrorMaker 2 on our daemon, killed in mid-stream; every record accounted for.

    python -m tests.fault.kafka_apps streams --kills 10
    python -m tests.fault.kafka_apps connect --kills 10
    python -m tests.fault.kafka_apps mirror --kills 12
    python -m tests.fault.kafka_apps all

One of the application's processes and each daemon are killed with SIGKILL in turn, at a random moment, and
restarted; then the application must continue by itself. At the end the feeding stops, and the output is
compared with the acknowledged input: nothing may be lost, and where the application promises exactly-once
nothing may be doubled. With --control it promises less, and the account must notice that. Needs a JDK 17 and
the jars that Maven fetches at the first run.

Exit code: 0 no problem, 1 a problem; then the logs of all processes are kept in --out.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.peers.kafka.jars import missing_tools
from rich.console import Console
from rich.table import Table

from .connect import Connect
from .mirror import Mirror
from .site import Account, App
from .streams import Streams

APPS: dict[str, type[App]] = {"streams": Streams, "connect": Connect, "mirror": Mirror}
ROOT = Path(__file__).resolve().parents[3]
SOME = 200  # records that count as progress
PATIENCE_S = 240.0


class StandsStillError(Exception):
    """The application makes no progress."""


@dataclass
class Result:
    """One application's run. `pauses`: seconds from each kill until `SOME` more records had come out."""

    app: str
    kills: dict[str, int] = field(default_factory=dict)
    pauses: list[float] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def amiss(self) -> bool:
        return bool(self.problems) or any(account.amiss for account in self.accounts)


Say = Callable[[str], None]


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise StandsStillError(f"waited {PATIENCE_S:.0f} s in vain for {what}")
        time.sleep(0.1)  # records come out of Java processes: each check reads all that are available


def work(app: App, kills: int, rng: random.Random, result: Result, say: Say) -> None:
    app.start()
    wait(lambda: app.out() >= SOME, "the first records")
    victims = app.victims()
    for number in range(kills):
        victim = victims[number % len(victims)]
        time.sleep(rng.uniform(0.5, 4.0))  # so that kills come at any moment of its work
        before, at = app.out(), time.monotonic()
        app.kill(victim, rng)
        result.kills[victim] = result.kills.get(victim, 0) + 1
        wait(lambda before=before: app.out() >= before + SOME, f"records after a kill of the {victim}")
        result.pauses.append(round(time.monotonic() - at, 1))
        say(f"{app.name}: kill {number + 1} of {kills} ({victim}), on after {result.pauses[-1]} s")
    app.feeder.stop()
    wait(app.complete, "the last records")


def run(kind: type[App], options: argparse.Namespace, say: Say) -> Result:
    result, begun = Result(kind.name), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="treecast-apps-") as folder:
        app = kind(Path(folder), options.python, options.rate, once=not options.control)
        try:
            work(app, options.kills, random.Random(f"{options.seed}-{kind.name}"), result, say)
        except StandsStillError as error:
            result.problems.append(str(error))
        finally:
            try:
                if result.kills:
                    app.feeder.stop()
                    result.accounts = app.accounts()
                    result.problems += app.feeder.problems
            finally:
                app.stop()
        result.seconds = round(time.monotonic() - begun, 1)
        if result.amiss or options.keep:
            kept = options.out / kind.__name__.lower()
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for log in Path(folder).glob("*.log"):
                shutil.copy(log, kept)
            say(f"{result.app}: the logs are in {kept}")
    return result


def table(results: list[Result]) -> Table:
    shown = Table(title="killed in mid-stream")
    columns = ("application", "kills", "pause, median", "longest", "output", "in", "out", "lost", "doubled")
    for column in columns:
        shown.add_column(column, justify="left" if column in ("application", "output", "kills") else "right")
    for result in results:
        kills = ", ".join(f"{count} {victim}" for victim, count in result.kills.items())
        pauses = sorted(result.pauses) or [0.0]
        first = (result.app, kills, f"{pauses[len(pauses) // 2]} s", f"{pauses[-1]} s")
        for number, account in enumerate(result.accounts):
            doubled = f"{account.doubled:,}" + ("" if account.exact else " (allowed)")
            counts = (f"{account.records_in:,}", f"{account.records_out:,}", f"{account.lost:,}", doubled)
            shown.add_row(*(first if number == 0 else ("",) * 4), account.output, *counts)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fault.kafka_apps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("app", choices=[*APPS, "all"])
    parser.add_argument(
        "--kills", type=int, default=6, help="kills of application and daemons together, per app"
    )
    parser.add_argument("--rate", type=int, default=500, help="input records per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemons")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "kafka_apps")
    parser.add_argument(
        "--control", action="store_true", help="without exactly-once; the run must find doubled records"
    )
    parser.add_argument("--keep", action="store_true", help="keep the logs also without a problem")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missing = [*missing_tools(), *([] if shutil.which("javac") else ["javac"])]
    if missing:
        print(f"{' and '.join(missing)} missing: install a JDK (17 or later) and Maven")
        return 2
    console = Console(stderr=options.json)
    kinds = list(APPS.values()) if options.app == "all" else [APPS[options.app]]
    results = [run(kind, options, lambda line: console.print(line, highlight=False)) for kind in kinds]
    if options.json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        console.print(table(results))
    for result in results:
        for problem in result.problems:
            console.print(f"{result.app}: {problem}", highlight=False, soft_wrap=True)
    return int(any(result.amiss for result in results))


if __name__ == "__main__":
    sys.exit(main())
