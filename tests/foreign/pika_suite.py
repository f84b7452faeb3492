"""pika's own acceptance tests against our AMQP face, or against the system's RabbitMQ as the control.

    python -m tests.foreign.pika_suite --suites DIR [--control | --amqp HOST:PORT] [-k SELECT] [--json]

DIR holds a clone of github.com/pika/pika at the tag of `VERSION`, or is one. The tests run in an environment
of their own in `.cache`, with every event loop that pika has an adapter for. They expect a broker at port
5672; the run replaces that number in a copy of them, and nothing else.

The tests have limits of a few seconds, which a busy machine exceeds: a test that fails is run twice more, and
has to pass once.

Exit code 0: exactly the tests on the allow list failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.peers.rabbitmq.node import Node, PortMapper, missing

from treecast.middleware.daemon.process import DaemonProcess

from .suite import CACHE, Outcome, known_failures, read_report, report

HERE = Path(__file__).resolve().parent
ALLOW_LIST = HERE / "pika.toml"
VERSION = "1.4.4"
REQUIREMENTS = (
    "pytest==9.2.0",
    "tornado==6.6.1",
    "twisted==26.10.0",
    "gevent==26.9.0",
    "pytest-timeout==2.4.0",
)
ENVIRONMENT = CACHE / f"pika-{VERSION}"
MODULES = (
    "blocking_adapter_test",
    "async_adapter_tests",
    "twisted_adapter_tests",
    "enforce_one_basicget_test",
)
PORT = "5672"
FACES = ("--kafka", "off", "--admin", "off", "--stare", "off", "--mqtt", "off", "--amqp", "127.0.0.1:0")
# The tests declare queues that are neither durable nor exclusive.
OURS = (*FACES, "--amqp-transient-queues", "true")
START_S = 120
LIMIT_S = 60  # for one test
FURTHER_RUNS = 2  # of tests that failed
SKIPPED_ADAPTER = "test_with_select_kqueue"


def find(suites: str) -> Path | None:
    """Returns the clone under `suites`; None if it is missing. Raises RuntimeError for another version."""
    for folder in (Path(suites), Path(suites) / "pika"):
        about = folder / "pika" / "__init__.py"
        if about.exists() and (folder / "tests" / "acceptance").is_dir():
            found = re.search(r"__version__ = '([^']+)'", about.read_text())
            if found is None or found[1] != VERSION:
                raise RuntimeError(f"{folder} has pika {found and found[1]}: check out the tag {VERSION}")
            return folder
    return None


def ensure_environment() -> Path:
    """Returns the environment's Python; the first call makes it from the package registry."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *REQUIREMENTS], check=True)
        (ENVIRONMENT / "ready").touch()
    return python


@contextlib.contextmanager
def treecast(flags: Sequence[str] = OURS) -> Iterator[tuple[str, int]]:
    """Runs a daemon of our own."""
    with tempfile.TemporaryDirectory() as folder, DaemonProcess(Path(folder) / "data", flags) as daemon:
        yield daemon.address("amqp")
        if "Traceback" in daemon.log():
            raise RuntimeError(daemon.log())


@contextlib.contextmanager
def rabbitmq() -> Iterator[tuple[str, int]]:
    """Runs the system's RabbitMQ. Raises RuntimeError if it is not installed."""
    if lacking := missing():
        raise RuntimeError(lacking)
    user = {"name": "guest", "password": "guest", "tags": "administrator"}
    permission = {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    definitions = {"users": [user], "vhosts": [{"name": "/"}], "permissions": [permission]}
    with tempfile.TemporaryDirectory() as folder:
        mapper = PortMapper(Path(folder))
        node: Node | None = None
        try:
            node = Node("foreign", Path(folder) / "node", mapper, definitions, ())
            node.wait(START_S)
            yield node.address
        finally:
            if node is not None:
                node.process.stop()
            mapper.process.stop()


@contextlib.contextmanager
def given(address: str) -> Iterator[tuple[str, int]]:
    host, _, port = address.rpartition(":")
    yield host, int(port)


def copy_of(suite: Path, folder: Path, port: int) -> Path:
    """Copies the client and its tests to `folder`, for a broker on `port` of 127.0.0.1."""
    for name in ("pika", "tests", "testdata"):
        shutil.copytree(suite / name, folder / name)
    for room in ("acceptance", "base"):
        for path in (folder / "tests" / room).glob("*.py"):
            path.write_text(path.read_text().replace(PORT, str(port)))
    return folder


def run(suite: Path, address: tuple[str, int], select: str = "") -> Outcome:
    """Runs the acceptance tests against the broker at `address`, which must be on 127.0.0.1."""
    python = ensure_environment()
    with tempfile.TemporaryDirectory() as work:
        folder = copy_of(suite, Path(work), address[1])
        (folder / "pytest.ini").write_text("[pytest]\naddopts =\n")
        outcome = _once(python, folder, select)
        for _ in range(FURTHER_RUNS):
            if outcome.failed:
                outcome.take_again(_once(python, folder, select, "--last-failed"))
        return outcome


def _once(python: Path, folder: Path, select: str, *more: str) -> Outcome:
    found = folder / "report.xml"
    found.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-c", "pytest.ini", *more]
    command += [f"--timeout={LIMIT_S}", "--tb=short", f"--junitxml={found}"]
    command += ["-k", f"({select or 'test'}) and not {SKIPPED_ADAPTER}"]
    command += [f"tests/acceptance/{module}.py" for module in MODULES]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if not found.exists():
        raise RuntimeError(f"the suite wrote no report:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return read_report(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.foreign.pika_suite", description=__doc__)
    parser.add_argument("--suites", default="", help="folder with the clone of pika")
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--control", action="store_true", help="test the system's RabbitMQ instead")
    server.add_argument("--amqp", metavar="HOST:PORT", help="test this broker on 127.0.0.1 instead")
    parser.add_argument("-k", dest="select", default="", help="only tests that match, as pytest's -k")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    suite = find(options.suites)
    if suite is None:
        print(f"{options.suites or 'no folder'} holds no pika: clone it at {VERSION}, and say --suites DIR")
        return 2
    broker = rabbitmq() if options.control else given(options.amqp) if options.amqp else treecast()
    with broker as address:
        outcome = run(suite, address, options.select)
    known = known_failures(ALLOW_LIST) if not (options.control or options.amqp) else []
    lines = outcome.news(known) if not options.select else []
    return report(outcome, lines, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
