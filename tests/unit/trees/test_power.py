"""A power loss at the programs that configure switches: numbers are on the disk before they are used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.power import Power

from treecast.middleware.control.segments.description import next_run
from treecast.middleware.control.trees.manager import Kept
from treecast.middleware.control.trees.store import FileStore
from treecast.middleware.control.trees.wires import Wire


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    made = Power(monkeypatch)
    yield made
    made.close()


def test_no_number_of_a_run_is_given_twice(tmp_path: Path, power: Power) -> None:
    (tmp_path / "data").mkdir()
    power.note(tmp_path)
    assert [next_run(tmp_path / "data" / "runs") for _ in range(3)] == [1, 2, 3]
    assert next_run(power.lose(tmp_path / "data", tmp_path / "left") / "runs") == 4


def test_trees_that_switches_may_have_are_known(tmp_path: Path, power: Power) -> None:
    (tmp_path / "data").mkdir()
    power.note(tmp_path)
    links = {n: Wire((f"s{n}", f"s{n + 1}"), (2, 1)) for n in range(3)}
    kept = Kept(3, 8, {7: 0b101}, frozenset({7}), links)
    FileStore(tmp_path / "data" / "trees").save(kept)
    left = power.lose(tmp_path / "data", tmp_path / "left")
    assert FileStore(left / "trees").load() == kept
