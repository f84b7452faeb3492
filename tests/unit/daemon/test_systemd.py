"""systemd accepts the service unit, and the unit matches the manual."""

from __future__ import annotations

import configparser
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "systemd"
UNIT = FOLDER / "treecast.service"
COORDINATOR = FOLDER / "treecast-coordinator.service"
AGENT = FOLDER / "treecast-agent@.service"
UNITS = pytest.mark.parametrize("unit", [UNIT, COORDINATOR, AGENT], ids=lambda unit: unit.stem)


def service(unit: Path, section: str = "Service") -> dict[str, str]:
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment]
    parsed.read(unit)
    return dict(parsed[section])


@UNITS
def test_systemd_accepts_it(unit: Path, require_tool: Callable[[str], str]) -> None:
    analyze = require_tool("systemd-analyze")
    done = subprocess.run(
        [analyze, "verify", str(unit)], check=False, capture_output=True, text=True, timeout=60
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


@UNITS
def test_it_is_little_exposed(unit: Path, require_tool: Callable[[str], str]) -> None:
    command = [require_tool("systemd-analyze"), "security", "--offline=true", "--threshold=20", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@UNITS
def test_it_tells_when_it_is_ready_and_keeps_its_places(unit: Path) -> None:
    found = service(unit)
    assert found["Type"] == "notify"
    assert found["StateDirectory"] == unit.stem.rstrip("@")
    assert found["Restart"] == "on-failure"
    assert found["WatchdogSec"] == "30s"
    assert found["MemoryMax"].endswith("%")
    assert found["RestartPreventExitStatus"] == "2"  # the exit code for wrong settings
    assert int(found["LimitNOFILE"]) > 100_000


@UNITS
def test_it_is_started_again_for_as_long_as_it_fails(unit: Path) -> None:
    """By default systemd gives up after five starts in 10 s, and a host stays down when its disk has room."""
    assert service(unit, "Unit")["StartLimitIntervalSec"] == "0"


@UNITS
def test_it_may_be_told_that_an_address_has_gone(unit: Path) -> None:
    """`ListenerAddresses` and the fabric ask the kernel for that by rtnetlink(7)."""
    assert "AF_NETLINK" in service(unit)["RestrictAddressFamilies"].split()


def test_each_runs_its_command() -> None:
    assert service(UNIT)["ExecStart"].endswith("treecast up")
    assert service(UNIT)["RuntimeDirectory"] == "treecast"
    assert service(COORDINATOR)["ExecStart"].endswith("treecast coordinator")
    assert service(AGENT)["ExecStart"].endswith("treecast agent %i --config /etc/treecast/agent-%i.toml")
