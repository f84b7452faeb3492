"""Data and sockets are accessible to the daemon's user and group only, including those of an earlier
version."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import StartDaemon

from treecast.middleware.daemon.file_permissions import tighten
from treecast.middleware.daemon.runtime_dir import RuntimeDir

SOCKET, DIRECTORY = 0o660, 0o750


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(root: Path) -> list[str]:
    """Returns the paths of a tree to which other users have any access."""
    below = (Path(where, name) for where, *both in os.walk(root) for name in (*both[0], *both[1]))
    everything = [root, *below]
    return [str(path) for path in everything if not path.is_symlink() and mode(path) & 0o007]


def loosen(root: Path) -> None:
    """Gives files the modes of version 0.1."""
    for where, folders, files in os.walk(root):
        for name in folders:
            Path(where, name).chmod(0o755)
        for name in files:
            if "token" not in name:
                Path(where, name).chmod(0o644)
    root.chmod(0o755)


def test_what_a_daemon_makes_is_private(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon(data=tmp_path / "made" / "data")
    sockets = sorted(daemon.runtime_dir.glob("*.sock"))
    assert len(sockets) == 6
    assert {mode(path) for path in sockets} == {SOCKET}
    assert mode(daemon.runtime_dir) == mode(daemon.data) == DIRECTORY
    assert open_to_others(daemon.runtime_dir) == open_to_others(daemon.data) == []
    assert mode(daemon.data / "control-token") == 0o600
    assert "access of other users was removed" not in daemon.log()


def test_what_an_earlier_version_made_is_tightened_once(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    daemon.stop()
    loosen(daemon.data)
    assert len(open_to_others(daemon.data)) > 5
    daemon.restart()
    assert open_to_others(daemon.data) == []
    assert mode(daemon.data) == DIRECTORY
    daemon.restart()
    assert daemon.log().count("access of other users was removed") == 1


def test_a_coordinators_directory_is_private(tmp_path: Path) -> None:
    data = tmp_path / "coordinator"
    data.mkdir(mode=0o755)
    command = [sys.executable, "-m", "treecast.middleware.cli", "coordinator", "--data", str(data)]
    with subprocess.Popen([*command, "--control", "127.0.0.1:0"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready ")
        assert open_to_others(data) == []
        assert mode(data) == DIRECTORY
        process.terminate()


def test_an_attempt_that_was_broken_off_is_made_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "logs" / "t-0").mkdir(parents=True)
    (data / "logs" / "t-0" / "0.log").write_text("")
    (data / "link").symlink_to(tmp_path)
    loosen(data)
    tmp_path.chmod(0o755)
    data.chmod(DIRECTORY)  # a state that an interrupted change leaves
    tighten(data)
    assert open_to_others(data) == []
    assert mode(tmp_path) == 0o755


def test_everybodys_directory_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o1777)
    tighten(tmp_path)
    assert mode(tmp_path) == 0o1777
    assert "give the daemon a directory of its own" in caplog.text


def test_what_cannot_be_changed_is_told_and_does_not_stop_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    tighten(tmp_path)
    assert "cannot be removed" in caplog.text


@pytest.mark.parametrize("named", [True, False])
def test_a_runtime_directory_that_the_operator_made_keeps_its_mode(tmp_path: Path, named: bool) -> None:
    folder = tmp_path / "treecast"
    folder.mkdir()
    folder.chmod(0o755)
    key, value = ("TREECAST_RUNTIME_DIR", folder) if named else ("XDG_RUNTIME_DIR", tmp_path)
    runtime = RuntimeDir.open("", {key: str(value)})
    assert runtime is not None
    if runtime.path == folder:  # otherwise the host's own was usable
        assert mode(folder) == (0o755 if named else DIRECTORY)
