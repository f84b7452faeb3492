"""librdkafka's own test suite against our Kafka face, with consumers of both group protocols.

    python -m tests.foreign.librdkafka --suites DIR [--protocol classic|consumer] [-k NUMBER]... [--json]

DIR holds a checkout of github.com/confluentinc/librdkafka, or is one, with its tests built as its own
tests/README.md says: `tests/test-runner` is what runs. Each number of the suite (`-k 0045`) gets a process of
its own, in the suite's quick mode; tests that need no broker are left out. A test's id is PROTOCOL/NAME.

Exit code 0: nothing failed or was skipped but what librdkafka.toml names, and all that it names did so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from .suite import Known, Outcome, broker, explained_skips, known_failures

HERE = Path(__file__).resolve().parent
ALLOW_LIST = HERE / "librdkafka.toml"
# As the suite's own brokers are set up: four partitions, short first rebalances, short sessions.
FLAGS = ("--mqtt", "off", "--admin", "off", "--stare", "off", "--default-partitions", "4")
PROTOCOLS = ("classic", "consumer")
CLAIMED_KAFKA = "4.1.0.0"  # the newest without share groups; tests for others are skipped by the suite
LIMIT_S = 600  # for one number
WORKERS = 2  # tests mostly wait
FURTHER_RUNS = 2  # of what is flaky and failed
LOCAL = "Filtered due to negative test flags"  # how the suite says that a test needs no broker
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Suite:
    """A built suite and the broker it runs against."""

    folder: Path  # the checkout's `tests`
    address: str

    def numbers(self) -> list[str]:
        """The numbers of all tests, in order."""
        with tempfile.TemporaryDirectory() as work:
            report, _ = self._run("none", "classic", Path(work))
        return sorted({name.split("_")[0] for name in report if name[0].isdigit()})

    def outcome_of(self, number: str, protocol: str) -> Outcome:
        """What became of the tests of one number."""
        with tempfile.TemporaryDirectory() as work:
            report, printed = self._run(number, protocol, Path(work))
        found = read_report(report, printed, number, protocol)
        if not report:
            found.failed[f"{protocol}/{number}"] = "it broke off: " + last_line(printed)
        return found

    def _run(self, number: str, protocol: str, work: Path) -> tuple[dict[str, dict[str, object]], str]:
        """The report's tests (none where there is no report), and all that was printed."""
        report, settings = work / "report.json", work / "test.conf"
        settings.write_text(f"bootstrap.servers={self.address}\ntest.topic.random=true\n")
        libraries = [str(self.folder.parent / part) for part in ("src", "src-cpp")]
        environment = os.environ | {
            "LD_LIBRARY_PATH": os.pathsep.join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]),
            "RDKAFKA_TEST_CONF": str(settings),
            "TESTS": number,
            "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
            "TEST_KAFKA_VERSION": CLAIMED_KAFKA,
            "TEST_REPORT": str(report),
        }
        command = ["./test-runner", "-p1", "-L", "-Q"]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as running:
            try:
                printed = running.communicate(timeout=LIMIT_S)[0]
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                printed = running.communicate()[0] + b"\nno end within %d s" % LIMIT_S
        tests = json.loads(report.read_text(errors="replace"))["tests"] if report.exists() else {}
        return tests, COLOURS.sub("", printed.decode(errors="replace"))


def find(suites: str) -> Path | None:
    """The suite's folder under `suites`, with its runner built; None where it is not there."""
    for folder in (Path(suites), Path(suites) / "librdkafka"):
        if (folder / "tests" / "test-runner").is_file():
            return (folder / "tests").resolve()
    return None


def last_line(printed: str) -> str:
    return (printed.strip().splitlines() or [""])[-1][:200]


def read_report(tests: dict[str, dict[str, object]], printed: str, number: str, protocol: str) -> Outcome:
    """The tests of `number` in the suite's report. Why they failed or were skipped is printed beside it."""
    outcome = Outcome()
    for name, told in tests.items():
        if name.split("_")[0] != number:
            continue
        test, state = f"{protocol}/{name}", told["state"]
        found = re.search(rf"^\|\s+{re.escape(name)}\s+\|[^|]*\|[^|]*\|(.*)$", printed, re.MULTILINE)
        reason = found[1].strip()[:200] if found else ""
        outcome.seconds[test] = float(str(told["duration"]))
        if state == "PASSED":
            outcome.passed.append(test)
        elif state != "SKIPPED":
            outcome.failed[test] = reason or str(state).lower()
        elif reason != LOCAL:
            outcome.skipped[test] = reason
    return outcome


def run(suite: Suite, wanted: Sequence[tuple[str, str]], follow: Callable[[str, Outcome], None]) -> Outcome:
    """`wanted`: (number, protocol)."""
    whole = Outcome()

    def one(asked: tuple[str, str]) -> Outcome:
        found = suite.outcome_of(*asked)
        follow("/".join(reversed(asked)), found)
        return found

    with ThreadPoolExecutor(WORKERS) as pool:
        for found in pool.map(one, wanted):
            whole.passed += found.passed
            whole.failed |= found.failed
            whole.skipped |= found.skipped
            whole.seconds |= found.seconds
    return whole


def anew(outcome: Outcome, known: list[Known], again: Callable[[list[tuple[str, str]]], Outcome]) -> None:
    """Runs once more, twice at most, what failed and may at times."""
    for _ in range(FURTHER_RUNS):
        tests = {tuple(test.split("_")[0].split("/")) for test in outcome.failed_flaky(known)}
        if not tests:
            return
        further = again(sorted((number, protocol) for protocol, number in tests))
        further.passed = [test for test in further.passed if test in outcome.failed]
        outcome.take_again(further)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.librdkafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suites", default="", help="where librdkafka is, built")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="this broker, instead of a daemon of our own")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="both, where none is said")
    parser.add_argument("-k", dest="numbers", metavar="NUMBER", action="append", help="only these tests")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parse()
    folder = find(options.suites)
    if folder is None:
        print(
            f"{options.suites or 'no folder'} holds no librdkafka with a tests/test-runner: clone it, build "
            "it and its tests as its README says, and say --suites DIR"
        )
        return 2
    known, skips = known_failures(ALLOW_LIST), explained_skips(ALLOW_LIST)
    console = Console(stderr=True)
    columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    with (
        broker(options.kafka, FLAGS) as address,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        suite = Suite(folder, address)
        numbers = options.numbers or suite.numbers()
        protocols = options.protocol or PROTOCOLS
        wanted = [(number, protocol) for protocol in protocols for number in numbers]
        shown = progress.add_task("", total=len(wanted))

        def follow(name: str, found: Outcome) -> None:
            progress.update(shown, advance=1, description=name)
            for test, why in found.failed.items():
                progress.console.print(f"failed {test}: {why}", highlight=False, soft_wrap=True)

        outcome = run(suite, wanted, follow)
        anew(outcome, known, lambda tests: run(suite, tests, follow))
    judged = not (options.numbers or options.protocol or options.kafka)
    lines = outcome.news(known, skips) if judged else outcome.news([])
    if options.json:
        print(json.dumps(dataclasses.asdict(outcome) | {"news": lines}))
    else:
        print(f"{len(outcome.passed)} passed, {len(outcome.failed)} failed, {len(outcome.skipped)} skipped")
        print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
