"""The owner of a lab, and refusals without root. No test needs a namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treecast.middleware.dataplane.lab import state
from treecast.middleware.dataplane.lab.description import Description, Host
from treecast.middleware.dataplane.lab.lab import Lab, LabError


@pytest.fixture(autouse=True)
def _runtime_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREECAST_RUNTIME_DIR", str(tmp_path))


def ended_process() -> state.Owner:
    """Returns an owner that has just ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        owner = state.Owner(child.pid, state._start_of(child.pid) or 0)
        assert owner.alive
        child.kill()
        child.wait()
    return owner


def test_an_owner_is_this_very_process() -> None:
    this = state.Owner.this()
    assert this.alive
    assert not state.Owner(this.pid, this.start + 1).alive  # another process with our pid
    assert not ended_process().alive


def test_a_file_has_one_id_however_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert state.kept_id(Path("lab.toml")) == state.kept_id(tmp_path / "x" / ".." / "lab.toml")
    assert state.kept_id(Path("lab.toml")) != state.kept_id(Path("other.toml"))


def test_only_what_dead_owners_left_is_a_leftover() -> None:
    dead, mine = ended_process(), state.owned_id()
    assert not state.is_leftover(mine)
    assert state.is_leftover(f"p{dead.pid}-{dead.start}-1")
    for owner, left in ((None, False), (state.Owner.this(), False), (dead, True)):
        state.write(state.State("f0123456789", "lab.toml", owner, ["alpha"]))
        assert state.is_leftover("f0123456789") is left
    assert not state.is_leftover("f9999999999")  # no record of it exists


def test_ids_of_one_process_differ() -> None:
    assert state.owned_id() != state.owned_id()


def test_a_torn_file_is_as_none(tmp_path: Path) -> None:
    state.write(state.State("f0123456789", "lab.toml", None, ["alpha"]))
    found = state.read("f0123456789")
    assert found is not None
    assert found.hosts == ["alpha"]
    (state.folder("f0123456789") / "state.json").write_text('{"id": "f01')
    assert state.read("f0123456789") is None
    assert state.read("f9999999999") is None


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="need root; run it again as root"):
        Lab.up(Description(hosts={"alpha": Host()}))
