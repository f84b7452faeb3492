"""The partitions of this host: their directories under `logs/`, and the open partitions.

logs/<topic>-<n>          a partition that is led or followed here; `partition.metadata` names its topic
logs/<id>.<n>-delete      to be removed; what a crash leaves of it is removed at the next start
logs/<id>.<n>-stray       was in the way when topic <id> was made; never read, never removed
logs/<id>.<n>-aside.<t>   a copy that differed from its leader's, put aside at <t> (Unix ms); likewise

A standalone host leads all partitions of its topics. A joined host leads some, follows some, and has nothing
of the others. A led partition that was never written has no directory; its first record makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId, TopicPartition
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.durability import FlushTicket
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog

from .followed import FollowedPartition
from .partition import LocalPartition, LogPartition, TransactionGuard
from .partition_directories import PartitionDirectories
from .values import Topic

_AT_ONCE = 16  # partitions made before the loop gets its turn
_FLUSHED_TOGETHER = 64


class LogOpener(Protocol):
    """Opens or makes a log; with `claim`, makes it at the first write (see `PartitionLog.open`)."""

    def __call__(
        self, path: str, config: TopicConfig, claim: Callable[[], None] | None = None
    ) -> PartitionLog: ...


class LocalPartitions:
    """Implements `topics.TopicStorage`, and the look-up of partitions.

    `guard` verifies the transactions of producers. `unclean_epoch` is the leader epoch with which logs led
    here continue if an earlier run did not close them in order. It exceeds every epoch that such a run can
    have used, and replicas can thus tell lost records from later ones. None after a clean stop.
    `least_epoch` is the epoch of logs that existed before but have no file that holds it. `doubted_epoch` is
    the epoch of logs whose files differ from those of a clean stop, according to their summaries; -1: no
    summaries are kept.
    """

    def __init__(
        self,
        directory: Path,
        open_log: LogOpener,
        flusher: Flusher,
        guard: TransactionGuard,
        counters: BrokerCounters,
        clock: Callable[[], float],
        unclean_epoch: int | None = None,
        least_epoch: int = 0,
        doubted_epoch: int = -1,
    ) -> None:
        self.guard = guard
        self._directories = PartitionDirectories(directory)
        self._open_log = open_log
        self._flusher = flusher
        self._counters = counters
        self._clock = clock
        self._unclean_epoch = unclean_epoch
        self._least_epoch = least_epoch
        self._doubted_epoch = doubted_epoch
        self._by_topic: dict[str, dict[int, LocalPartition]] = {}
        self._followed: dict[str, dict[int, FollowedPartition]] = {}

    def get(self, topic: str, index: int) -> LocalPartition:
        """Returns a partition that this host leads. Raises UNKNOWN_TOPIC if there is none."""
        partitions = self._by_topic.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {topic}-{index}")
        return partition

    def find(self, topic: str, index: int) -> LocalPartition | None:
        """Returns the partition if this host leads it, else None."""
        return self._by_topic.get(topic, {}).get(index)

    def replica(self, topic: str, index: int) -> FollowedPartition | None:
        """Returns the open replica of a partition that another host leads, if this host has one."""
        return self._followed.get(topic, {}).get(index)

    def led(self) -> Iterator[LocalPartition]:
        """Yields the partitions that this host leads; topics may be added or removed meanwhile."""
        for partitions in list(self._by_topic.values()):
            yield from list(partitions.values())

    def followed(self) -> Iterator[FollowedPartition]:
        """Yields all open replicas; topics may be added or removed meanwhile."""
        for replicas in list(self._followed.values()):
            yield from list(replicas.values())

    def __iter__(self) -> Iterator[LogPartition]:
        """Yields all partitions whose logs are open here."""
        yield from self.led()
        yield from self.followed()

    # --- TopicStorage, and the calls of `relay`

    def open(self, topic: Topic, led: Mapping[int, int] | None = None) -> None:
        """Opens the partitions led here at start, making missing ones. Raises STORAGE.

        `led` maps partition numbers to the least leader epoch with which the log continues. None: all
        partitions are led here.
        """
        epochs = dict.fromkeys(range(topic.partitions), 0) if led is None else led
        self._by_topic[topic.name] = {
            index: self._opened(topic, index, epoch, at_start=True) for index, epoch in epochs.items()
        }

    async def create(self, topic: Topic, first: int) -> None:
        made = self._by_topic.setdefault(topic.name, {})
        try:
            for index in range(first, topic.partitions):
                self._directories.put_aside(topic.name, topic.topic_id, index, "stray")
                made[index] = self._local(topic.name, index, self._unwritten(topic, index))
                if index % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
        except BaseException:
            self.remove(topic, first)
            raise

    async def apply(self, topic: Topic, led: Mapping[int, int]) -> None:
        """Applies the topic's present definition: opens partitions that are led here and not open yet.

        `led` as in `open`. A replica that is now led here becomes a led partition; a partition that is no
        longer led here becomes a replica. Raises STORAGE.
        """
        partitions = self._by_topic.setdefault(topic.name, {})
        for number, index in enumerate(sorted(led)):
            if index not in partitions:
                partitions[index] = self._taken_over(topic, index, led[index])
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        for index in [index for index in partitions if index not in led]:
            log = partitions.pop(index).release()
            self._keep_replica(topic.name, index, log)
        self.reconfigure(topic)

    def follow(self, topic: Topic, index: int) -> FollowedPartition:
        """Opens or makes the replica of a partition that another host leads. Raises STORAGE."""
        replica = self.replica(topic.name, index)
        if replica is not None:
            return replica
        self._directories.put_strangers_aside(topic.name, topic.topic_id, index)
        return self._keep_replica(topic.name, index, self._log(topic, index))

    def held(self, topic: Topic, index: int) -> PartitionLog | None:
        """Returns the log of a partition, led or not, if this host has one. Opens it if needed. Raises
        STORAGE."""
        led = self.find(topic.name, index)
        if led is not None:
            return led.log
        replica = self.replica(topic.name, index)
        if replica is None and self._directories.owner(topic.name, index) == topic.topic_id:
            replica = self.follow(topic, index)
        return replica.log if replica is not None else None

    def put_replica_aside(self, topic: Topic, index: int) -> Path | None:
        """Renames a replica's directory to make room for another, and returns the new path. Removes nothing.
        Raises STORAGE."""
        now_ms = int(self._clock() * 1000)
        replica = self._followed.get(topic.name, {}).pop(index, None)
        if replica is not None:
            replica.close(now_ms)
        return self._directories.put_aside(topic.name, topic.topic_id, index, f"aside.{now_ms}")

    def drop(self, topic: Topic, index: int) -> None:
        """Removes a replica and its files. Readers get UNKNOWN_TOPIC, as for a deleted topic."""
        replica = self._followed.get(topic.name, {}).pop(index, None)
        if replica is not None:
            replica.remove()
        self._directories.discard(topic.name, topic.topic_id, [index])

    def reconfigure(self, topic: Topic) -> None:
        for partition in self._by_topic.get(topic.name, {}).values():
            partition.reconfigure(topic.config)
        for replica in self._followed.get(topic.name, {}).values():
            replica.reconfigure(topic.config)

    def remove(self, topic: Topic, first: int = 0) -> None:
        """Removes the partitions from `first` on with their files. Readers get UNKNOWN_TOPIC."""
        for partition in self._taken_out(topic.name, first):
            partition.remove()
        self._directories.discard(topic.name, topic.topic_id, range(first, topic.partitions))

    def put_aside(self, topic: Topic) -> None:
        """Closes the partitions of a topic that vanished without a deletion, and keeps their files."""
        now_ms = int(self._clock() * 1000)
        for partition in self._taken_out(topic.name, 0):
            partition.close(now_ms)
        for index in range(topic.partitions):
            self._directories.put_aside(topic.name, topic.topic_id, index, "stray")

    def remove_leftovers(self, name: str, topic_id: TopicId, partitions: int) -> None:
        self._directories.discard(name, topic_id, range(partitions))

    def _taken_out(self, topic: str, first: int) -> list[LogPartition]:
        leaving: list[LogPartition] = []
        led = self._by_topic.get(topic, {})
        leaving += [led.pop(index) for index in sorted(led) if index >= first]
        if not led:
            self._by_topic.pop(topic, None)
        followed = self._followed.get(topic, {})
        leaving += [followed.pop(index) for index in sorted(followed) if index >= first]
        if not followed:
            self._followed.pop(topic, None)
        return leaving

    # --- life

    def sweep(self) -> None:
        """Removes the directories whose removal is pending; called at start."""
        self._directories.sweep()

    async def close(self) -> None:
        """Closes all partitions, then raises the first error."""
        await self._directories.settle()
        now_ms = int(self._clock() * 1000)
        refusals = await flush_together((partition.log for partition in self), now_ms, leaving=True)
        for partition in self:
            try:
                partition.close(now_ms)
            except TreecastError as error:
                refusals.append(error)
        self._by_topic.clear()
        self._followed.clear()
        if refusals:
            raise refusals[0]

    def abandon(self) -> None:
        """Releases all files without a flush."""
        for partition in self:
            partition.log.delete()
        self._by_topic.clear()
        self._followed.clear()

    def _taken_over(self, topic: Topic, index: int, epoch: int) -> LocalPartition:
        """Makes a led partition from the open replica, from the files on disk, or from nothing."""
        replica = self._followed.get(topic.name, {}).pop(index, None)
        if replica is not None:
            log = replica.release()
            _raise_epoch(log, epoch)
            return self._local(topic.name, index, log)
        self._directories.put_strangers_aside(topic.name, topic.topic_id, index)
        return self._opened(topic, index, epoch)

    def _opened(self, topic: Topic, index: int, epoch: int, *, at_start: bool = False) -> LocalPartition:
        """Opens or makes a led partition. If its log is missing at the start, replicas may hold the lost
        records; the log therefore begins with a raised leader epoch."""
        if (
            at_start and self._unclean_epoch is not None
        ):  # a power loss may have undone the removal of a namesake
            self._directories.put_strangers_aside(topic.name, topic.topic_id, index)
        if self._directories.exists(topic.name, index):
            log = self._log(topic, index)
        else:
            log = self._unwritten(topic, index)
            epoch = max(epoch, self._least_epoch if at_start else 0)
        if at_start or not log.made:
            self._begin_epoch(log)
        _raise_epoch(log, epoch)
        return self._local(topic.name, index, log)

    def _begin_epoch(self, log: PartitionLog) -> None:
        """Begins a leader epoch that was never announced, if the log was not closed in order."""
        if self._unclean_epoch is not None:
            log.begin_epoch(max(self._unclean_epoch, log.leader_epoch + 1))
        elif self._doubted_epoch >= 0 and log.has_files and not log.trusted:
            log.begin_epoch(max(self._doubted_epoch, log.leader_epoch + 1))

    def _log(self, topic: Topic, index: int) -> PartitionLog:
        log = self._open_log(self._directories.path(topic.name, index), topic.config)
        if log.made:
            self._directories.claim(topic.name, topic.topic_id, index)
        return log

    def _unwritten(self, topic: Topic, index: int) -> PartitionLog:
        claim = partial(self._directories.claim, topic.name, topic.topic_id, index)
        return self._open_log(self._directories.path(topic.name, index), topic.config, claim)

    def _local(self, topic: str, index: int, log: PartitionLog) -> LocalPartition:
        return LocalPartition(
            TopicPartition(topic, index), log, self._flusher, self.guard, self._counters, self._clock
        )

    def _keep_replica(self, topic: str, index: int, log: PartitionLog) -> FollowedPartition:
        replica = FollowedPartition(TopicPartition(topic, index), log)
        self._followed.setdefault(topic, {})[index] = replica
        return replica


def _raise_epoch(log: PartitionLog, epoch: int) -> None:
    """Raises the log's leader epoch to at least `epoch`: lower ones belong to other leaders."""
    if epoch > log.leader_epoch:
        log.begin_epoch(epoch)


