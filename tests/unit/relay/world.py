"""Hosts of one cluster in one process: real logs, channels and fabrics over loopback, no daemons."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.unit.fabric.channel.hosts import kill as kill_channels
from tests.unit.fabric.edges import KEYS, lose

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import (
    Change,
    HostEntry,
    Kind,
    PartitionEntry,
    Position,
    Presence,
    TopicEntry,
    Update,
)
from treecast.middleware.broker.cluster import PartitionLeader
from treecast.middleware.broker.directory import DataDirectory
from treecast.middleware.broker.long_poll import LongPolls
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.broker.values import Appended, Isolation, PartitionRead, Topic
from treecast.middleware.fabric.channel import Channels, ChannelSettings, Methods
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.counters import (
    BrokerCounters,
    ChannelCounters,
    FabricCounters,
    RelayCounters,
    StorageCounters,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, TopicId
from treecast.middleware.model.records import Record
from treecast.middleware.model.runs import DirectoryState
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.relay.carrier_group import CarrierSettings
from treecast.middleware.relay.distribution import Distribution
from treecast.middleware.relay.interest import InterestSettings
from treecast.middleware.relay.next_hops import NextHops
from treecast.middleware.relay.partitions.lost_disk import Recorded
from treecast.middleware.relay.partitions.ports import PartitionSettings
from treecast.middleware.relay.partitions.relay_partitions import RelayPartitions
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import FsyncPolicy, LogSettings
from treecast.middleware.storage.tables import Tables
from treecast.middleware.wire.record_batch import build_batch, read_header

from .world_parts import Definitions, FakeLink, FakeRecord, OpenGuard

PATIENCE = 30.0  # seconds until a test gives up; no test asserts it
UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED
STREAM = StreamSettings(
    mtu=1400, report_every=0.01, report_idle=0.2, round_trip=0.002, silent_after=2.0, replay_stall=0.2
)
CHANNEL = ChannelSettings(
    ping_every=0.2, silent_after=1.0, back_off_first=0.01, back_off_longest=0.1, tick=0.05
)
SETTINGS = PartitionSettings(
    down_grace=0.2,
    retry_first=0.02,
    retry_longest=0.2,
    stall=1.0,
    follow_again=3.0,
    offsets_wait=0.5,
    ends_every=0.05,
    quiet=0.1,
    rebuild_look=0.05,
)
LOOPBACK = Address("127.0.0.1", 0)
CLUSTER = "TmFtZU9mQUNsdXN0ZXIwMA"
KEY = b"a key of the channel, 32 bytes.."


async def until(what: Callable[[], object]) -> None:
    """Waits until `what` is true."""
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def settled(value: Any) -> Any:
    return await value if isinstance(value, asyncio.Future) else value


class World:
    """The topics and hosts of a cluster. Hosts are started, killed and started again by number."""

    def __init__(self, root: Path, *, loss: float = 0.0, settings: PartitionSettings = SETTINGS) -> None:
        self.root = root
        self.loss = loss
        self.settings = settings
        self.carriers = CarrierSettings(hosts=0)
        self.fabric = FabricSettings(stream=STREAM, mtu=1500)
        self.recorded: dict[int, tuple[int, list[str]]] = {}  # by host: version and patterns
        self.states: dict[tuple[str, ...], int] = {}
        self.away = False  # the coordinator is away
        self.topics: dict[str, TopicEntry] = {}
        self.hosts: dict[int, TestHost] = {}
        self.revision = 0
        self.ends: dict[tuple[TopicId, int], Recorded] = {}  # the coordinator's record
        self.runs: dict[int, int] = {}
        self.directories: dict[int, str] = {}

    def run_of(self, number: int, run: int) -> int:
        """Counts runs as the coordinator does: over all directories of a host."""
        self.runs[number] = max(self.runs.get(number, 0) + 1, run)
        return self.runs[number]

    def directory_of(self, number: int) -> str:
        return self.directories.setdefault(number, f"directory of {number}")

    async def lose_disk(self, number: int) -> Path:
        """Gives the killed host `number` another directory. Returns the path of the old one."""
        lost = self.root / f"{number} lost {len(list(self.root.iterdir()))}"
        (self.root / str(number)).rename(lost)
        await self.give_disk(number, f"another directory of {number}, {lost.name}")
        return lost

    async def give_disk(self, number: int, directory: str) -> None:
        """Changes the host's directory, as the coordinator sees it when the host attaches."""
        self.directories[number] = directory
        for name, entry in self.topics.items():
            leaders = tuple(
                replace(leader, waits=True) if leader.leader == number else leader
                for leader in entry.partitions
            )
            self.topics[name] = replace(entry, partitions=leaders)
        await self.tell()

    async def topic(self, name: str, *leaders: int, **config: object) -> TopicEntry:
        """Creates the topic, or changes its leaders."""
        overrides = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{self.revision}")
        entry = TopicEntry(name, topic_id, tuple(PartitionEntry(leader, 0) for leader in leaders), overrides)
        self.topics[name] = entry
        await self.tell()
        return entry

    async def delete(self, name: str) -> None:
        del self.topics[name]
        await self.tell()

    async def tell(self) -> None:
        self.revision += 1
        for host in self.hosts.values():
            await host.learn(self.topics, self.revision)

    async def start(self, *numbers: int) -> list[TestHost]:
        for number in numbers:
            host = TestHost(self, number)
            self.hosts[number] = host
            await host.start(self.topics, self.revision)
        self._introduce()
        await self.tell()
        started = [self.hosts[number] for number in numbers]
        await until(lambda: all(host.connected(self.hosts) for host in self.hosts.values()))
        return started

    def _introduce(self) -> None:
        for one in self.hosts.values():
            for other in self.hosts.values():
                if one is not other:
                    one.channels.set_host(other.number, other.address)
                    one.fabric.set_host(other.number, other.fabric.address)

    def kill(self, number: int, *, power_loss: int = 0) -> None:
        """Kills the host without a close. `power_loss`: bytes lost at the end of each log that it leads."""
        host = self.hosts.pop(number)
        host.kill()
        if power_loss:
            host.lose(power_loss)

    async def stop(self, number: int) -> None:
        """Stops the host in order."""
        await self.hosts.pop(number).stop()

    async def close(self) -> None:
        for number in list(self.hosts):
            await self.stop(number)


