"""librdkafka's own test suite against our Kafka face, with consumers of both group protocols.

    python -m tests.foreign.librdkafka --suites DIR [--protocol classic|consumer] [-k NUMBER]... [--json]

DIR holds a checkout of github.com/confluentinc/librdkafka, or is one, with its tests built as its own
tests/README.md says; `tests/test-runner` is run. Each number of the suite (`-k 0045`) gets its own process,
in the suite's quick mode; tests that need no broker are left out. A test's id is PROTOCOL/NAME.

Exit code 0: exactly the tests in librdkafka.toml failed or were skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.peers.kafka.jars import class_path, missing_tools
from bench.peers.kafka.tools import java, tool_command
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from .suite import Known, Outcome, broker, explained_skips, known_failures, report

HERE = Path(__file__).resolve().parent
ALLOW_LIST = HERE / "librdkafka.toml"
# The settings of the suite's own brokers: four partitions, short first rebalances, short sessions.
FLAGS = ("--mqtt", "off", "--admin", "off", "--stare", "off", "--amqp", "off", "--default-partitions", "4")
PROTOCOLS = ("classic", "consumer")
CLAIMED_KAFKA = "4.1.0.0"  # the newest without share groups; the suite skips tests for other versions
LIMIT_S = 600  # for one number
WORKERS = 2  # tests mostly wait
FURTHER_RUNS = 2  # of flaky tests that failed
LOCAL = "Filtered due to negative test flags"  # the suite's message for a test that needs no broker
OTHERWISE = "it is of another scenario"  # a case for which the suite has no message
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, order=True)
class Asked:
    """The tests for one process: all tests of a number, or those with `part` in the subtest's name."""

    protocol: str
    number: str
    part: str = ""


@dataclass(frozen=True)
class Suite:
    """A built suite and the broker it runs against."""

    folder: Path  # the checkout's `tests`
    address: str
    tools: Path  # has Kafka's scripts in `bin`
    scenario: str = "default"  # the suite's name for the broker's set-up

    def numbers(self) -> list[str]:
        """Returns the numbers of all tests, in order, except those that the suite only runs by hand."""
        with tempfile.TemporaryDirectory() as work:
            report, _ = self._run(Asked("classic", "none"), Path(work))
        return sorted({name.split("_")[0] for name in report if name[0] == "0"})

    def outcome_of(self, asked: Asked) -> Outcome:
        with tempfile.TemporaryDirectory() as work:
            report, printed = self._run(asked, Path(work))
        found = read_report(report, printed, asked)
        if self.scenario != "default":
            found.skipped = {test: why for test, why in found.skipped.items() if why != OTHERWISE}
        if not report:
            found.failed[f"{asked.protocol}/{asked.number}"] = "it broke off: " + last_line(printed)
        return found

    def _run(self, asked: Asked, work: Path) -> tuple[dict[str, dict[str, object]], str]:
        """Returns the report's tests (none without a report), and all output."""
        report, settings = work / "report.json", work / "test.conf"
        settings.write_text(f"bootstrap.servers={self.address}\ntest.topic.random=true\n")
        libraries = [str(self.folder.parent / part) for part in ("src", "src-cpp")]
        environment = os.environ | {
            "BROKERS": self.address,
            "KAFKA_PATH": str(self.tools),
            "LD_LIBRARY_PATH": os.pathsep.join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]),
            "RDKAFKA_TEST_CONF": str(settings),
            "TESTS": asked.number,
            "TEST_CONSUMER_GROUP_PROTOCOL": asked.protocol,
            "TEST_KAFKA_VERSION": CLAIMED_KAFKA,
            "TEST_REPORT": str(report),
            "TEST_SCENARIO": self.scenario,
            **({"SUBTESTS": asked.part} if asked.part else {}),
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
    """Returns the suite's folder under `suites`, with its runner built; None if it is missing."""
    for folder in (Path(suites), Path(suites) / "librdkafka"):
        if (folder / "tests" / "test-runner").is_file():
            return (folder / "tests").resolve()
    return None


def last_line(printed: str) -> str:
    return (printed.strip().splitlines() or [""])[-1][:200]


def reason_of(name: str, printed: str) -> str:
    """Returns the suite's message about a failed test, as it happened or in its summary, or about a skipped
    one."""
    for pattern in (
        rf'^### Test "{name}[ "].* failed .*###\n(.+)$',
        rf"^\|\s+{name}\s+\|[^|]*\|[^|]*\|(.*)$",
    ):
        if found := re.search(pattern, printed, re.MULTILINE):
            return found[1].strip()[:200]
    return ""