async def flush_together(
    logs: Iterable[PartitionLog], now_ms: int, *, leaving: bool = False
) -> list[TreecastError]:
    """Flushes logs with checkpoints on threads, many at a time, as each takes milliseconds.

    Returns the errors. `leaving`: the logs are closed next, and those with a summary need no checkpoint.
    """
    refusals: list[TreecastError] = []
    loop = asyncio.get_running_loop()
    dirty = [log for log in logs if not log.rests and not log.durability.settled(leaving=leaving)]
    for start in range(0, len(dirty), _FLUSHED_TOGETHER):
        some = dirty[start : start + _FLUSHED_TOGETHER]
        work = [(log, ticket) for log in some if (ticket := _ticket(log, now_ms, leaving))]
        done = await asyncio.gather(*(loop.run_in_executor(None, _run, ticket) for _, ticket in work))
        for (log, ticket), error in zip(work, done, strict=True):
            try:
                log.durability.end(ticket, error)
            except TreecastError as refused:
                refusals.append(refused)
    return refusals


def _ticket(log: PartitionLog, now_ms: int, leaving: bool) -> FlushTicket | None:
    return log.durability.begin(now_ms, checkpoint=not (leaving and log.durability.in_summary()))


def _run(ticket: FlushTicket) -> OSError | None:
    try:
        ticket.run()
    except OSError as error:
        return error
    return None
