"""Partitions over two and three hosts: produced anywhere, replicated where they are read."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest
from tests.unit.relay.world import (
    UNCOMMITTED,
    TestHost,
    Waiting,
    World,
    batch,
    content,
    headers_of,
    settled,
    until,
    wait_for_more,
)

from treecast.middleware.broker.long_poll import FetchWait
from treecast.middleware.broker.values import PartitionRead
from treecast.middleware.fabric.core.reorder import Delivery, How
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression
from treecast.middleware.relay.partitions.replica import Replica, gathered
from treecast.middleware.storage.disk import Disk
from treecast.middleware.wire.segment import Message

PRODUCER = ProducerIdentity(7, 0)


async def test_produced_at_one_host_and_read_at_the_other(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    assert await a.produce(b"one") == 0
    assert await b.produce(b"two", b"three") == 1
    found = await b.read(0)  # without a replica the leader is asked
    assert found.high_watermark == 3
    assert b.counters.proxied_reads == 1
    await until(b.copied())
    replica = b.partition().replica
    await until(lambda: replica.current)
    assert content(b.log()) == content(a.log())
    found = await b.read(0)
    assert b"".join(map(bytes, map(in_memory, found.chunks))) == content(a.log())
    assert b.counters.local_reads == 1
    assert b.counters.local_read_bytes == found.size
    assert b.counters.proxied_reads == 1


async def test_a_waiting_reader_is_woken_by_what_is_replicated(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await b.read(0)
    await until(lambda: b.partition().replica.current)
    waiting = Waiting()
    b.partition().watch(waiting, UNCOMMITTED)
    await a.produce(b"x" * 100)
    await asyncio.wait_for(waiting.event.wait(), 10)
    assert waiting.told == [a.log().size]
    b.partition().unwatch(waiting)
    found = await b.read(0)
    assert found.size == a.log().size
    assert b.counters.proxied_reads == 1


async def test_a_reader_has_what_the_replicas_disk_then_refuses_and_goes_on_at_the_leader(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await b.read(0)
    replica = b.partition().replica
    await until(lambda: replica.current)
    found: list[PartitionRead] = []

    def answer() -> None:
        found.append(b.partition().read(0, 1 << 20, UNCOMMITTED, at_least_one=True))

    write = Disk.write

    def refusing(disk: Disk, descriptor: int, *given: Any) -> int:
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(b.log().directory)):
            return write(disk, descriptor, *given)
        assert len(found) == 1  # answered before the write
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "write", refusing)
    FetchWait(replica._polls, [b.partition()], UNCOMMITTED, 1, 60.0, answer)
    await a.produce(b"one")
    await until(lambda: b.counters.failed_chunks > 0)
    assert b"".join(map(bytes, map(in_memory, found[0].chunks))) == content(a.log())
    assert (found[0].high_watermark, b.log().end_offset) == (1, 0)
    after = await b.read(1)  # at the known end, so the leader is asked
    assert (after.size, after.high_watermark) == (0, 1)
    monkeypatch.undo()
    await until(b.copied())


async def behind(world: World) -> tuple[TestHost, TestHost]:
    """Host 2's replica is far behind the end that its leader reported."""
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await b.read(0)
    replica = b.partition().replica
    await until(lambda: replica.current)
    replica._goal = 1000
    replica._set_current(False)
    return a, b


def has_just_grown(host: TestHost) -> None:
    """Makes the replica look recently grown, however slow the machine is."""
    host.partition().replica._growth.at = asyncio.get_running_loop().time() + 1000


async def test_what_readers_hear_from_the_leader_does_not_move_the_goal_of_a_replica(world: World) -> None:
    a, b = await behind(world)
    replica = b.partition().replica
    replica._goal = 1
    replica.known_end = 1000  # reported to a reader
    await a.produce(b"x")
    await until(lambda: replica.current)
    found = await b.read(500)  # the replica will bring it
    assert (found.size, b.counters.proxied_reads) == (0, 1)


