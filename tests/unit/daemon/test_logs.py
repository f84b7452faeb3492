"""The form of log lines, and the light start-up of the daemon."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from treecast.middleware.daemon.disk_log_filter import DiskRepeats
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

SCRIPT = """
import sys
from treecast.middleware.daemon import logs
from treecast.middleware.daemon.settings import LogFormat, LogLevel, Settings
logs.configure(Settings(log_format=LogFormat({form!r}), log_level=LogLevel({level!r})))
from treecast.middleware.model.logs import Log
log = Log("treecast.test")
log.debug("small")
log.info("hello", face="kafka", name=ValueError("world"), count=3, gone=None)
try:
    raise ValueError("broken")
except ValueError:
    log.exception("failed")
import structlog
structlog.get_logger("own").warning("bound", count=3)
assert "rich" not in sys.modules
"""


def log_lines(form: str, level: str) -> list[str]:
    script = SCRIPT.format(form=form, level=level)
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("form", ["json", "auto"])
def test_json(form: str) -> None:
    entries = [json.loads(line) for line in log_lines(form, "info")]
    assert [entry["event"] for entry in entries] == ["hello", "failed", "bound"]
    assert entries[0] | {"timestamp": ""} == {
        "event": "hello",
        "face": "kafka",
        "name": "world",
        "count": 3,
        "level": "info",
        "logger": "treecast.test",
        "timestamp": "",
    }
    assert "ValueError: broken" in entries[1]["exception"]
    assert (entries[2]["count"], entries[2]["level"]) == (3, "warning")


def test_console() -> None:
    lines = log_lines("console", "debug")
    assert "small" in lines[0]
    assert "hello" in lines[1]
    assert "face=kafka" in lines[1]
    assert any("ValueError: broken" in line for line in lines)


def test_the_level_holds_for_all() -> None:
    assert [json.loads(line)["event"] for line in log_lines("json", "error")] == ["failed"]


def test_a_daemon_loads_nothing_that_only_commands_and_pages_need() -> None:
    script = (
        "import sys\nfrom treecast.middleware.cli import up\n"
        "from treecast.middleware.daemon import run, logs\n"
        "from treecast.middleware.daemon.settings import Settings; logs.configure(Settings())\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))\n"
        "print(*sorted(n.split('.')[2] for n in sys.modules if n.startswith('treecast.middleware.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    loaded, rooms = (set(line.split()) for line in done.stdout.splitlines())
    assert "treecast" in loaded
    assert "broker" in rooms
    assert rooms & {"relay", "control", "fabric"} == set()  # a host alone loads no module of these packages
    heavy = {"typer", "rich", "aiohttp", "prometheus_client", "kafka", "pytest", "pydantic"}
    assert loaded & (heavy | {"argparse", "crc32c", "email"}) == set()


class Handler(logging.Handler):
    """Keeps log records, as text and whether they have a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.getMessage(), bool(record.exc_info)))


def listened(repeats: DiskRepeats) -> tuple[Log, Handler]:
    """A log whose lines pass the filter, and what it says."""
    log, handler = Log(f"treecast.test.{id(repeats)}"), Handler()
    handler.addFilter(repeats)
    logging.getLogger(f"treecast.test.{id(repeats)}").addHandler(handler)
    return log, handler


def test_what_a_full_disk_makes_fail_is_said_once_for_each_kind_and_rarely_again() -> None:
    now = 0.0
    log, handler = listened(DiskRepeats(lambda: now))
    for second in range(1300):
        now = float(second)
        full = TreecastError(Fault.STORAGE, "cannot write: 100 % full")  # one raised again has a longer trace
        log.error("part", number=second, error=full)
        try:
            raise full
        except TreecastError:
            log.exception("stream", number=second)
    assert handler.said == [
        ("part: error=cannot write: 100 % full, number=0", False),
        ("stream: error=cannot write: 100 % full, number=0", False),
        ("part: error=cannot write: 100 % full, number=600, left_out=599", False),
        ("stream: error=cannot write: 100 % full, number=600, left_out=599", False),
        ("part: error=cannot write: 100 % full, number=1200, left_out=599", False),
        ("stream: error=cannot write: 100 % full, number=1200, left_out=599", False),
    ]


def test_all_else_is_said_each_time_and_with_its_trace() -> None:
    log, handler = listened(DiskRepeats(lambda: 0.0))
    for _ in range(2):
        log.error("refused", error=TreecastError(Fault.TIMED_OUT, "late"))
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("failed")
    assert handler.said == [("refused: error=late", False), ("failed", True)] * 2
