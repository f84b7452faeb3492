"""The reports of log ends to the coordinator."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from treecast.middleware.api.entries import PartitionEnd
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.relay.partitions.ends import Ends

T = uuid.UUID(int=1)


class Told:
    """A host that leads partitions of topic `t`, and the coordinator that it reports to."""

    def __init__(self) -> None:
        self.history = "one"
        self.away = False
        self.calls: list[list[PartitionEnd]] = []
        self.logs: list[Any] = []
        self.ends = Ends(self, self, self, lambda: self.history, 1.0)  # type: ignore[arg-type]

    def log(self, end: int, *epochs: tuple[int, int]) -> Any:
        self.logs.append(SimpleNamespace(end_offset=end, epoch_entries=list(epochs)))
        return self.logs[-1]

    def led(self) -> list[Any]:
        return [SimpleNamespace(name=TopicPartition("t", n), log=log) for n, log in enumerate(self.logs)]

    def topics(self) -> dict[str, Any]:
        return {"t": SimpleNamespace(topic_id=T)}

    async def put_ends(self, ends: Sequence[PartitionEnd]) -> None:
        if self.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "away")
        self.calls.append(list(ends))


def quiet(partition: int, epoch: int, end: int) -> PartitionEnd:
    return PartitionEnd(T, partition, epoch, end, quiet=True)


async def test_a_new_history_is_told_the_ends_of_all_logs_of_empty_ones_too() -> None:
    """Its record may have been lost, and then it is not known that an empty log is whole."""
    told = Told()
    told.log(5, (0, 0))
    told.log(0)
    await told.ends.tell()
    assert told.calls == [[quiet(0, 0, 5)]]
    told.history = "two"
    told.away = True
    with pytest.raises(TreecastError):
        await told.ends.tell()
    told.away = False
    for _ in range(3):
        await told.ends.tell()
    assert told.calls[1:] == [
        [PartitionEnd(T, 0, 0, 5), PartitionEnd(T, 1, -1, 0)],
        [quiet(0, 0, 5), quiet(1, -1, 0)],
    ]


async def test_what_has_grown_is_told_once_and_together_and_again_when_it_is_quiet() -> None:
    told = Told()
    one, two = told.log(5, (0, 0)), told.log(7, (0, 0), (3, 4))
    told.log(0)  # an empty log
    await told.ends.tell()
    assert told.calls == [[quiet(0, 0, 5), quiet(1, 3, 7)]]  # as an earlier run left them
    await told.ends.tell()
    assert len(told.calls) == 1
    for end in (9, 12):
        two.end_offset = end
        await told.ends.tell()
    for _ in range(3):
        await told.ends.tell()
    assert told.calls[1:] == [[PartitionEnd(T, 1, 3, 9)], [PartitionEnd(T, 1, 3, 12)], [quiet(1, 3, 12)]]
    one.epoch_entries.append((8, 5))  # begun, but empty
    await told.ends.tell()
    assert len(told.calls) == 4


async def test_a_host_that_leaves_in_order_tells_where_its_logs_ended() -> None:
    told = Told()
    log = told.log(5, (0, 0))
    await told.ends.tell()
    told.ends.start()
    log.end_offset = 8
    await told.ends.close()
    assert told.calls[1:] == [[quiet(0, 0, 8)]]
    await told.ends.close()
    assert len(told.calls) == 2
    log.end_offset, told.away = 9, True
    told.ends.start()
    await told.ends.close()  # without the coordinator it leaves all the same


async def test_what_was_not_heard_is_told_again() -> None:
    told = Told()
    told.log(5, (0, 0))
    told.away = True
    with pytest.raises(TreecastError):
        await told.ends.tell()
    told.away = False
    await told.ends.tell()
    assert told.calls == [[quiet(0, 0, 5)]]


async def test_a_coordinator_of_another_history_is_told_all() -> None:
    told = Told()
    told.log(5, (0, 0))
    await told.ends.tell()
    told.history = "another"  # it lost its store
    await told.ends.tell()
    assert told.calls == [[quiet(0, 0, 5)], [PartitionEnd(T, 0, 0, 5)]]