async def test_readers_return_to_a_stalled_replica_as_soon_as_it_makes_progress(world: World) -> None:
    """A leader that serves all readers of stalled replicas itself has no time left for the stream."""
    a, b = await behind(world)
    replica, now = without_progress(b)
    replica.joined.receiver._heard -= replica._settings.stall
    replica.check(now + replica._settings.stall)
    assert (replica.current, b.counters.stalled_replicas) == (False, 1)
    assert replica._goal == 1  # and not 1000: the next record is enough
    await a.produce(b"x")
    await until(lambda: replica.current)


async def test_a_slow_stream_whose_origin_is_heard_is_waited_for(world: World) -> None:
    """Otherwise records would cross the network twice, and slow the stream down."""
    _, b = await behind(world)
    replica, now = without_progress(b)
    replica.check(now + replica._settings.stall)
    assert (replica.current, b.counters.stalled_replicas) == (True, 0)
    replica.check(now + replica._settings.follow_again)
    assert (replica.current, b.counters.stalled_replicas) == (False, 1)


def without_progress(host: TestHost) -> tuple[Replica, float]:
    """Makes the replica current, with records at the leader of which the stream has brought nothing yet.

    Returns it and the time when that was first seen.
    """
    replica = host.partition().replica
    replica._set_current(True)
    replica.known_end = 1000
    now = replica._progress[1]
    replica.check(now)
    return replica, now


async def test_a_replica_that_is_brought_on_is_waited_for_and_only_so_long(world: World) -> None:
    a, b = await behind(world)
    await a.produce(b"one")
    await until(b.copied())
    has_just_grown(b)
    found = await b.read(1)
    assert (found.size, b.counters.proxied_reads) == (0, 1)
    waiting = Waiting()
    b.partition().watch(waiting, UNCOMMITTED)
    await a.produce(b"two")
    await until(waiting.event.is_set)
    assert b.log().end_offset == 2
    waiting.event.clear()
    await until(waiting.event.is_set)  # nothing has come for a while: it looks again
    b.partition().unwatch(waiting)
    found = await b.read(2)
    assert b.counters.proxied_reads == 2


async def test_what_a_replica_does_not_reach_soon_is_asked_for(world: World) -> None:
    a, b = await behind(world)
    await a.produce(*[b"x"] * 100)
    await until(b.copied())
    has_just_grown(b)
    assert b.partition().replica.reaches(100)
    assert not b.partition().replica.reaches(200 + 1_000_000)


