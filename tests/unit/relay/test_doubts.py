"""A host compares all logs that it leads with the coordinator's record before it answers anybody."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from treecast.middleware.api.entries import PartitionEntry, Position, TopicEntry, Update, put
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.relay.partitions import doubts
from treecast.middleware.relay.partitions.doubts import Doubts
from treecast.middleware.relay.partitions.lost_disk import Recorded
from treecast.middleware.relay.view import ClusterView

OWN, OTHER = 1, 2


class Host:
    """Host 1 with its logs, and the coordinator's record."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self.ends: dict[tuple[str, int], int] = {}  # of the logs here
        self.record: dict[TopicId, dict[int, Recorded]] = {}
        self.asked: list[list[TopicId]] = []
        self.given_up: list[tuple[TopicId, list[int]]] = []
        self.away = False
        self.doubts = Doubts(OWN, self, self.view, self)  # type: ignore[arg-type]

    def topic(
        self, name: str, *leaders: PartitionEntry, ends: Sequence[int], record: Mapping[int, int]
    ) -> TopicId:
        entry = TopicEntry(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), leaders, {})
        self.view.apply(Update(False, Position("h", 1), (put(entry),)))
        self.ends |= {(name, index): end for index, end in enumerate(ends)}
        self.record[entry.topic_id] = {index: Recorded(0, end) for index, end in record.items()}
        return entry.topic_id

    def find(self, topic: str, index: int) -> Any:
        end = self.ends.get((topic, index))
        return None if end is None else SimpleNamespace(log=SimpleNamespace(end_offset=end))

    async def all_ends(self, topic_ids: Sequence[TopicId]) -> Mapping[TopicId, Mapping[int, Recorded]]:
        if self.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "away")
        self.asked.append(list(topic_ids))
        return {topic_id: self.record[topic_id] for topic_id in topic_ids}

    async def give_up(self, topic_id: TopicId, partitions: Sequence[int]) -> None:
        self.given_up.append((topic_id, list(partitions)))


def led(*leaders: int, waits: bool = False) -> tuple[PartitionEntry, ...]:
    return tuple(PartitionEntry(leader, 0, waits) for leader in leaders)


async def test_only_logs_that_are_shorter_than_recorded_are_given_up() -> None:
    host = Host()
    topic = host.topic("t", *led(OWN, OWN, OWN, OTHER), ends=[5, 7, 0, 1], record={0: 6, 1: 7, 3: 9})
    host.topic("whole", *led(OWN), ends=[3], record={0: 2})  # has grown since its last report
    host.topic("unknown", *led(OWN), ends=[0], record={0: -1})  # the record was lost with the store
    host.topic("elsewhere", *led(OTHER), ends=[0], record={0: 5})
    host.topic("waits", *led(OWN, waits=True), ends=[0], record={0: 5})
    host.topic("not opened", *led(OWN), ends=[], record={0: 5})
    assert await host.doubts.check()
    assert host.given_up == [(topic, [0])]
    assert len(host.asked) == 1
    assert len(host.asked[0]) == 3


async def test_many_topics_cost_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "_AT_ONCE", 10)
    host = Host()
    for number in range(21):
        host.topic(f"t{number}", *led(OWN, OWN), ends=[1, 1], record={0: 1, 1: 2 if number == 20 else 1})
    assert await host.doubts.check()
    assert [len(asked) for asked in host.asked] == [5, 5, 5, 5, 1]
    assert [partitions for _, partitions in host.given_up] == [[1]]


async def test_without_the_coordinator_all_is_led() -> None:
    host = Host()
    host.topic("t", *led(OWN), ends=[0], record={0: 5})
    host.away = True
    assert not await host.doubts.check()
    assert host.given_up == []
