"""What the log looks like, and that start-up stays light."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys
from treecast.middleware.daemon import logs
from treecast.middleware.daemon.settings import LogFormat, LogLevel, Settings
logs.configure(Settings(log_format=LogFormat({form!r}), log_level=LogLevel({level!r})))
log = logging.getLogger("treecast.test")
log.debug("small")
log.info("hello %s", "world", extra={{"face": "kafka"}})
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
    assert [entry["event"] for entry in entries] == ["hello world", "failed", "bound"]
    assert entries[0] | {"timestamp": ""} == {
        "event": "hello world",
        "face": "kafka",
        "level": "info",
        "logger": "treecast.test",
        "timestamp": "",
    }
    assert "ValueError: broken" in entries[1]["exception"]
    assert (entries[2]["count"], entries[2]["level"]) == (3, "warning")


def test_console() -> None:
    lines = log_lines("console", "debug")
    assert "small" in lines[0]
    assert "hello world" in lines[1]
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
    assert rooms & {"relay", "control", "fabric"} == set()  # a host alone pays nothing for the others
    heavy = {"typer", "rich", "aiohttp", "prometheus_client", "kafka", "pytest", "pydantic"}
    assert loaded & (heavy | {"argparse", "crc32c", "email"}) == set()