async def test_appends_from_elsewhere_keep_their_order(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    answers = [b.append(b"%d" % number, producer=PRODUCER, base_sequence=number) for number in range(200)]
    offsets = [(await settled(answer)).base_offset for answer in answers]
    assert offsets == list(range(200))
    repeat = await b.produce(b"7", producer=PRODUCER, base_sequence=197)
    assert repeat == 197
    assert a.log().end_offset == 200


async def test_what_the_leader_refuses_is_refused(world: World) -> None:
    await world.topic("t", 1, max_message_bytes=500)
    _, b = await world.start(1, 2)
    with pytest.raises(TreecastError) as caught:
        await b.produce(b"x" * 1000)
    assert caught.value.fault is Fault.BATCH_TOO_LARGE
    with pytest.raises(TreecastError) as caught:
        await b.read(5)
    assert caught.value.fault is Fault.OFFSET_OUT_OF_RANGE
    data = bytearray(batch(b"x"))
    data[-1] ^= 1
    with pytest.raises(TreecastError) as caught:
        await settled(b.partition().append(memoryview(data), 1, None))
    assert caught.value.fault is Fault.CORRUPT_BATCH


def numbered(count: int) -> bytes:
    """Makes batches of one record each, at 0, 1 and so on."""
    data = bytearray(batch(b"x") * count)
    size = len(data) // count
    for number in range(count):
        data[number * size : number * size + 8] = number.to_bytes(8, "big")
    return bytes(data)


def test_the_batches_of_a_message_are_read_one_by_one() -> None:
    data = numbered(3)
    chunk, headers = gathered([Delivery(Message(0, 3, data), How.LIVE)])
    assert chunk == data
    assert [header.base_offset for header in headers] == [0, 1, 2]


@pytest.mark.parametrize(
    "message",
    [
        Message(0, 3, numbered(2)),
        Message(0, 1, numbered(2)),
        Message(1, 2, numbered(2)),
        Message(0, 2, numbered(2)[:-1]),
        Message(0, 2, numbered(2)[:-1] + b"!"),
        Message(0, 2, numbered(1) * 2),
        Message(0, 1, numbered(1)[:30]),
        Message(0, 1, numbered(1)[:8] + bytes(53)),
        Message(0, 1, b""),
    ],
)
def test_a_message_that_does_not_hold_its_batches_is_refused(message: Message) -> None:
    with pytest.raises(TreecastError) as caught:
        gathered([Delivery(message, How.LIVE)])
    assert caught.value.fault is Fault.CORRUPT_BATCH


async def test_several_batches_of_which_one_is_bad_are_refused_before_they_are_forwarded(
    world: World,
) -> None:
    """The producer's face then sends each alone, and each has its own answer."""
    await world.topic("t", 1, max_message_bytes=500)
    a, b = await world.start(1, 2)
    good, bad = batch(b"good"), batch(b"x" * 1000)
    with pytest.raises(TreecastError) as caught:
        b.partition().append(memoryview(bytearray(good + bad)), 1, None)
    assert caught.value.fault is Fault.BATCH_TOO_LARGE
    together = await settled(b.partition().append(memoryview(bytearray(good + good)), 1, None))
    assert together.base_offset == 0
    assert a.log().end_offset == 2


async def test_batches_that_the_topics_compression_may_make_too_large_are_forwarded_alone(
    world: World,
) -> None:
    await world.topic("t", 1, max_message_bytes=500, compression_type="uncompressed")
    a, b = await world.start(1, 2)
    good, bad = batch(b"good"), batch(b"x" * 1000, compression=Compression.ZSTD)
    with pytest.raises(TreecastError) as caught:
        b.partition().append(memoryview(bytearray(good + bad)), 1, None)
    assert caught.value.fault is Fault.BATCH_TOO_LARGE
    together = await settled(b.partition().append(memoryview(bytearray(good + good)), 1, None))
    with pytest.raises(TreecastError) as caught:
        await settled(b.partition().append(memoryview(bytearray(bad)), 1, None))
    assert caught.value.fault is Fault.BATCH_TOO_LARGE
    assert (together.base_offset, a.log().end_offset) == (0, 2)


async def test_a_topic_without_replicas_is_read_and_watched_at_its_leader(world: World) -> None:
    await world.topic("t", 1, **{"treecast.replica": "none"})
    a, b = await world.start(1, 2)
    await b.read(0)
    partition = b.partition()
    assert partition.replica is None
    assert not await wait_for_more(partition, time=0.2)
    waiting = asyncio.create_task(wait_for_more(partition, time=10))
    await asyncio.sleep(0.05)
    await a.produce(b"x")
    assert await waiting
    assert (await b.read(0)).size == a.log().size
    assert (await b.read(0)).size == a.log().size
    assert b.counters.local_reads == 0


async def test_a_tail_begins_when_it_is_joined(world: World) -> None:
    await world.topic("t", 1, **{"treecast.replica": "tail"})
    a, b = await world.start(1, 2)
    await a.produce(b"old")
    await b.read(1)
    await until(lambda: b.partition().replica.current)
    await a.produce(b"new")
    await until(b.copied())
    assert (b.log().start_offset, b.log().end_offset) == (1, 2)
    assert headers_of(content(b.log()))[0].base_offset == 1
    old = await b.read(0)  # older records than the tail has come from the leader
    assert headers_of(bytes(old.chunks[0]))[0].base_offset == 0


async def test_a_dead_leader_refuses_producers_and_lets_consumers_read(world: World) -> None:
    await world.topic("t", 1, 1)
    a, b = await world.start(1, 2)
    for number in range(5):
        await a.produce(b"%d" % number)
    data = content(a.log())
    await b.read(0)
    await until(b.copied())
    world.kill(1)
    await until(lambda: not b.channels.is_up(1))
    with pytest.raises(TreecastError) as caught:
        await b.produce(b"x")
    assert caught.value.fault is Fault.LEADER_UNAVAILABLE
    await asyncio.sleep(world.settings.down_grace)
    with pytest.raises(TreecastError) as caught:
        b.append(b"x")  # at once, as the channel is known to be down
    assert caught.value.fault is Fault.LEADER_UNAVAILABLE
    with pytest.raises(TreecastError) as caught:
        await b.read(0, index=1)  # no replica of it is here
    assert caught.value.fault is Fault.LEADER_UNAVAILABLE
    assert await b.consume(5) == data
    end = await b.read(5)
    assert (end.size, end.high_watermark) == (0, 5)
    await world.start(1)
    assert await b.produce(b"again") == 5
    assert (await b.consume(6))[: len(data)] == data


async def test_calls_under_way_when_the_leader_goes_are_refused_after_a_bounded_wait(world: World) -> None:
    await world.topic("t", 1, **{"treecast.replica": "none"})
    _, b = await world.start(1, 2)
    await b.read(0)
    waiting = asyncio.create_task(wait_for_more(b.partition(), time=20))
    await asyncio.sleep(0.02)
    peer = b.channels._peers[1]
    assert peer.link is not None
    peer.link.pause_writing()  # requests wait from now on
    asked = [b.append(b"x") for _ in range(3)]
    asked.append(b.partition().read(0, 100, UNCOMMITTED, at_least_one=True))  # type: ignore[arg-type]
    world.kill(1)
    for answer in asked:
        with pytest.raises(TreecastError) as caught:
            await asyncio.wait_for(answer, 10)  # type: ignore[arg-type]
        assert caught.value.fault is Fault.LEADER_UNAVAILABLE
    assert await waiting


async def test_a_replica_goes_on_after_its_host_was_killed(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await a.produce(b"one")
    await b.read(0)
    await until(b.copied())
    world.kill(2)
    for number in range(20):
        await a.produce(b"%d" % number)
    (b,) = await world.start(2)  # nobody reads: it follows the same partitions as before
    await until(b.copied())
    assert content(b.log()) == content(a.log())
    assert b.counters.restarted_replicas == b.counters.truncations == 0
    assert b.counters.replicated_batches == 20


async def test_what_a_killed_host_had_and_not_reported_is_not_taken_for_lost(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await b.read(0)
    await until(lambda: b.partition().replica.current)
    for number in range(20):
        await a.produce(b"%d" % number)
    end = b.log().end_offset
    while end < 20:
        await asyncio.sleep(0)
        end = b.log().end_offset
    world.kill(2)  # most likely before its report
    await a.produce(b"more")
    (b,) = await world.start(2)
    await until(b.copied())
    origin = a.relay.leading.of_topic("t")[0].origin
    await until(lambda: origin.rows()[2].closed)
    row = origin.rows()[2]
    assert (row.addressed, dict(row.expired)) == (21, {})
    assert row.balanced


async def test_what_a_leader_lost_goes_at_its_replicas_too(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    for number in range(10):
        await a.produce(b"%d" % number)
    await b.read(0)
    await until(b.copied())
    world.kill(1, power_loss=200)
    (a,) = await world.start(1)
    assert a.log().end_offset < 10
    kept = a.log().end_offset
    assert a.log().leader_epoch == a.run
    for _ in range(10):
        await a.produce(b"other")
    await until(lambda: b.copied()() and content(b.log()) == content(a.log()))
    assert b.log().epoch_entries == [(0, 0), (a.run, kept)]
    assert b.counters.truncations == 1
    assert b.partition().leader_epoch == a.run


async def test_a_leader_that_lost_everything_cuts_nothing(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    for number in range(10):
        await a.produce(b"%d" % number)
    await b.read(0)
    await until(b.copied())
    world.kill(1, power_loss=1 << 30)
    kept = content(b.log())
    (a,) = await world.start(1)
    for _ in range(15):
        await a.produce(b"other")
    await until(lambda: b.counters.refused_replicas)
    assert content(b.log()) == kept
    assert await b.consume(15) == content(a.log())
    await b.relay.operator.rebuild(b.definitions.known["t"], 0, "", accept_loss=False)
    await until(lambda: b.copied()() and content(b.log()) == content(a.log()))


async def test_a_deleted_topic_is_gone_with_its_replicas(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await a.produce(b"one")
    await b.read(0)
    await until(b.copied())
    waiting = Waiting()
    b.partition().watch(waiting, UNCOMMITTED)
    before = b.partition()
    await world.delete("t")
    assert "gone" in waiting.told
    with pytest.raises(TreecastError) as caught:
        await settled(before.read(0, 1, UNCOMMITTED, at_least_one=True))
    assert caught.value.fault is Fault.UNKNOWN_TOPIC
    await world.topic("t", 1)
    assert await b.produce(b"new") == 0
    await b.read(0)
    await until(b.copied())
    assert content(b.log()) == content(a.log())
    assert a.fabric.origins()[0].key[1] == 2  # a stream id is not used twice in a run


async def test_interest_is_left_when_nobody_reads_for_long(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    told: list[tuple[str, bool]] = []
    b.relay.following.on_interest = lambda topic, wanted: told.append((topic.name, wanted))
    await b.read(0)
    await until(lambda: b.partition().replica is not None and b.partition().replica.current)
    b.partition().used -= world.settings.idle + 5
    await until(lambda: b.partition().replica is None)
    await until(lambda: not a.relay.leading.of_topic("t")[0].hosts())
    await a.produce(b"not sent")
    assert b.log().end_offset == 0
    await b.read(0)
    await until(b.copied())
    assert told == [("t", True), ("t", False), ("t", True)]


async def test_accounts_close(world: World) -> None:
    await world.topic("t", 1)
    a, b, c = await world.start(1, 2, 3)
    await b.read(0)
    await until(lambda: b.partition().replica.current)
    for _ in range(30):
        await a.produce(b"x" * 3000, b"y")
    await c.read(0)
    await until(b.copied())
    await until(c.copied())
    origin = a.relay.leading.of_topic("t")[0].origin
    await until(lambda: all(row.closed for row in origin.rows().values()))
    rows = origin.rows()
    assert sorted(rows) == [2, 3]
    assert all(row.balanced for row in rows.values())
    assert rows[2].addressed == 60


async def test_what_a_dead_leader_has_sent_to_one_follower_only_the_other_gets_from_that(
    world: World,
) -> None:
    await world.topic("t", 1)
    a, b, c = await world.start(1, 2, 3)
    await a.produce(b"one")
    for host in (b, c):
        await host.read(0)
        await until(host.copied())
    joined = {host.number: host.fabric.joined()[0] for host in (b, c)}
    await until(lambda: all({2, 3} <= set(one.receiver.members) for one in joined.values()))
    a.fabric.set_host(3, None)  # from now on its streams send nothing there
    for number in range(20):
        await a.produce(b"%d" % number * 1000)
    await until(b.copied())
    end = a.log().end_offset
    assert c.log().end_offset < end
    world.kill(1)
    await until(lambda: c.log().end_offset == end)
    assert content(c.log()) == content(b.log())
    assert joined[3].counters.sent["NAK"] > 0