def read_report(tests: dict[str, dict[str, object]], printed: str, asked: Asked) -> Outcome:
    """Returns the outcome of the requested tests. The reasons of failures and skips are in the output."""
    outcome = Outcome()
    for name, told in tests.items():
        if name.split("_")[0] != asked.number:
            continue
        test = f"{asked.protocol}/{name}" + (f"/{asked.part}" if asked.part else "")
        state = told["state"]
        reason = reason_of(name, printed)
        outcome.seconds[test] = float(str(told["duration"]))
        if state == "PASSED":
            outcome.passed.append(test)
        elif state != "SKIPPED":
            outcome.failed[test] = reason or str(state).lower()
        elif reason != LOCAL:
            outcome.skipped[test] = reason or OTHERWISE
    return outcome


def run(suite: Suite, wanted: Sequence[Asked], follow: Callable[[Asked, Outcome], None]) -> Outcome:
    whole = Outcome()

    def one(asked: Asked) -> Outcome:
        found = suite.outcome_of(asked)
        follow(asked, found)
        return found

    with ThreadPoolExecutor(WORKERS) as pool:
        for found in pool.map(one, wanted):
            add(whole, found)
    return whole


def add(whole: Outcome, more: Outcome) -> None:
    """Adds other tests, or another scenario, which may run tests that an earlier one skipped."""
    whole.passed += more.passed
    whole.failed |= more.failed
    whole.seconds |= more.seconds
    ran = {*whole.passed, *whole.failed}
    skipped = more.skipped | whole.skipped
    whole.skipped = {test: why for test, why in skipped.items() if test not in ran}


def asked_for(test: str) -> Asked:
    """Returns the process that runs the test of this id."""
    protocol, name, *part = test.split("/")
    return Asked(protocol, name.split("_")[0], *part)


def anew(outcome: Outcome, known: list[Known], again: Callable[[list[Asked]], Outcome]) -> None:
    """Repeats failed tests that may be flaky, at most twice."""
    for _ in range(FURTHER_RUNS):
        wanted = sorted({asked_for(test) for test in outcome.failed_flaky(known)})
        if not wanted:
            return
        further = again(wanted)
        further.passed = [test for test in further.passed if test in outcome.failed]
        outcome.take_again(further)


@dataclass(frozen=True)
class Scenario:
    """A broker set-up, by the daemon's flags, and the numbers that run with it."""

    name: str
    flags: tuple[str, ...]
    numbers: tuple[str, ...]


def scenarios() -> list[Scenario]:
    """Returns the scenarios other than the default."""
    listed = tomllib.loads(ALLOW_LIST.read_text()).get("scenarios", [])
    return [Scenario(one["name"], tuple(one["flags"]), tuple(one["numbers"])) for one in listed]


def everything(numbers: Sequence[str], protocols: Sequence[str]) -> list[Asked]:
    """Returns all of these numbers; for those that end early because something is missing, also their other
    parts."""
    listed = tomllib.loads(ALLOW_LIST.read_text()).get("parts", [])
    parts = {entry["number"]: entry["parts"] for entry in listed}
    return [
        Asked(protocol, number, part)
        for protocol in protocols
        for number in numbers
        for part in ("", *parts.get(number, ()))
    ]


@contextlib.contextmanager
def kafka_tools() -> Iterator[Path]:
    """Yields a folder whose `bin` has the Kafka scripts that the suite calls; none without Java."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = Path(folder) / "bin"
        scripts.mkdir()
        if not missing_tools():
            commands = {name: shlex.join(tool_command(name)) for name in ("kafka-topics", "kafka-acls")}
            commands["kafka-run-class"] = f'{java()} -cp "$CLASSPATH":{shlex.quote(class_path())}'
            for name, command in commands.items():
                script = scripts / f"{name}.sh"
                script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
                script.chmod(0o755)
        yield Path(folder)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.librdkafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suites", default="", help="folder with a built librdkafka")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="use this broker instead of a daemon of our own")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="default: both")
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
    with kafka_tools() as tools, Progress(*columns, console=console, transient=True) as progress:
        shown = progress.add_task("")

        def follow(asked: Asked, found: Outcome) -> None:
            progress.update(shown, advance=1, description=f"{asked.protocol}/{asked.number} {asked.part}")
            for test, why in found.failed.items():
                progress.console.print(f"failed {test}: {why}", highlight=False, soft_wrap=True)

        def in_scenario(suite: Suite, numbers: Sequence[str]) -> Outcome:
            wanted = everything(numbers, options.protocol or PROTOCOLS)
            progress.reset(shown, total=len(wanted))
            found = run(suite, wanted, follow)
            anew(found, known, lambda tests: run(suite, tests, follow))
            return found

        with broker(options.kafka, FLAGS) as address:
            suite = Suite(folder, address, tools)
            outcome = in_scenario(suite, options.numbers or suite.numbers())
        for scenario in () if options.kafka else scenarios():
            numbers = [n for n in scenario.numbers if n in (options.numbers or scenario.numbers)]
            with broker(None, (*FLAGS, *scenario.flags)) as address:
                add(outcome, in_scenario(Suite(folder, address, tools, scenario.name), numbers))
    judged = not (options.numbers or options.protocol or options.kafka)
    lines = outcome.news(known, skips) if judged else outcome.news([])
    return report(outcome, lines, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
