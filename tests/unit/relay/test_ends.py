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


async def test_what_has_grown_is_told_once_and_together() -> None:
    told = Told()
    one, two = told.log(5, (0, 0)), told.log(7, (0, 0), (3, 4))
    told.log(0)  # an empty log
    await told.ends.tell()
    assert told.calls == [[PartitionEnd(T, 0, 0, 5), PartitionEnd(T, 1, 3, 7)]]
    await told.ends.tell()
    assert len(told.calls) == 1
    two.end_offset = 9
    await told.ends.tell()
    assert told.calls[1:] == [[PartitionEnd(T, 1, 3, 9)]]
    one.epoch_entries.append((8, 5))  # begun, but empty
    await told.ends.tell()
    assert len(told.calls) == 2


async def test_what_was_not_heard_is_told_again() -> None:
    told = Told()
    told.log(5, (0, 0))
    told.away = True
    with pytest.raises(TreecastError):
        await told.ends.tell()
    told.away = False
    await told.ends.tell()
    assert told.calls == [[PartitionEnd(T, 0, 0, 5)]]


async def test_a_coordinator_of_another_history_is_told_all() -> None:
    told = Told()
    told.log(5, (0, 0))
    await told.ends.tell()
    told.history = "another"  # it lost its store
    await told.ends.tell()
    assert told.calls == [[PartitionEnd(T, 0, 0, 5)]] * 2
