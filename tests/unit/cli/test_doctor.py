"""doctor: what it finds on this machine, and what would keep a daemon from starting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treecast.middleware.api.discovery import Address
from treecast.middleware.daemon.listeners import bound_address, listen


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alone: None) -> None:
    """Settings under which a daemon could start, whatever else runs on this machine."""
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
        "control address",
        "runtime directory",
        "open files",
    }
    assert {level for level, _ in found.values()} <= {"ok", "slow"}
    assert str(tmp_path / "data") in found["data directory"][1]
    assert "python" in command("doctor").out


def test_a_port_in_use_is_bad(free: None, command, monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("admin", Address("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("TREECAST_KAFKA", str(bound_address(listener)))
        monkeypatch.setenv("TREECAST_CONTROL", "127.0.0.1:1")
        ran = command("doctor")
    assert ran.code == 1
    assert "the port is in use" in ran.out


def test_a_port_that_a_daemon_of_ours_uses_is_fine(
    free: None, treecast, shared_daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREECAST_KAFKA", shared_daemon.kafka)
    monkeypatch.setenv("TREECAST_CONTROL", shared_daemon.control)
    found = findings(treecast("doctor", "--json"))
    assert found["kafka address"][0] == "ok"
    assert "a daemon's control address answers" in found["kafka address"][1]
    assert "live: admin control kafka mqtt stare" in found["runtime directory"][1]
    level, detail = found["data directory"]
    assert level == "ok"
    assert detail.startswith(f"{shared_daemon.data}, in use by the daemon ")
    assert detail.endswith(" GiB free")


def test_what_the_running_daemon_says_of_its_disk_is_told() -> None:
    from treecast.middleware.api.v1 import daemon_pb2 as pb
    from treecast.middleware.cli.doctor import _data_of

    resources = pb.Resources(disk_free_bytes=1 << 20, disk_bytes=1 << 30)
    status = pb.StatusResponse(name="h", pid=7, data_dir="/d", resources=resources, problems=["it is full"])
    data, problem = _data_of("/elsewhere", status)
    assert (data.level, problem.level, problem.detail) == ("slow", "bad", "it is full")
    assert data.detail == (
        "/d, in use by the daemon h (pid 7), 0.0 GiB free: give it more space, or delete topics or records"
    )


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
