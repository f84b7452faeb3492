"""Starts and ends of a read that an option names, resolved by a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from treecast.spark_connectors.errors import OptionError, ReadError
from treecast.spark_connectors.source.cluster import resolve
from treecast.spark_connectors.source.offsets import EARLIEST, LATEST, Offsets, Partition
from treecast.spark_connectors.source.options import Bound

T0, T1 = Partition("t", 0), Partition("t", 1)


class Fixed:
    """A cluster whose partitions have offsets 2 to 9, one a second. `gone` have none."""

    def __init__(self, *gone: Partition) -> None:
        self.gone = gone

    def _all(self, partitions: Iterable[Partition], offset: int) -> Offsets:
        return {part: offset for part in partitions if part not in self.gone}

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        return self._all(partitions, 2)

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        return self._all(partitions, 10)

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        return {part: max(2, -(-at // 1000)) if at <= 9000 else None for part, at in times.items()}


def found(bound: Bound, *gone: Partition) -> Offsets:
    return resolve(Fixed(*gone), [T0, T1], bound, "startingOffsets")  # type: ignore[arg-type]


def test_bounds() -> None:
    assert found(Bound(LATEST)) == {T0: 10, T1: 10}
    assert found(Bound(LATEST, offsets={T0: 5, T1: EARLIEST})) == {T0: 5, T1: 2}
    assert found(Bound(LATEST, time=3500)) == {T0: 4, T1: 4}
    assert found(Bound(LATEST, times={T0: 0, T1: 99_000}, strict_time=False)) == {T0: 2, T1: 10}


@pytest.mark.parametrize("bound", [Bound(LATEST, offsets={T0: 3}), Bound(LATEST, times={T0: 0})])
def test_a_partition_that_is_forgotten_does_not_begin_anywhere(bound: Bound) -> None:
    """It would begin at its end, and its records would be skipped without a word."""
    with pytest.raises(
        OptionError, match="startingOffsets does not name t-1, which the query reads: name each"
    ):
        found(bound)


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (Bound(LATEST, offsets={T0: 3, T1: 3, Partition("u", 0): 3}), "names u-0, which the query does not"),
        (Bound(LATEST, times={T0: 0, T1: 9001}), "t-1 has no record at or after 9001"),
    ],
)
def test_what_cannot_be_resolved(bound: Bound, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        found(bound)


def test_a_partition_that_disappears_has_no_offset() -> None:
    with pytest.raises(ReadError, match="t-1 disappeared while the read was planned"):
        found(Bound(LATEST), T1)
