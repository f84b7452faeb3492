"""At a host with interest: the partitions that other hosts lead, and which of them are followed.

A partition is followed from its first fetch until it has not been fetched for a while. Followed partitions
are stored (table `replicas`: topic id and number -> topic, whether it is followed, and the data directory of
the leader with which its log last agreed), and the host continues to follow them after a restart. A replica
that is no longer followed stays on disk until its space is needed.
"""

from __future__ import annotations

import asyncio
import json
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
from treecast.middleware.model.logs import Log
from treecast.middleware.model.runs import DirectoryState
from treecast.middleware.storage.tables import Change, Tables

from . import calls
from .ports import PartitionSettings, Topics
from .proxy import LeaderProxy
from .remote import RemotePartition
from .replica import Replica
from .stream_log import StreamMemory

_log = Log(__name__)

REPLICAS = "replicas"
_TICK = 1.0  # s


class Following:
    """The partitions led by other hosts that clients here have asked for. In use from `start` to `close`."""

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
        directory: DirectoryState,
    ) -> None:
        """`directory`: this host's data directory."""
        self._directory = directory.name
        self.on_interest: Callable[[Topic, bool], None] | None = (
            None  # called when a topic becomes wanted here (True) or unwanted (False)
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
        self._topic_of: dict[TopicPartition, Topic] = {}  # topics of `_remote`, as at their look-up
        self._wanted: dict[str, set[int]] = {}  # by topic: the followed partitions
        self._known: dict[str, tuple[str, bool, str]] = {}  # contents of the table
        self._down: dict[int, float] = {}
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._memory = StreamMemory(block_bytes=4 << 20)  # for repairs to other hosts when a leader is gone
        self._writes: set[asyncio.Task[None]] = set()
        methods.register(calls.LOG_START, self._log_starts)
        methods.register(calls.CUT, self._log_cut)

    def __iter__(self) -> Iterator[RemotePartition]:
        return iter(list(self._remote.values()))

    # --- life

    def start(self, leader: Callable[[str, int], PartitionEntry | None]) -> None:
        """Resumes following the stored partitions. Topics must be known. `leader` looks up leaders."""
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
            _log.warning("stored replica cannot be read", key=key, error=error)
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

    # --- look-ups

    def partition(self, topic: Topic, index: int, leader: PartitionEntry) -> RemotePartition:
        """Returns the partition as seen from this host; creates it if it is new or its leader has changed."""
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

    # --- changes in the cluster

    def topic_changed(self, name: str, topic_id: uuid.UUID | None) -> None:
        """Drops partitions of a deleted topic or one replaced under its name.

        `topic_id`: the current id under this name, None if the topic was deleted.
        """
        for known in [known for known in self._remote if known.topic == name]:
            if self._topic_of[known].topic_id != topic_id:
                self._forget(self._key(self._topic_of[known], known.partition))
                self._drop(known, Fault.UNKNOWN_TOPIC)

    def leader_changed(self, topic: Topic, name: TopicPartition, leader: PartitionEntry) -> None:
        """Applies a change of a partition's leader: another host, none, or one again.

        A followed partition stays followed.
        """
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
        """Puts the replica of a partition aside and, if it is followed, begins a new one. Raises STORAGE.

        Returns the path of the old replica.
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
        """Drops a partition that this host now leads, with the record of the leader it agreed with."""
        if name in self._remote:
            self._forget(self._key(self._topic_of[name], name.partition))
            self._drop(name, Fault.NOT_LEADER)

    def _drop(self, name: TopicPartition, fault: Fault) -> None:
        partition = self._remote.pop(name)
        partition.leave(fault)
        self._unwanted(self._topic_of.pop(name), name.partition)

    def host_up(self, host: int) -> None:
        """Follows again, or continues to follow, the partitions of a newly connected host."""
        self._down.pop(host, None)
        for partition in self:
            if partition.leader.host == host and partition.replica is not None:
                partition.replica.want()

    def host_down(self, host: int) -> None:
        """Gives up pending calls to a disconnected host after `down_grace`: it may be back at once."""
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

    def _log_cut(self, host: int, ref: calls.PartitionRef, body: memoryview) -> tuple[Nothing, Buffer]:
        topic = self._topics.topic_by_id(ref.topic_id)
        found = self.find(topic.name, ref.partition)
        if found is not None and found.leader.host == host and found.replica is not None:
            found.replica.leave()
            found.replica.want()
        return Nothing(), b""

    # --- following and leaving

    def _want(self, partition: RemotePartition) -> None:
        """Begins a replica of a partition that is read here, if the topic's policy allows replicas."""
        name = partition.name
        topic = self._topics.topics().get(name.topic)
        if topic is None or topic.config.replica == "none":
            return
        try:
            followed = self._partitions.follow(topic, name.partition)
        except TreecastError as error:
            _log.error("partition cannot be replicated", partition=name, error=error)
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
        """Stops following a partition that has not been read for long."""
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
        """Returns the data directory of the leader with which the local log last agreed.

        A log with records (`end` > 0) that has never followed a leader was led here.
        """
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

    # --- periodic checks

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
        """Removes unfollowed replicas, least recently used first, until they fit in `idle_bytes`.

        A replica whose leader is away stays: it may be the last copy.
        """
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
            _log.info("unread replica is removed", partition=name)
            topic = self._topic_of[name]
            self._partitions.drop(topic, name.partition)
            self._forget(self._key(topic, name.partition))

    def _size(self, name: TopicPartition) -> int:
        replica = self._partitions.replica(*_pair(name))
        return replica.log.size if replica is not None else 0

    # --- the table

    def _key(self, topic: Topic, index: int) -> str:
        return f"{topic.topic_id.hex}.{index}"

    def _forget(self, key: str) -> None:
        if self._known.pop(key, None) is not None:
            self._write(key, None)

    def _write(self, key: str, value: tuple[str, bool, str] | None) -> None:
        """Writes a row in the background: a lost write only costs a replay."""
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
            _log.warning("list of replicas cannot be written", error=error)


def _coded(topic: str, followed: bool, agreed: str) -> bytes:
    return json.dumps({"topic": topic, "followed": followed, "leader": agreed}).encode()


def _pair(name: TopicPartition) -> tuple[str, int]:
    return name.topic, name.partition
