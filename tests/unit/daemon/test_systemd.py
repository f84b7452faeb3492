"""The service unit: systemd takes it as it is, and it says what the manual promises."""

from __future__ import annotations

import configparser
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[3] / "systemd" / "treecast.service"


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment]
    parsed.read(UNIT)
    return dict(parsed["Service"])


def test_systemd_accepts_it(require_tool: Callable[[str], str]) -> None:
    analyze = require_tool("systemd-analyze")
    done = subprocess.run(
        [analyze, "verify", str(UNIT)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_broken_unit_would_be_noticed(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    broken = tmp_path / "treecast.service"
    broken.write_text(UNIT.read_text().replace("Type=notify", "Type=notfy"))
    done = subprocess.run(
        [require_tool("systemd-analyze"), "verify", str(broken)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "notfy" in done.stderr


def test_it_is_little_exposed(require_tool: Callable[[str], str]) -> None:
    command = [require_tool("systemd-analyze"), "security", "--offline=true", "--threshold=20", str(UNIT)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_it_tells_when_it_is_ready_and_keeps_its_places(service: dict[str, str]) -> None:
    assert service["Type"] == "notify"
    assert service["StateDirectory"] == service["RuntimeDirectory"] == "treecast"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"  # what `treecast up` answers to wrong settings
    assert int(service["LimitNOFILE"]) > 100_000
    assert service["ExecStart"].endswith("treecast up")
