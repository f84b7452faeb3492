"""Under any faults of hosts and packets all logs have the same bytes at the same offsets, nothing twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.unit.relay.world import COMMITTED, TestHost, World, content, headers_of, settled, until

from treecast.middleware.broker.values import Appended
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage import compaction
from treecast.middleware.wire.record_batch import read_records

HOSTS = (1, 2, 3)
LEADERS = (1, 2, 3, 1)
RETRIABLE = (Fault.LEADER_UNAVAILABLE, Fault.TIMED_OUT)


class Schedule:
    """Steps drawn from a seed, with a record of the acknowledged values."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.count = 0
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # (partition, offset) -> value
        self.lost_power: set[int] = set()  # partitions whose leaders lost acknowledged records
        self.pending: list[tuple[TestHost, int, list[bytes], asyncio.Future[Appended]]] = []

    async def step(self) -> None:
        draw = self.rng.random()
        up = sorted(self.world.hosts)
        if draw < 0.6 and up:
            self._produce(self.rng.choice(up), self.rng.randrange(len(LEADERS)))
        elif draw < 0.8 and up:
            await self._read(self.rng.choice(up), self.rng.randrange(len(LEADERS)))
        elif draw < 0.88 and up:
            await self._end(self.rng.choice(up))
        else:
            await self._come_back()
        await asyncio.sleep(self.rng.choice([0, 0, 0, 0.01, 0.05]))
        self._take_answers()

    def _produce(self, host: int, index: int) -> None:
        for _ in range(self.rng.randint(1, 5)):
            values = [self._value() for _ in range(self.rng.randint(1, 4))]
            try:
                answer = self.world.hosts[host].append(*values, index=index)
            except TreecastError as error:
                retriable(error)
                continue
            if isinstance(answer, Appended):
                self._note(index, values, answer)
            else:
                self.pending.append((self.world.hosts[host], index, values, answer))

    def _value(self) -> bytes:
        self.count += 1
        return b"%d " % self.count + b"x" * self.rng.choice([1, 50, 2000])

    def _note(self, index: int, values: list[bytes], appended: Appended) -> None:
        for number, value in enumerate(values):
            key = (index, appended.base_offset + number)
            assert index in self.lost_power or key not in self.acknowledged, "an offset was given twice"
            self.acknowledged[key] = value

    def _take_answers(self) -> None:
        still = []
        for host, index, values, answer in self.pending:
            if not answer.done():
                if self.world.hosts.get(host.number) is host:  # otherwise nobody waits for the answer
                    still.append((host, index, values, answer))
            elif answer.cancelled():
                pass
            elif (error := answer.exception()) is not None:
                retriable(error)
            else:
                self._note(index, values, answer.result())
        self.pending = still

    async def _read(self, host: int, index: int) -> None:
        try:
            found = await asyncio.wait_for(self.world.hosts[host].read(0, index=index), 5)
        except TreecastError as error:
            retriable(error)
            return
        data = b"".join(map(bytes, map(in_memory, found.chunks)))
        if index not in self.lost_power:
            self._compare(index, data)

    def _compare(self, index: int, data: bytes) -> None:
        """A reader gets the acknowledged values, as far as they are known."""
        for offset, value in values_of(data):
            known = self.acknowledged.get((index, offset))
            assert known is None or known == value

    async def _end(self, host: int) -> None:
        if self.rng.random() < 0.3:
            await self.world.stop(host)
            return
        loss = self.rng.choice([0, 0, 150, 4000])
        if loss:
            self.lost_power |= {n for n, leader in enumerate(LEADERS) if leader == host}
        self.world.kill(host, power_loss=loss)

    async def _come_back(self) -> None:
        gone = [host for host in HOSTS if host not in self.world.hosts]
        if gone:
            await self.world.start(self.rng.choice(gone))

    async def settle(self) -> None:
        """Starts all hosts, and waits until each has everything."""
        for host in HOSTS:
            if host not in self.world.hosts:
                await self.world.start(host)
        for host in HOSTS:
            for index in range(len(LEADERS)):
                await self._until_read(host, index)
        await until(lambda: (self._take_answers(), not self.pending)[1])
        try:
            await until(self._all_alike)
        except TimeoutError:
            raise AssertionError(self.describe()) from None

    async def _until_read(self, host: int, index: int) -> None:
        while True:
            try:
                await self.world.hosts[host].read(0, index=index)
                return
            except TreecastError as error:
                retriable(error)
                await asyncio.sleep(0.02)

    def describe(self) -> str:
        """Describes the logs that differ."""
        lines = []
        for index, leader in enumerate(LEADERS):
            logs = {host: self.world.hosts[host].log(index=index) for host in HOSTS}
            if len({log.end_offset for log in logs.values()}) == 1:
                continue
            lines.append(f"partition {index}, led by {leader}")
            for host, log in logs.items():
                batches = [
                    (one.base_offset, one.next_offset, one.leader_epoch) for one in headers_of(content(log))
                ]
                found = self.world.hosts[host].relay.following.find("t", index)
                joined = found.replica.joined if found is not None and found.replica is not None else None
                lines.append(
                    f"   {host}: {log.start_offset} to {log.end_offset} {log.epoch_entries} {batches[-8:]}"
                )
                lines.append(f"      {joined and (joined.key, joined.state, joined.next, joined.counters)}")
        return "\n".join(lines)

    def _all_alike(self) -> bool:
        return all(
            LEADERS[index] == host or self.world.hosts[host].copied(index=index)()
            for host in HOSTS
            for index in range(len(LEADERS))
        )


