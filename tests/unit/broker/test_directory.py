"""The data directory: ownership, versions, and a refusal that leaves it untouched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.power import Power

from treecast.middleware.api.join_token import new_token
from treecast.middleware.broker.directory import DataDirectory, DataDirectoryError, Membership
from treecast.middleware.daemon.tokens import keep_token, kept_token
from treecast.middleware.model.identity import new_cluster_id
from treecast.middleware.model.runs import includes


def listing(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_a_new_directory_is_made_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    first = DataDirectory.open(path, 3, "first-cluster")
    assert (first.meta.cluster_id, first.meta.host_id, first.was_clean) == ("first-cluster", 3, True)
    assert first.logs.is_dir()
    first.close(clean=True)
    second = DataDirectory.open(path, 3, "another")
    assert (second.meta.cluster_id, second.was_clean) == ("first-cluster", True)
    second.close(clean=False)


def test_a_kill_is_noticed(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, 1, "c").close(clean=False)
    assert not DataDirectory.open(tmp_path, 1, "c").was_clean


def test_a_second_daemon_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    first = DataDirectory.open(tmp_path, 1, "c")
    with pytest.raises(DataDirectoryError, match=f"process {os.getpid()}"):
        DataDirectory.open(tmp_path, 1, "c")
    first.close(clean=True)
    first.close(clean=True)
    DataDirectory.open(tmp_path, 1, "c").close(clean=True)


def test_another_version_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"format": 9, "cluster_id": "c", "host_id": 1}')
    before = listing(tmp_path)
    with pytest.raises(DataDirectoryError, match=r"format 9.*format 1.*--data"):
        DataDirectory.open(tmp_path, 1, "c")
    assert listing(tmp_path) == before


def test_another_host_is_refused_untouched(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, 1, "c").close(clean=True)
    before = listing(tmp_path)
    with pytest.raises(DataDirectoryError, match="host id 1, this daemon is host id 2"):
        DataDirectory.open(tmp_path, 2, "c")
    assert listing(tmp_path) == before


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"format": "x"}', b'{"format": 1}'])
def test_a_broken_meta_file_is_refused_untouched(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "meta.json").write_bytes(text)
    before = listing(tmp_path)
    with pytest.raises(DataDirectoryError, match="restore it"):
        DataDirectory.open(tmp_path, 1, "c")
    assert listing(tmp_path) == before


def test_a_strangers_directory_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(DataDirectoryError, match=r"thesis\.tex"):
        DataDirectory.open(tmp_path, 1, "c")
    assert listing(tmp_path) == {"thesis.tex": b"precious"}


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(DataDirectoryError, match="not a directory"):
        DataDirectory.open(tmp_path / "data", 1, "c")


def test_a_start_that_was_broken_off_is_repeated(tmp_path: Path) -> None:
    """The process was killed after the lock and before meta.json was complete."""
    (tmp_path / "lock").write_text("1\n")
    (tmp_path / "meta.json.new").write_text('{"form')
    directory = DataDirectory.open(tmp_path, 1, "c")
    assert json.loads((tmp_path / "meta.json").read_text())["cluster_id"] == "c"
    directory.close(clean=True)


def test_cluster_ids_have_kafkas_spelling() -> None:
    assert len(new_cluster_id(2**128 - 1)) == 22
    assert new_cluster_id(1) != new_cluster_id(2)
    assert not [bits for bits in range(64) if new_cluster_id(bits << 122).startswith("-")]


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    made = Power(monkeypatch)
    yield made
    made.close()


def test_what_names_a_directory_is_on_the_disk_before_it_is_used(tmp_path: Path, power: Power) -> None:
    root = tmp_path / "new"
    opened = DataDirectory.open(root / "deep" / "data", 1, "c")
    keep_token(opened.path, new_token("c" * 22))
    left = power.lose(root, tmp_path / "left") / "deep" / "data"
    again = DataDirectory.open(left, 1, "another")
    assert (again.meta, again.run, again.was_clean) == (opened.meta, 2, False)
    assert kept_token(left) == kept_token(opened.path)
    assert again.logs.is_dir()
    again.close(clean=False)
    opened.close(clean=False)


def test_a_power_loss_brings_no_mark_of_an_orderly_close_back(tmp_path: Path, power: Power) -> None:
    data = tmp_path / "data"
    DataDirectory.open(data, 1, "c").close(clean=True)
    running = DataDirectory.open(data, 1, "c")
    assert running.was_clean
    left = power.lose(data, tmp_path / "left")
    again = DataDirectory.open(left, 1, "c")
    assert not again.was_clean
    again.close(clean=False)
    running.close(clean=False)


def test_a_membership_is_on_the_disk_at_once(tmp_path: Path, power: Power) -> None:
    opened = DataDirectory.open(tmp_path / "data", None, "alone")
    opened.join("c", 7, Membership("h", "i", "host:1"))
    opened.raise_run(40)
    again = DataDirectory.open(power.lose(tmp_path / "data", tmp_path / "left"), None, "x")
    assert (again.meta, again.run) == (opened.meta, 41)
    again.close(clean=False)
    opened.close(clean=False)


# --- runs


def restored(path: Path, copy: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(copy, path)


def test_each_run_has_an_id_of_its_own_and_the_directory_knows_them_all(tmp_path: Path) -> None:
    ids: list[str] = []
    for clean in (True, False, True):
        directory = DataDirectory.open(tmp_path, 1, "c")
        assert [run.id for run in directory.runs[:-1]] == ids
        ids.append(directory.runs[-1].id)
        directory.close(clean=clean)
    assert len(set(ids)) == 3


@pytest.mark.parametrize("clean", [True, False])
def test_a_restored_directory_does_not_know_the_run_after_the_copy(tmp_path: Path, clean: bool) -> None:
    path, copy = tmp_path / "data", tmp_path / "copy"
    DataDirectory.open(path, 1, "c").close(clean=True)
    shutil.copytree(path, copy)
    later = DataDirectory.open(path, 1, "c")
    later.close(clean=clean)
    restored(path, copy)
    found = DataDirectory.open(path, 1, "c")
    assert found.run == later.run  # the number alone does not tell
    assert not includes(found.runs, later.runs[-1])
    assert includes(found.runs, later.runs[0])


def test_a_copy_made_while_the_daemon_ran_has_a_lower_stamp(tmp_path: Path) -> None:
    path, copy = tmp_path / "data", tmp_path / "copy"
    running = DataDirectory.open(path, 1, "c")
    running.move_stamp()
    shutil.copytree(path, copy)
    early = running.runs[-1]
    assert running.move_stamp() == early.stamp + 1
    late = running.runs[-1]
    running.close(clean=False)
    assert running.move_stamp() == late.stamp  # closed: nothing is written any more
    kept = DataDirectory.open(path, 1, "c")
    assert includes(kept.runs, late)
    kept.close(clean=False)
    restored(path, copy)
    found = DataDirectory.open(path, 1, "c")
    assert (includes(found.runs, early), includes(found.runs, late)) == (True, False)


def test_a_directory_of_an_earlier_version_gets_its_first_run(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, 1, "c").close(clean=True)
    (tmp_path / "runs").unlink()
    (tmp_path / "stamp").unlink()
    directory = DataDirectory.open(tmp_path, 1, "c")
    assert (directory.run, len(directory.runs)) == (2, 1)
