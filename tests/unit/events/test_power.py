"""Power loss at either end, with fsync per batch: messages acknowledged to their publisher arrive, once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.events.test_kills import count_up, numbers
from tests.unit.events.world import TestHost, World, until

from treecast.middleware.broker.pubsub import Subscriber, Subscription
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.settings import FsyncPolicy


class PowerDisk(Disk):
    """Unsynced data is lost when the power fails. Syncs wait for `gate`; `broken`: writes are refused."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False
        self._paths: dict[int, str] = {}
        self._safe: dict[str, bytes] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        self._paths[self._file(descriptor)] = path
        return descriptor

    @staticmethod
    def _file(descriptor: int) -> int:
        return Path(f"/proc/self/fd/{descriptor}").stat().st_ino

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        if self.broken:
            raise OSError(28, "no space left on device")
        return super().write(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        path = self._paths[self._file(descriptor)]
        held = Path(path).read_bytes()
        self.gate.wait()
        self._safe[path] = held

    def fail(self) -> None:
        """Fails the power: each file has its last synced content."""
        for path in self._paths.values():
            Path(path).write_bytes(self._safe.get(path, b""))


@pytest.fixture
def power(world: World) -> Iterator[dict[int, PowerDisk]]:
    """Gives both hosts such a disk, and syncs each turn."""
    world.fsync = FsyncPolicy.BATCH
    disks = {1: PowerDisk(), 2: PowerDisk()}
    world.disks.update(disks)
    yield disks
    for disk in disks.values():
        disk.gate.set()


class Publisher:
    """Gets its answers with the turn, as a client gets PUBACK. Implements `turn.Speaker`."""

    def __init__(self, host: TestHost) -> None:
        self.host = host
        self.answered = 0
        self._sent = 0
        self._gathered = 0
        host.turn.add_speaker(self)

    def publish(self, first: int, count: int) -> None:
        self._sent = count_up(self.host, first, count)
        self.host.turn.ask()

    def gather(self) -> None:
        self._gathered = self._sent

    def say(self) -> None:
        self.answered = self._gathered

    def refuse(self) -> None: ...


def owes(host: TestHost) -> int:
    return sum(len(record.owed) for record in host.journal.records.values())


def blackout(world: World, number: int, disk: PowerDisk) -> None:
    world.kill(number, stored=False)
    disk.gate.set()
    disk.fail()


async def test_an_origin_does_not_let_go_before_the_other_hosts_disk_has_it(
    world: World, power: dict[int, PowerDisk]
) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    power[2].gate.clear()
    publisher = Publisher(a)
    publisher.publish(0, 20)
    await until(lambda: publisher.answered == 20)  # a's own disk has them
    await until(lambda: b.turn.forcing)
    await until(lambda: len(client.got) == 20)
    for _ in range(20):  # longer than reports would take
        await asyncio.sleep(0.02)
        assert owes(a) == 20
    power[2].gate.set()
    await until(lambda: owes(a) == 0)


async def test_power_that_fails_at_the_receiver_takes_nothing_that_was_promised(
    world: World, power: dict[int, PowerDisk]
) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    count_up(a, 0, 20)
    a.turn.ask()
    await until(lambda: len(client.got) == 20 and owes(a) == 0)
    power[2].gate.clear()
    count_up(a, 20, 20)
    a.turn.ask()
    await until(lambda: len(client.got) == 40)
    blackout(world, 2, power[2])
    (b,) = await world.start(2, share=False)
    client = b.client()
    await _subscribe_and_share(b, client)
    await until(lambda: len(client.got) == 20 and owes(a) == 0)
    assert numbers(client) == list(range(20, 40))  # the first 20 were on the disk, and are not repeated


async def _subscribe_and_share(host: TestHost, client: Subscriber) -> None:
    """Resumes as a lasting session does."""
    host.hub.subscribe(Subscription(client, b"t", 2))
    host.share()


async def test_power_that_fails_at_the_origin_leaves_no_message_that_nobody_promised(
    world: World, power: dict[int, PowerDisk]
) -> None:
    """A message sent before it is synced would come twice: its client has no answer and repeats it."""
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    power[1].gate.clear()
    publisher = Publisher(a)
    publisher.publish(0, 20)
    await until(lambda: a.turn.forcing)
    for _ in range(10):
        await asyncio.sleep(0.02)
    assert (publisher.answered, client.got) == (0, [])
    blackout(world, 1, power[1])
    (a,) = await world.start(1)
    publisher = Publisher(a)
    publisher.publish(0, 20)  # the client sends it again
    await until(lambda: publisher.answered == 20 and len(client.got) >= 20)
    await until(lambda: owes(a) == 0)
    assert numbers(client) == list(range(20))


async def test_power_that_fails_at_the_origin_takes_nothing_that_was_promised(
    world: World, power: dict[int, PowerDisk]
) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    world.kill(2)
    publisher = Publisher(a)
    publisher.publish(0, 20)
    await until(lambda: publisher.answered == 20)
    blackout(world, 1, power[1])
    (b,) = await world.start(2)
    client = b.client()
    await client.subscribe("t")
    (a,) = await world.start(1)
    await until(lambda: len(client.got) == 20)
    assert numbers(client) == list(range(20))


async def test_a_receiver_whose_disk_refuses_goes_on_where_it_was_when_that_takes_writes_again(
    world: World, power: dict[int, PowerDisk]
) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    power[2].broken = True
    sent = count_up(a, 0, 20)
    a.turn.ask()
    await until(lambda: len(client.got) == sent)
    await until(lambda: not b.fabric.joined())  # b left the stream
    assert owes(a) == sent
    power[2].broken = False
    await until(lambda: owes(a) == 0)
    sent = count_up(a, sent, 5)
    a.turn.ask()
    await until(lambda: len(client.got) == sent and owes(a) == 0)
    assert numbers(client) == list(range(sent))
