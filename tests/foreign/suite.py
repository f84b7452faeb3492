"""Runs kafka-python's own integration suite, from its sdist, against a broker at a given address."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from treecast.middleware.daemon.process import DaemonProcess

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache"
VERSION = "3.0.12"
SDIST_SHA256 = "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
ALLOW_LIST = HERE / "kafka_python.toml"
# The newest broker whose features the suite knows; its clients adapt to ApiVersions.
CLAIMED_KAFKA = "4.3"


@dataclass(frozen=True)
class Known:
    """An entry of the allow list. `flaky`: the test must pass in one of three runs."""

    test: str
    reason: str
    flaky: bool = False


@dataclass
class Outcome:
    """The results of all tests. Keys of `failed` and `skipped` are test ids, values the first line of the
    reason."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def failed_flaky(self, known: Sequence[Known]) -> list[str]:
        return [entry.test for entry in known if entry.flaky and entry.test in self.failed]

    def take_again(self, again: Outcome) -> None:
        """Adds another run of failed tests: one pass is enough."""
        self.failed |= again.failed
        for test in again.passed:
            del self.failed[test]
        self.passed += again.passed

    def unexpected_failures(self, known: Sequence[Known]) -> dict[str, str]:
        names = {entry.test for entry in known if not entry.flaky}
        return {test: why for test, why in self.failed.items() if test not in names}

    def unexpected_passes(self, known: Sequence[Known]) -> list[str]:
        return [entry.test for entry in known if entry.test in self.passed and not entry.flaky]

    def stale(self, known: Sequence[Known]) -> list[str]:
        """Returns entries that name no test which ran."""
        seen = {*self.passed, *self.failed}
        return [entry.test for entry in known if entry.test not in seen]

    def news(self, known: Sequence[Known], skips: Sequence[Known] | None = None) -> list[str]:
        """Returns the differences from the allow list, as lines to print. `skips` explains skips; None: every
        skip is allowed."""
        failed = self.unexpected_failures(known)
        return [
            *self.unexplained_skips(skips),
            *(f"failed: {test}: {why}" for test, why in failed.items()),
            *(f"passes now, take it off the allow list: {test}" for test in self.unexpected_passes(known)),
            *(f"on the allow list, but did not run: {test}" for test in self.stale(known)),
        ]

    def unexplained_skips(self, skips: Sequence[Known] | None) -> list[str]:
        if skips is None:
            return []
        names = {entry.test for entry in skips}
        return [
            *(
                f"skipped, for no reason on the list: {t}: {why}"
                for t, why in self.skipped.items()
                if t not in names
            ),
            *(f"listed as skipped, but was not: {name}" for name in sorted(names - self.skipped.keys())),
        ]


def report(outcome: Outcome, news: Sequence[str], *, as_json: bool, of_passed: str = "") -> int:
    """Prints a suite's outcome; returns the exit code: 1 for any news. `of_passed`: text to add to the passed
    tests."""
    if as_json:
        print(json.dumps(asdict(outcome) | {"news": news}))
    else:
        passed = f"{len(outcome.passed)} passed{of_passed and f' ({of_passed})'}"
        print(f"{passed}, {len(outcome.failed)} failed, {len(outcome.skipped)} skipped")
        print("\n".join(news))
    return 1 if news else 0


@contextlib.contextmanager
def broker(address: str | None, flags: Sequence[str]) -> Iterator[str]:
    """Yields HOST:PORT of the given broker, or of a daemon of our own with these flags."""
    if address:
        yield address
        return
    with tempfile.TemporaryDirectory() as folder, DaemonProcess(Path(folder) / "data", flags) as daemon:
        yield daemon.kafka


def known_failures(path: Path = ALLOW_LIST) -> list[Known]:
    return _entries(path, "known")


def explained_skips(path: Path) -> list[Known]:
    """Returns the allow list's `skipped`: each entry names a `test`, or several `tests` with one reason."""
    return _entries(path, "skipped")


def _entries(path: Path, kind: str) -> list[Known]:
    return [
        Known(test, entry["reason"], entry.get("flaky", False))
        for entry in tomllib.loads(path.read_text()).get(kind, [])
        for test in entry.get("tests") or [entry["test"]]
    ]


def ensure_suite() -> Path:
    """Returns the unpacked sdist; the first call fetches it with pip and checks its digest."""
    folder = CACHE / f"kafka_python-{VERSION}"
    if (folder / "test" / "integration").is_dir():
        return folder
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-binary", "kafka-python", f"kafka-python=={VERSION}", "-d", work]
        subprocess.run(command, check=True)
        archive = next(Path(work).glob("kafka_python-*.tar.gz"))
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != SDIST_SHA256:
            raise RuntimeError(f"{archive.name} has digest {digest}, expected {SDIST_SHA256}")
        with tarfile.open(archive) as tar:
            # Releases of 3.11 before 3.11.4 know no filters; the digest says what is in the archive.
            tar.extractall(work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
        (Path(work) / folder.name).rename(folder)
    return folder


def run_suite(
    address: str,
    *,
    select: str = "",
    only: Sequence[str] = (),
    limit_s: int = 60,
    progress: Callable[[str], None] | None = None,
) -> Outcome:
    """Runs the suite against the broker at `address` (HOST:PORT).

    `select` is pytest's -k; `only` names tests as an Outcome does (MODULE::TEST, not tests of classes).
    """
    suite = ensure_suite()
    with tempfile.TemporaryDirectory() as work:
        report, settings = Path(work) / "report.xml", Path(work) / "pytest.ini"
        settings.write_text("[pytest]\naddopts =\n")
        command = [sys.executable, "-m", "pytest", "-v", "-c", str(settings), f"--rootdir={suite}"]
        command += ["-p", "no:cacheprovider", "-p", "plugin", "--tb=short", f"--junitxml={report}"]
        command += [*(["-k", select] if select else []), *_targets(suite / "test" / "integration", only)]
        environment = os.environ | {
            "FOREIGN_SUITE": str(suite),
            "FOREIGN_TEST_LIMIT": str(limit_s),
            "KAFKA_ROOT": work,  # must exist; an external broker is never started from it
            "KAFKA_URI": f"kafka://{address}",
            "KAFKA_VERSION": CLAIMED_KAFKA,
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with subprocess.Popen(
            command, env=environment, cwd=work, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as running:
            assert running.stdout is not None
            tail: list[str] = []
            for line in running.stdout:
                tail = [*tail[-60:], line]
                if progress is not None:
                    progress(line.rstrip())
        if not report.exists():
            raise RuntimeError("the suite wrote no report:\n" + "".join(tail))
        return read_report(report)


def _targets(folder: Path, only: Sequence[str]) -> list[str]:
    named = (test.split("::") for test in only)
    return [f"{folder / module}.py::{name}" for module, name in named] or [str(folder)]


def read_report(path: Path) -> Outcome:
    outcome = Outcome()
    for case in ElementTree.parse(path).iter("testcase"):
        test = f"{str(case.get('classname', '')).rsplit('.', 1)[-1]}::{case.get('name')}"
        outcome.seconds[test] = float(case.get("time", 0))
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if bad is not None:
            outcome.failed.setdefault(test, _first_line(bad.get("message", "")))
        elif skip is not None:
            outcome.skipped[test] = _first_line(skip.get("message", ""))
        else:
            outcome.passed.append(test)
    return outcome


def _first_line(message: str) -> str:
    return (message.strip().splitlines() or [""])[0][:200]
