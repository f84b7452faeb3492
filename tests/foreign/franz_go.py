"""franz-go's own tests of its client (`pkg/kgo`) against our Kafka face.

    python -m tests.foreign.franz_go [--kafka HOST:PORT] [-k REGEX] [--records N] [--json]

`go test` runs them in `franz_go`, whose go.mod pins the version and go.sum its digests; the first run gets
them from the Go module proxy. Needs `go`.

Exit code 0: exactly the tests in franz_go.toml failed or were skipped.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from .suite import Known, Outcome, broker, explained_skips, known_failures, report

HERE = Path(__file__).resolve().parent
MODULE = HERE / "franz_go"
ALLOW_LIST = HERE / "franz_go.toml"
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
FLAGS = ("--mqtt", "off", "--admin", "off", "--stare", "off", "--amqp", "off")
RECORDS = 50_000  # for each test that moves many; the suite's own number is 500,000
LIMIT_S = 1_500
MOST_SHOWN = 10_000  # characters of output that cannot be read
FURTHER_RUNS = 2  # of flaky tests that failed

Event = dict[str, Any]


def outcome_of(events: Iterable[Event]) -> Outcome:
    """Returns the outcome of each test and subtest, from the events of `go test -json`.

    A test does not count as failed for a failed subtest, and as skipped only for itself.
    """
    ended: dict[str, str] = {}
    begun: dict[str, list[str]] = {}
    outcome = Outcome()
    for event in events:
        test, action = event.get("Test", ""), event["Action"]
        said = begun.setdefault(test, [])
        if action == "output":
            said.append(event["Output"])
        elif action in ("pass", "fail", "skip"):
            ended[test] = action
            outcome.seconds[test] = event.get("Elapsed", 0.0)
    whole = ended.pop("", "")
    last_words = begun.pop("", [])
    for test, said in begun.items():
        action = ended.get(test, "")
        if action == "pass":
            outcome.passed.append(test)
        elif action == "skip":
            outcome.skipped[test] = why(said)
        elif not any(other.startswith(test + "/") and ended.get(other) != "pass" for other in begun):
            outcome.failed[test] = why(said) if action else "it did not end"
    if whole != "pass" and not outcome.failed:
        outcome.failed["(the run)"] = why(last_words)
    outcome.seconds.pop("", None)
    return outcome


def why(said: Iterable[str]) -> str:
    """Returns the first line of a test's own output, or the last of all output."""
    lines = [text.strip() for text in said if text.strip()]
    own = (found[1] for line in lines if (found := re.match(r"\w+_test\.go:\d+: (.*)", line)))
    return next(own, lines[-1] if lines else "")[:200]


def run(address: str, select: str, records: int, progress: Callable[[str], None]) -> Outcome:
    command = [
        "go",
        "test",
        "-json",
        "-count=1",
        f"-timeout={LIMIT_S}s",
        *(["-run", select] if select else []),
    ]
    environment = os.environ | {
        "KGO_SEEDS": address,
        "KGO_TEST_RF": "1",  # there is one copy
        "KGO_TEST_RECORDS": str(records),
        "KGO_LOG_LEVEL": "none",
    }
    events: list[Event] = []
    with subprocess.Popen(
        [*command, PACKAGE],
        cwd=MODULE,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("go: "):  # it fetches the package
                progress(line.strip())
                continue
            if not line.startswith("{"):
                raise RuntimeError(line + running.stdout.read(MOST_SHOWN))
            event = json.loads(line)
            if event["Action"].startswith("build"):
                progress(event.get("Output", "").strip())
                continue
            events.append(event)
            if event["Action"] in ("pass", "fail", "skip"):
                progress(f"{event['Action']} {event.get('Test', '')}")
    return outcome_of(events)


def anew(outcome: Outcome, known: list[Known], again: Callable[[str], Outcome]) -> None:
    """Repeats failed tests that may be flaky, at most twice."""
    for _ in range(FURTHER_RUNS):
        tests = sorted({test.split("/")[0] for test in outcome.failed_flaky(known)})
        if not tests:
            return
        further = again(f"^({'|'.join(tests)})$")
        further.passed = [test for test in further.passed if test in outcome.failed]
        outcome.take_again(further)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.franz_go",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kafka", metavar="HOST:PORT", help="use this broker instead of a daemon of our own")
    parser.add_argument("-k", dest="select", default="", help="only tests that match, as go test's -run")
    parser.add_argument("--records", type=int, default=RECORDS, help="records for each test that moves many")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if shutil.which("go") is None:
        print("`go` was not found: install Go 1.26 or later")
        return 2
    known, skips = known_failures(ALLOW_LIST), explained_skips(ALLOW_LIST)
    console = Console(stderr=True)
    with broker(options.kafka, FLAGS) as address, Status("compiling", console=console) as status:
        again = functools.partial(run, address, records=options.records, progress=status.update)
        outcome = again(options.select)
        anew(outcome, known, again)
    judged = not (options.select or options.kafka)
    lines = outcome.news(known, skips) if judged else outcome.news([])
    top = sum("/" not in test for test in outcome.passed)
    return report(outcome, lines, as_json=options.json, of_passed=f"{top} of them top-level")


if __name__ == "__main__":
    sys.exit(main())