class TestHost:
    """One host; its faces see `partition`."""

    __test__ = False

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.counters = RelayCounters()
        self.directory = DataDirectory.open(world.root / str(number), number, CLUSTER)
        self.directory.raise_run(world.run_of(number, self.directory.run))
        self.run = self.directory.run
        self.directory_id = world.directory_of(number)
        self.clock_ms = 1_000_000
        self.tables = Tables(self.directory.tables, FsyncPolicy.NEVER)
        self.flusher = Flusher(1)
        self.partitions = LocalPartitions(
            self.directory.logs,
            self._open_log,
            self.flusher,
            OpenGuard(),
            BrokerCounters(),
            self.clock,
            None if self.directory.was_clean else self.run,
        )
        self.definitions = Definitions()
        self.view = ClusterView()

    def clock(self) -> float:
        return self.clock_ms / 1000

    def _trouble(self, host: int) -> str:
        return "" if self.channels.is_up(host) else f"no channel to {host}"

    def _open_log(
        self, path: str, config: TopicConfig, claim: Callable[[], None] | None = None
    ) -> PartitionLog:
        return PartitionLog.open(path, config, LogSettings(), StorageCounters(), self.clock_ms, claim=claim)

    # --- start and stop

    async def start(self, topics: Mapping[str, TopicEntry], revision: int) -> None:
        methods = Methods()
        rng = random.Random(self.number * 1000 + self.run)
        self.channels = Channels(
            self.number, self.run, CLUSTER, KEY, CHANNEL, ChannelCounters(), rng, methods.handle
        )
        methods.use(self.channels)
        self.fabric = Fabric(self.number, self.world.fabric, KEYS, FabricCounters(), rng)
        await self.fabric.start(("127.0.0.1", 0))
        if self.world.loss:
            lose(self.fabric, self.number, self.world.loss)
        parts: Any = LocalParts(
            *[None] * 2,  # type: ignore[arg-type]
            Host(self.number, f"host{self.number}"),
            self.tables,
            self.partitions,
            *[None] * 5,  # type: ignore[arg-type]
            self.clock,
            rng,
            self.run,
            LongPolls(asyncio.get_running_loop()),
            None,  # type: ignore[arg-type]
        )
        self.relay = RelayPartitions(
            parts,
            self.definitions,
            self.view,
            self.channels,
            methods,
            self.fabric,
            self.world.settings,
            self.counters,
            FakeRecord(self.world, self.number),
            DirectoryState(self.directory_id, tuple(run.id for run in self.directory.runs)),
        )
        self.distribution = Distribution(
            FakeLink(self.world, self.number, self.view),  # type: ignore[arg-type]
            methods,
            self.fabric,
            self.relay,
            InterestSettings(),
            self.world.carriers,
            self.counters,
        )
        self.ways = NextHops(self.distribution, self.fabric, methods, self.view, self._trouble)
        self.channels.on_up = self.distribution.host_up
        self.channels.on_down = self.distribution.host_down
        for entry in topics.values():
            self.partitions.open(self._topic(entry), self._led(entry))
        await self.learn(topics, revision)
        await self.relay.start()
        await self.distribution.start()
        self.address = await self.channels.start(LOOPBACK)

    async def learn(self, topics: Mapping[str, TopicEntry], revision: int) -> None:
        """Handles an update of the coordinator."""
        known, self.definitions.known = self.definitions.known, {}
        for name, topic in known.items():
            if name not in topics or topics[name].topic_id != topic.topic_id:
                self.partitions.remove(topic)
        for entry in topics.values():
            await self.partitions.apply(self._topic(entry), self._led(entry))
            self.definitions.known[entry.name] = self._topic(entry)
        hosts = [
            HostEntry(
                number,
                f"host{number}",
                directory,
                "h:1",
                "1",
                1,
                self._presence(number),
                self.world.runs[number],
            )
            for number, directory in sorted(self.world.directories.items())
        ]
        changes = (
            *(Change(Kind.HOST, host.name, host) for host in hosts),
            *(Change(Kind.TOPIC, entry.name, entry) for entry in topics.values()),
        )
        self.view.apply(Update(snapshot=True, position=Position("h", revision), changes=changes))

    def _presence(self, number: int) -> Presence:
        return Presence.ATTACHED if number in self.world.hosts else Presence.AWAY

    def _topic(self, entry: TopicEntry) -> Topic:
        return Topic(entry.name, entry.topic_id, len(entry.partitions), TopicConfig.of(entry.config))

    def _led(self, entry: TopicEntry) -> dict[int, int]:
        return {
            number: leader.leader_epoch
            for number, leader in enumerate(entry.partitions)
            if leader.leader == self.number and not leader.waits
        }

    def connected(self, hosts: Mapping[int, TestHost]) -> bool:
        return all(self.channels.is_up(number) for number in hosts if number != self.number)

    async def stop(self) -> None:
        await self.distribution.close()
        await self.relay.close()
        await self.channels.close()
        self.fabric.close()
        await self.flusher.close()
        await self.partitions.close()
        self.tables.close()
        self.directory.close(clean=True)

    def kill(self) -> None:
        kill_channels(self.channels)
        self.fabric.close()
        self._kill_sharing()
        self.paths = [Path(partition.log.directory) for partition in self.partitions.led()]
        if self.relay.following._timer is not None:
            self.relay.following._timer.cancel()
        for partition in self.relay.following:
            if partition.replica is not None:
                partition.replica.leave()
        self._kill_rebuilding()
        self.relay.leading.close()
        self.partitions.abandon()
        self.flusher._executor.shutdown(wait=False)
        self.flusher._compactor.shutdown(wait=False)
        self.tables.close()
        self.directory.close(clean=False)

    def _kill_sharing(self) -> None:
        choice, interest = self.distribution.choice, self.distribution.interest
        if choice._timer is not None:
            choice._timer.cancel()
        groups = [group.task for group in choice._groups.values()]
        for task in (*choice._tasks, *interest._tasks, interest._recording, *groups):
            if task is not None:
                task.cancel()

    def _kill_rebuilding(self) -> None:
        tasks = [rebuild.task for rebuild in self.relay.rebuilding]
        for task in (*tasks, self.relay.ends._task):
            if task is not None:
                task.cancel()

    def lose(self, size: int) -> None:
        """Removes the bytes that were not on the disk when the power failed."""
        for path in self.paths:
            last = max(path.glob("*.log"), default=None)
            if last is None:
                continue  # nothing was written
            os.truncate(last, max(0, last.stat().st_size - size))

    # --- as a face uses it

    def partition(self, topic: str = "t", index: int = 0) -> PartitionLeader:
        return self.relay.partition(topic, index)

    def log(self, topic: str = "t", index: int = 0) -> PartitionLog:
        """Returns the log of the partition that is led here, or of its replica."""
        led = self.partitions.find(topic, index)
        replica = self.partitions.replica(topic, index)
        if led is not None:
            return led.log
        assert replica is not None, f"host {self.number} has no log of {topic}-{index}"
        return replica.log

    def append(
        self, *values: bytes, topic: str = "t", index: int = 0, acks: int = -1, **more: Any
    ) -> Appended | asyncio.Future[Appended]:
        data = bytearray(batch(*values, **more))
        tid = "tx" if more.get("transactional") else None
        return self.partition(topic, index).append(memoryview(data), acks, tid)

    async def produce(self, *values: bytes, **more: Any) -> int:
        """Returns the base offset."""
        appended: Appended = await settled(self.append(*values, **more))
        return appended.base_offset

    async def read(
        self, offset: int, isolation: Isolation = UNCOMMITTED, *, topic: str = "t", index: int = 0
    ) -> PartitionRead:
        found = self.partition(topic, index).read(offset, 1 << 20, isolation, at_least_one=True)
        result: PartitionRead = await settled(found)
        return result

    async def consume(self, until_offset: int, offset: int = 0, *, topic: str = "t", index: int = 0) -> bytes:
        """Polls like a consumer. Returns all bytes from `offset` on."""
        data = bytearray()
        while offset < until_offset:
            try:
                found = await self.read(offset, topic=topic, index=index)
            except TreecastError as error:
                if error.fault not in (Fault.LEADER_UNAVAILABLE, Fault.TIMED_OUT):
                    raise
                await asyncio.sleep(0.01)
                continue
            if not found.size:
                await wait_for_more(self.partition(topic, index))
                continue
            part = b"".join(map(bytes, map(in_memory, found.chunks)))
            data += part
            offset = headers_of(part)[-1].next_offset
        return bytes(data)

    def copied(self, topic: str = "t", index: int = 0) -> Callable[[], bool]:
        """Returns a check that this host's replica has all that the leader has."""
        leader = self.world.topics[topic].partitions[index].leader

        def check() -> bool:
            there = self.world.hosts[leader].log(topic, index)
            replica = self.partitions.replica(topic, index)
            return replica is not None and replica.log.end_offset == there.end_offset

        return check