def retriable(error: BaseException) -> None:
    """Raises errors that a client would not retry."""
    if not isinstance(error, TreecastError) or error.fault not in RETRIABLE:
        raise error


def values_of(data: bytes) -> list[tuple[int, bytes]]:
    """Returns (offset, value) of each record."""
    found = []
    position = 0
    for header in headers_of(data):
        for number, record in enumerate(read_records(data, position, header)):
            found.append((header.base_offset + number, record.value or b""))
        position += header.size
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_hosts_agree(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, loss=0.03)
    try:
        await world.topic("t", *LEADERS, segment_bytes=20_000)
        await world.start(*HOSTS)
        schedule = Schedule(world, seed)
        for _ in range(120):
            await schedule.step()
        await schedule.settle()
        for index, leader in enumerate(LEADERS):
            data = content(world.hosts[leader].log(index=index))
            for host in HOSTS:
                assert content(world.hosts[host].log(index=index)) == data, (
                    f"host {host} differs in partition {index}"
                )
            values = values_of(data)
            assert len({value for _, value in values}) == len(values), "a record is there twice"
            if index not in schedule.lost_power:
                there = dict(values)
                for (number, offset), value in schedule.acknowledged.items():
                    assert number != index or there[offset] == value
        for host in world.hosts.values():
            for stream in host.relay.leading:
                await until(lambda stream=stream: all(row.closed for row in stream.origin.rows().values()))
                assert all(row.balanced for row in stream.origin.rows().values())
    finally:
        await world.close()


async def test_joined_batches_that_are_lost_come_again(tmp_path: Path) -> None:
    """Replicas restart at any batch, also inside of one message of their leader."""
    world, rng = World(tmp_path, loss=0.2), random.Random(1)
    try:
        await world.topic("t", 1)
        a, b = await world.start(1, 2)
        await b.read(0)
        await until(lambda: b.partition().replica.current)
        for number in range(120):
            for _ in range(rng.randint(1, 30)):
                a.append(b"%d" % number * rng.randint(1, 200))
            await asyncio.sleep(0)
            if number % 20 == 10:
                b.partition().replica.leave()
                if b.log().end_offset:
                    ends = [header.next_offset for header in headers_of(content(b.log()))]
                    b.partition().replica.partition.truncate(rng.choice(ends), 1)
                b.partition().replica.want()
        await until(b.copied())
        assert content(b.log()) == content(a.log())
        origin = a.relay.leading.of_topic("t")[0].origin
        await until(lambda: origin.rows()[2].closed)
        assert origin.rows()[2].balanced
        assert origin.sender.sent_to_all < len(headers_of(content(a.log()))) / 2
    finally:
        await world.close()


async def test_compaction_and_retention_at_the_leader(tmp_path: Path) -> None:
    world = World(tmp_path, loss=0.05)
    try:
        await world.topic(
            "t",
            1,
            **{"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0, "segment.bytes": 2000},
        )
        a, b = await world.start(1, 2)
        for number in range(200):
            await a.produce(b"%d" % number + b"x" * 40)
        await settled(a.partition().delete_before(31))
        a.log().flush(1, checkpoint=True)
        assert compaction.compact(a.log(), 10_000_000)
        assert len(headers_of(content(a.log()))) < 100
        await b.read(150)
        await until(b.copied())
        await until(lambda: b.log().start_offset == 31)
        assert content(b.log()) == content(a.log())
        origin = a.relay.leading.of_topic("t")[0].origin
        await until(lambda: origin.rows()[2].closed)
        row = origin.rows()[2]
        assert row.balanced
        assert sum(row.expired.values()) > 50  # exactly what compaction removed
        live = row.live + row.repaired + row.replayed
        assert live == sum(header.last_offset_delta + 1 for header in headers_of(content(b.log())))
    finally:
        await world.close()


async def test_transactions_under_loss_read_alike(tmp_path: Path) -> None:
    world = World(tmp_path, loss=0.05)
    rng = random.Random(3)
    try:
        await world.topic("t", 1)
        a, b = await world.start(1, 2)
        await b.read(0)
        sequences = {7: 0, 8: 0}
        for _ in range(60):
            producer = ProducerIdentity(rng.choice([7, 8]), 0)
            host = rng.choice([a, b])
            if rng.random() < 0.6:
                sequence = sequences[producer.producer_id]
                sequences[producer.producer_id] += 1
                await host.produce(b"v", producer=producer, base_sequence=sequence, transactional=True)
            else:
                done = host.partition().append_marker(
                    producer, committed=rng.random() < 0.5, coordinator_epoch=0
                )
                if done is not None:
                    await done
        await until(b.copied())
        there, here = a.log(), b.log()
        assert content(here) == content(there)
        assert here.stable_offset == there.stable_offset
        assert here.held.aborted_between(0, here.end_offset) == there.held.aborted_between(
            0, there.end_offset
        )
        found = [await host.read(0, COMMITTED) for host in (a, b)]
        assert found[0].aborted == found[1].aborted
        assert found[0].size == found[1].size
    finally:
        await world.close()
