"""Readers that are ahead of this host's replica: the leader served them, and the replica gets the records
later. Only the leader says that an offset is out of range, and nothing else may look like a loss.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest
from tests.unit.relay.world import COMMITTED, UNCOMMITTED, TestHost, World, batch, content, settled, until

from treecast.middleware.broker.long_poll import FetchWait
from treecast.middleware.broker.values import Isolation, PartitionRead
from treecast.middleware.fabric.core.reorder import Delivery
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.partitions.replica import Replica


class Gate:
    """Holds back what the one stream of a host brings, and lets it through in one chunk."""

    def __init__(self, host: TestHost) -> None:
        self.held: list[Delivery] = []
        [self._joined] = host.fabric._joined.values()
        self._sink = self._joined.sink
        self._joined.sink = self

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.held += deliveries

    def failed(self, error: Exception) -> None:
        self._sink.failed(error)

    def open(self) -> None:
        held, self.held = self.held, []
        self._joined.sink = self._sink
        self._sink.deliver(held)


async def held_back(world: World) -> tuple[TestHost, TestHost, Gate]:
    """The leader has offsets 0, 1 and 2; host 2's current replica has none of them yet."""
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await b.read(0)
    replica = b.partition().replica
    await until(lambda: replica.current)
    gate = Gate(b)
    for number in range(3):
        await a.produce(b"%d" % number)
    await until(lambda: len(gate.held) == 3)
    return a, b, gate


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
async def test_who_is_ahead_of_a_replica_is_served_from_the_chunk_that_catches_it_up(
    world: World, isolation: Isolation
) -> None:
    a, b, gate = await held_back(world)
    partition, found = b.partition(), dict[int, PartitionRead]()

    def read() -> None:
        for offset in range(4):
            found[offset] = partition.read(offset, 1 << 20, isolation, at_least_one=True)

    FetchWait(partition.replica._polls, [partition], UNCOMMITTED, 1, 60.0, read)
    gate.open()
    there, one = content(a.log()), len(batch(b"0"))
    for offset in range(4):
        data = b"".join(bytes(in_memory(chunk)) for chunk in found[offset].chunks)
        assert data == (there[offset * one :] if isolation is UNCOMMITTED else b"")
        assert found[offset].high_watermark >= offset
    assert b.counters.proxied_reads == 1  # the first, before there was a replica
    assert content(b.log()) == there


async def test_who_waits_beyond_a_replica_is_told_no_lower_end(world: World) -> None:
    """A reader takes an end below its offset for lost records."""
    _, b, gate = await held_back(world)
    replica = b.partition().replica
    replica.known_end = 3
    waits = await b.read(2)
    assert (waits.size, waits.high_watermark, b.log().end_offset) == (0, 3, 0)
    world.kill(1)
    await until(lambda: not b.channels.is_up(1))
    for offset in (2, 3, 9):  # the host that may say that there is no 9 is away
        waits = await b.read(offset)
        assert (waits.size, waits.high_watermark) == (0, max(3, offset))
    gate.open()
    assert (await b.read(2)).high_watermark == 3


class Shrunk:
    """A replica that found less in its files than it remembered while it rested."""

    readable_end = 9

    def __init__(self, log: object) -> None:
        self.log = log

    def read(self, *given: object, **more: object) -> PartitionRead:
        raise TreecastError(Fault.OFFSET_OUT_OF_RANGE, "only this replica's files say so")


async def test_only_the_leader_says_that_an_offset_is_out_of_range(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = await held_back(world)
    replica = b.partition().replica
    if not inspect.isfunction(Replica.deliver):
        pytest.skip("the parts of a compiled replica cannot be replaced; the interpreted run has this test")
    monkeypatch.setattr(replica, "partition", Shrunk(replica.partition.log))
    assert content(a.log()).endswith(bytes(in_memory((await b.read(2)).chunks[0])))
    with pytest.raises(TreecastError) as caught:
        await b.read(8)
    assert caught.value.fault is Fault.OFFSET_OUT_OF_RANGE
    monkeypatch.undo()


async def test_a_replica_whose_leader_is_away_does_not_say_out_of_range(world: World) -> None:
    await world.topic("t", 1, **{"treecast.replica": "tail"})
    a, b = await world.start(1, 2)
    await a.produce(b"before")
    await b.read(1)
    await until(lambda: b.partition().replica.current)
    await a.produce(b"after")
    await until(b.copied())
    assert b.log().start_offset == 1
    world.kill(1)
    await until(lambda: not b.channels.is_up(1))
    await asyncio.sleep(world.settings.down_grace)
    with pytest.raises(TreecastError) as caught:
        await settled(b.partition().read(0, 1 << 20, UNCOMMITTED, at_least_one=True))
    assert caught.value.fault is Fault.LEADER_UNAVAILABLE