class Waiting:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.told: list[int | str] = []

    def grown(self, size: int) -> None:
        self.told.append(size)
        self.event.set()

    def foreseen(self, size: int) -> None:
        """This waiter needs what is in the log."""

    def gone(self) -> None:
        self.told.append("gone")
        self.event.set()


async def wait_for_more(
    partition: PartitionLeader, isolation: Isolation = UNCOMMITTED, time: float = 1.0
) -> bool:
    """Runs a long poll. Returns whether anything came."""
    waiting = Waiting()
    partition.watch(waiting, isolation)
    try:
        async with asyncio.timeout(time):
            await waiting.event.wait()
    except TimeoutError:
        return False
    finally:
        partition.unwatch(waiting)
    return True


def batch(*values: bytes, **more: Any) -> bytes:
    return build_batch([Record(b"k%d" % n, value, (), 1_000_000) for n, value in enumerate(values)], **more)


def headers_of(data: bytes) -> list[Any]:
    found = []
    position = 0
    while position < len(data):
        found.append(read_header(data, position))
        position += found[-1].size
    return found


def content(log: PartitionLog) -> bytes:
    """Returns all bytes of a log from its start."""
    data = bytearray()
    offset = log.start_offset
    while offset < log.end_offset:
        chunks, size = log.read(offset, 1 << 20, log.end_offset, at_least_one=True)
        if not size:
            break
        part = b"".join(map(bytes, map(in_memory, chunks)))
        data += part
        offset = headers_of(part)[-1].next_offset
    return bytes(data)


StartWorld = Callable[..., Awaitable[World]]
