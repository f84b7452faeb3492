"""`doctor` reports this machine's state, and everything that would keep a daemon from starting."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from treecast.middleware.api.discovery import Address
from treecast.middleware.daemon.compiled import Built
from treecast.middleware.daemon.listeners import bound_address, listen


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alone: None) -> None:
    """Settings with which a daemon could start, whatever else runs on this machine."""
    monkeypatch.setenv("TREECAST_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TREECAST_KAFKA", "127.0.0.1:0")
    monkeypatch.setenv("TREECAST_ADMIN", "off")
    monkeypatch.setenv("TREECAST_MQTT", "off")
    monkeypatch.setenv("TREECAST_STARE", "off")
    monkeypatch.setenv("TREECAST_CONTROL", "127.0.0.1:0")


def findings(ran) -> dict[str, tuple[str, str]]:
    return {entry["check"]: (entry["level"], entry["detail"]) for entry in ran.json}


def test_a_healthy_machine(free: None, command, tmp_path: Path) -> None:
    found = findings(command("doctor", "--json"))
    assert set(found) == {
        "python",
        "event loop",
        "hot modules",
        "data directory",
        "kafka address",
        "amqp address",
        "control address",
        "runtime directory",
        "open files",
    }
    assert {level for level, _ in found.values()} <= {"ok", "slow"}
    assert str(tmp_path / "data") in found["data directory"][1]
    assert "python" in command("doctor").out


def test_interpreted_modules_are_told_with_their_reason(
    free: None, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treecast.middleware.daemon.compiled.compiled_modules", list)
    monkeypatch.setattr(
        "treecast.middleware.daemon.compiled.read_note",
        lambda _: Built("no-compiler", "no C compiler was found (cc)"),
    )
    level, detail = findings(command("doctor", "--json"))["hot modules"]
    assert level == "slow"
    assert "no C compiler was found (cc); once gcc and Python's headers are installed" in detail


def test_a_port_in_use_is_bad(free: None, command, monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("admin", Address("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("TREECAST_KAFKA", str(bound_address(listener)))
        monkeypatch.setenv("TREECAST_CONTROL", "127.0.0.1:1")
        ran = command("doctor")
    assert ran.code == 1
    assert "the port is in use" in ran.out


def test_beside_a_daemon_that_daemon_is_asked(
    free: None, treecast, shared_daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of this shell do not matter. The daemon's own ports are not reported as taken."""
    monkeypatch.setenv("TREECAST_KAFKA", shared_daemon.kafka)
    monkeypatch.delenv("TREECAST_CONTROL")
    found = findings(treecast("doctor", "--json"))
    assert f"pid {shared_daemon.pid}, and answers at {shared_daemon.control}" in found["daemon"][1]
    assert str(shared_daemon.runtime_dir) in found["daemon"][1]
    assert found["data directory"][0] == "ok"
    assert found["data directory"][1].startswith(f"{shared_daemon.data} (")
    for face in ("kafka", "amqp", "mqtt", "stare", "admin", "control"):
        assert found[f"{face} address"] == ("ok", f"{shared_daemon.ready[face]} is served")
    assert found["runtime directory"] == ("ok", str(shared_daemon.runtime_dir))
    limit = shared_daemon.process.pid
    hard = next(
        int(line.split()[4])
        for line in Path(f"/proc/{limit}/limits").read_text().splitlines()
        if line.startswith("Max open files")
    )
    assert found["open files"][1].endswith(f" of {hard:,}")
    assert treecast("doctor").code == 0


def test_a_daemon_may_be_named(free: None, command, shared_daemon) -> None:
    found = findings(command("doctor", "--json", "--control", shared_daemon.control))
    assert str(shared_daemon.data) in found["data directory"][1]


def test_somebody_else_at_the_control_address_is_bad(
    free: None, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treecast.middleware.cli.doctor.DAEMON_SECONDS", 0.5)
    with listen("control", Address("127.0.0.1", 0)) as listener:
        ran = command("doctor", "--control", str(bound_address(listener)))
    assert ran.code == 1
    assert "does not answer as a daemon does" in ran.out


def test_a_runtime_directory_of_another_user_is_not_taken(
    free: None, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if this user may write there, as root may."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    monkeypatch.delenv("TREECAST_RUNTIME_DIR")
    monkeypatch.setattr("treecast.middleware.api.discovery._SYSTEM_RUNTIME_DIR", str(theirs))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert findings(command("doctor", "--json"))["runtime directory"] == ("ok", str(theirs))
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    level, detail = findings(command("doctor", "--json"))["runtime directory"]
    assert level == "slow"
    assert f"{theirs}: it belongs to another user" in detail


def test_a_data_directory_that_cannot_be_written(
    free: None, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path and real(path, mode))
    ran = command("doctor")
    assert ran.code == 1
    assert f"{tmp_path} is not writable" in ran.out


def test_wrong_settings_are_told(free: None, command, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("fsnc = 1")
    refused = command("doctor", "--config", str(path))
    assert refused.code == 1
    assert "did you mean 'fsync'?" in refused.err


def test_a_daemon_that_answers_by_its_unix_socket_alone_is_asked(
    free: None, treecast, shared_daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its TCP address may be gone: that is a finding, and no reason to look at what another daemon needs."""
    monkeypatch.delenv("TREECAST_CONTROL")

    def nobody(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("treecast.middleware.cli.doctor.socket.create_connection", nobody)
    ran = treecast("doctor", "--json")
    assert ran.code == 1
    found = {entry["check"]: (entry["level"], entry["detail"]) for entry in json.loads(ran.out)}
    assert f"pid {shared_daemon.pid}" in found["daemon"][1]
    level, detail = found["control address"]
    assert level == "bad"
    assert f"{shared_daemon.control} does not answer (no answer), and " in detail
