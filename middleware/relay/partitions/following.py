"""At a host with interest: the partitions that others lead, and which of them are followed.

A partition is followed from its first fetch on, and until it was not fetched for a while. What is followed
is written down (table `replicas`: topic id and number -> topic, whether it is followed, and the data
directory of the leader with which it agreed last), so that a host
goes on with it when it starts. What is not followed any more stays, until its room is needed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from treecast.middleware.api.entries import PartitionEntry
from treecast.middleware.broker.long_poll import LongPolls
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.channel import Channels, Methods, Nothing
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.tables import Change, Tables

from . import calls
from .ports import PartitionSettings, Topics
from .proxy import LeaderProxy
from .remote import RemotePartition
from .replica import Replica
from .stream_log import StreamMemory

_log = logging.getLogger(__name__)

REPLICAS = "replicas"
_TICK = 1.0  # s


class Following:
    """All partitions that others lead and somebody here has asked for. From `start` to `close`."""

    def __init__(
        self,
        partitions: LocalPartitions,
        topics: Topics,
        tables: Tables,
        channels: Channels,
        methods: Methods,
        fabric: Fabric,
        settings: PartitionSettings,
        counters: RelayCounters,
        clock: Callable[[], float],
        polls: LongPolls,
        directory: str,
    ) -> None:
        """`directory`: the id of this host's data directory."""
        self._directory = directory
        self.on_interest: Callable[[Topic, bool], None] | None = (
            None  # a topic is wanted here, or not any more
        )
        self._partitions = partitions
        self._topics = topics
        self._tables = tables
        self._channels = channels
        self._fabric = fabric
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._polls = polls
        self._remote: dict[TopicPartition, RemotePartition] = {}
        self._topic_of: dict[TopicPartition, Topic] = {}  # of those in `_remote`, as they were found
        self._wanted: dict[str, set[int]] = {}  # by topic: the partitions that are followed
        self._known: dict[str, tuple[str, bool, str]] = {}  # what the table says
        self._down: dict[int, float] = {}
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._memory = StreamMemory(block_bytes=4 << 20)  # for what others ask for when a leader is gone
        self._writes: set[asyncio.Task[None]] = set()
        methods.register(calls.LOG_START, self._log_starts)

    def __iter__(self) -> Iterator[RemotePartition]:
        return iter(list(self._remote.values()))

    # --- life

    def start(self, leader: Callable[[str, int], PartitionEntry | None]) -> None:
        """Goes on following what was followed; topics are known by now. `leader` tells who leads."""
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        for key, value in self._tables.load(REPLICAS).items():
            self._reopen(key, value, leader)
        self._timer = self._loop.call_later(_TICK, self._tick)

    def _reopen(self, key: str, value: bytes, leader: Callable[[str, int], PartitionEntry | None]) -> None:
        try:
            entry = json.loads(value)
            name, followed = str(entry["topic"]), bool(entry["followed"])
            agreed = str(entry.get("leader", ""))
            hex_id, _, number = key.partition(".")
            topic_id, index = uuid.UUID(hex_id), int(number)
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("what was followed as %s cannot be read: %s", key, error)
            self._write(key, None)
            return
        self._known[key] = (name, followed, agreed)
        topic = self._topics.topics().get(name)
        found = leader(name, index)
        if topic is None or topic.topic_id != topic_id or found is None:
            self._forget(key)
        elif self._partitions.find(name, index) is None:
            self._open(topic, index, found, followed)

    def _open(self, topic: Topic, index: int, leader: PartitionEntry, followed: bool) -> None:
        partition = self.partition(topic, index, leader)
        partition.used = self._loop.time()
        if followed:
            self._want(partition)
        else:
            self._partitions.follow(topic, index)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self:
            if partition.replica is not None:
                partition.replica.leave()
        if self._writes:
            await asyncio.gather(*self._writes, return_exceptions=True)

    # --- looking

    def partition(self, topic: Topic, index: int, leader: PartitionEntry) -> RemotePartition:
        """The partition as it is seen here."""
        name = TopicPartition(topic.name, index)
        found = self._remote.get(name)
        if found is not None and found.leader.host == leader.leader:
            return found
        if found is not None:
            self._drop(name, Fault.NOT_LEADER)
        proxy = LeaderProxy(topic.topic_id, index, leader.leader, self._channels, self._settings)
        made = RemotePartition(
            name,
            proxy,
            leader.leader_epoch,
            self._settings,
            self._counters,
            self._want,
            self._down_since,
            partial(self._defined, name.topic),
            self._clock,
        )
        made.leader.waits = leader.waits
        self._remote[name] = made
        self._topic_of[name] = topic
        return made

    def find(self, topic: str, index: int) -> RemotePartition | None:
        return self._remote.get(TopicPartition(topic, index))

    def _defined(self, topic: str) -> Topic | None:
        return self._topics.topics().get(topic)

    def _down_since(self, host: int) -> float:
        return self._down.get(host, self._started)

    # --- what the cluster tells

    def topic_changed(self, name: str, topic_id: uuid.UUID | None) -> None:
        """The topic of this name has this id now; None: it is gone."""
        for known in [known for known in self._remote if known.topic == name]:
            if self._topic_of[known].topic_id != topic_id:
                self._forget(self._key(self._topic_of[known], known.partition))
                self._drop(known, Fault.UNKNOWN_TOPIC)

    def leader_changed(self, topic: Topic, name: TopicPartition, leader: PartitionEntry) -> None:
        """Another host leads the partition, or nobody, or somebody again: it is followed as before."""
        found = self._remote.get(name)
        if found is None:
            return
        if found.leader.host != leader.leader:
            followed = found.replica is not None
            self._drop(name, Fault.NOT_LEADER)
            if followed:
                self._want(self.partition(topic, name.partition, leader))
            return
        waited, found.leader.waits = found.leader.waits, leader.waits
        if waited == leader.waits:
            return
        if found.leader.up and found.replica is not None:
            found.replica.want()
        found.look_again()

    def begin_anew(self, topic: Topic, index: int) -> Path | None:
        """The replica of a partition is put aside and, where it is followed, begun anew. STORAGE.

        Answers where the old one is.
        """
        found = self.find(topic.name, index)
        followed = found is not None and found.replica is not None
        if found is not None and found.replica is not None:
            found.replica.leave()
            found.replica = None
        aside = self._partitions.put_replica_aside(topic, index)
        if followed and found is not None:
            self._write(self._key(topic, index), (topic.name, True, ""))
            self._want(found)
        return aside

    def led_here(self, name: TopicPartition) -> None:
        """This host leads the partition now, and no other leader's log counts for its own."""
        if name in self._remote:
            self._forget(self._key(self._topic_of[name], name.partition))
            self._drop(name, Fault.NOT_LEADER)

    def _drop(self, name: TopicPartition, fault: Fault) -> None:
        partition = self._remote.pop(name)
        partition.leave(fault)
        self._unwanted(self._topic_of.pop(name), name.partition)

    def host_up(self, host: int) -> None:
        """The connection to it is there: all that it leads is followed anew, or gone on with."""
        self._down.pop(host, None)
        for partition in self:
            if partition.leader.host == host and partition.replica is not None:
                partition.replica.want()

    def host_down(self, host: int) -> None:
        """It may be back at once: who waits for it waits a little longer."""
        self._down[host] = self._loop.time()
        self._loop.call_later(self._settings.down_grace, self._give_up, host)

    def _give_up(self, host: int) -> None:
        if self._channels.is_up(host):
            return
        for partition in self:
            if partition.leader.host == host:
                partition.leader.give_up()
                partition.look_again()

    def _log_starts(
        self, host: int, notice: calls.LogStartNotice, body: memoryview
    ) -> tuple[Nothing, Buffer]:
        topic = self._topics.topic_by_id(notice.partition.topic_id)
        found = self.find(topic.name, notice.partition.partition)
        if found is not None and found.leader.host == host and found.replica is not None:
            found.replica.leader_starts_at(notice.log_start)
        return Nothing(), b""

    # --- following, and leaving

    def _want(self, partition: RemotePartition) -> None:
        """Somebody reads the partition: a replica is begun, if the topic's policy has one."""
        name = partition.name
        topic = self._topics.topics().get(name.topic)
        if topic is None or topic.config.replica == "none":
            return
        try:
            followed = self._partitions.follow(topic, name.partition)
        except TreecastError as error:
            _log.error("%s cannot be replicated here: %s", name, error)
            return
        agreed = self._agreed(topic, name.partition, followed.log.end_offset)
        partition.replica = Replica(
            followed,
            partition.leader,
            self._fabric,
            self._settings,
            self._counters,
            self._clock,
            self._polls,
            partition.changed,
            tail=topic.config.replica == "tail",
            memory=self._memory,
            agreed=agreed,
            on_agreed=partial(self._note_agreed, topic, name.partition),
        )
        self._write(self._key(topic, name.partition), (name.topic, True, agreed))
        wanted = self._wanted.setdefault(name.topic, set())
        wanted.add(name.partition)
        if len(wanted) == 1 and self.on_interest is not None:
            self.on_interest(topic, True)
        partition.replica.want()

    def _leave(self, partition: RemotePartition) -> None:
        """Nobody has read it for long."""
        name = partition.name
        assert partition.replica is not None
        partition.replica.leave()
        partition.replica = None
        topic = self._topic_of[name]
        self._write(
            self._key(topic, name.partition), (name.topic, False, self._agreed(topic, name.partition))
        )
        self._unwanted(topic, name.partition)
        if partition.leader.up:
            partition.leader.unfollow()

    def _agreed(self, topic: Topic, index: int, end: int = 0) -> str:
        """The directory of the leader with which the log here agreed last. A log with records (`end`) that
        followed no other was led here."""
        known = self._known.get(self._key(topic, index))
        if known is not None:
            return known[2]
        return self._directory if end else ""

    def _note_agreed(self, topic: Topic, index: int, directory: str) -> None:
        key = self._key(topic, index)
        known = self._known.get(key)
        if known is not None:
            self._write(key, (known[0], known[1], directory))

    def _unwanted(self, topic: Topic, index: int) -> None:
        wanted = self._wanted.get(topic.name)
        if wanted is None or index not in wanted:
            return
        wanted.discard(index)
        if not wanted:
            del self._wanted[topic.name]
            if self.on_interest is not None:
                self.on_interest(topic, False)

    # --- by and by

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK, self._tick)
        now = self._loop.time()
        for partition in self:
            replica = partition.replica
            if replica is None:
                continue
            if partition.watched:
                partition.used = now
            if now - partition.used > self._settings.idle:
                self._leave(partition)
            else:
                replica.check(now)
        self._make_room()

    def _make_room(self) -> None:
        """Replicas that nobody follows may take so much room; the one used longest ago goes. Where the leader
        is away, it may be the last copy, and stays."""
        idle = [
            (partition.used, partition.name)
            for partition in self
            if partition.replica is None
            and partition.leader.up
            and self._partitions.replica(*_pair(partition.name)) is not None
        ]
        sizes = {name: self._size(name) for _, name in idle}
        surplus = sum(sizes.values()) - self._settings.idle_bytes
        for _, name in sorted(idle):
            if surplus <= 0:
                return
            surplus -= sizes[name]
            _log.info("the replica of %s, which nobody reads, gives way", name)
            topic = self._topic_of[name]
            self._partitions.drop(topic, name.partition)
            self._forget(self._key(topic, name.partition))

    def _size(self, name: TopicPartition) -> int:
        replica = self._partitions.replica(*_pair(name))
        return replica.log.size if replica is not None else 0

    # --- what is written down

    def _key(self, topic: Topic, index: int) -> str:
        return f"{topic.topic_id.hex}.{index}"

    def _forget(self, key: str) -> None:
        if self._known.pop(key, None) is not None:
            self._write(key, None)

    def _write(self, key: str, value: tuple[str, bool, str] | None) -> None:
        """In the background: what is lost of it costs a replay, no more."""
        if value is not None:
            if self._known.get(key) == value:
                return
            self._known[key] = value
        coded = None if value is None else _coded(*value)
        task = self._loop.create_task(self._commit(Change(REPLICAS, key, coded)), name="write replicas")
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _commit(self, change: Change) -> None:
        try:
            await self._tables.commit([change])
        except TreecastError as error:
            _log.warning("what is followed could not be written down: %s", error)


def _coded(topic: str, followed: bool, agreed: str) -> bytes:
    return json.dumps({"topic": topic, "followed": followed, "leader": agreed}).encode()


def _pair(name: TopicPartition) -> tuple[str, int]:
    return name.topic, name.partition
