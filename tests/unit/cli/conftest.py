"""The `treecast` command in this process, beside one real daemon per test module."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from treecast.middleware.cli import main
from treecast.middleware.daemon.process import DaemonProcess


@dataclass(frozen=True)
class Ran:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        assert self.code == 0, self.err
        return self.out.splitlines()


Treecast = Callable[..., Ran]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hides any daemon that runs on this machine."""
    for name in ("TREECAST_KAFKA", "TREECAST_CONTROL", "TREECAST_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TREECAST_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


@pytest.fixture
def command(alone: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Treecast:
    """Returns `command("topics", "list", stdin=b"...")`, which runs without a daemon."""

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(arguments)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def treecast(command: Treecast, shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> Treecast:
    """Returns the command as it runs beside `shared_daemon`."""
    monkeypatch.setenv("TREECAST_RUNTIME_DIR", str(shared_daemon.runtime_dir))
    return command
