"""The partitions of this host: their directories under `logs/`, and the open `LocalPartition`s.

logs/<topic>-<n>          a partition
logs/<id>.<n>-delete      on its way out; whatever a crash left of it goes at the next start
logs/<id>.<n>-stray       was in the way when topic <id> was made: never read, never removed
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId, TopicPartition
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.durability import FlushTicket
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog

from .partition import LocalPartition, TransactionGuard
from .values import Topic

_log = logging.getLogger(__name__)

_AT_ONCE = 16  # partitions that are made before the loop gets its turn
_FLUSHED_TOGETHER = 64

LogOpener = Callable[[Path, TopicConfig], PartitionLog]


class LocalPartitions:
    """Implements `topics.TopicStorage`, and answers who looks for a partition."""

    def __init__(
        self,
        directory: Path,
        open_log: LogOpener,
        flusher: Flusher,
        guard: TransactionGuard,
        counters: BrokerCounters,
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._open_log = open_log
        self._flusher = flusher
        self._guard = guard
        self._counters = counters
        self._clock = clock
        self._by_topic: dict[str, dict[int, LocalPartition]] = {}
        self._removals: set[asyncio.Future[None]] = set()

    def get(self, topic: str, index: int) -> LocalPartition:
        """UNKNOWN_TOPIC where there is none."""
        found = self.find(topic, index)
        if found is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {topic}-{index}")
        return found

    def find(self, topic: str, index: int) -> LocalPartition | None:
        partitions = self._by_topic.get(topic)
        return partitions.get(index) if partitions is not None else None

    def __iter__(self) -> Iterator[LocalPartition]:
        """All of them, as they are now; topics may come and go while it runs."""
        for partitions in list(self._by_topic.values()):
            yield from list(partitions.values())

    # --- TopicStorage

    def open(self, topic: Topic, led: Collection[int] | None = None) -> None:
        """`led`: the partitions that this host leads, None for all."""
        indexes = range(topic.partitions) if led is None else sorted(led)
        self._by_topic[topic.name] = {index: self._opened(topic, index) for index in indexes}

    async def create(self, topic: Topic, first: int) -> None:
        await self._make(topic, range(first, topic.partitions))

    async def apply(self, topic: Topic, led: Collection[int]) -> None:
        """A topic of several hosts as it is now: makes what this host leads and has not open. STORAGE."""
        there = self._by_topic.setdefault(topic.name, {})
        await self._make(topic, [index for index in sorted(led) if index not in there])
        self.reconfigure(topic)

    async def _make(self, topic: Topic, indexes: Sequence[int]) -> None:
        """All of them or, where one is refused, none."""
        made = self._by_topic.setdefault(topic.name, {})
        try:
            for number, index in enumerate(indexes):
                self._put_aside(topic.name, topic.topic_id, index, "stray")
                made[index] = self._opened(topic, index)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
        except BaseException:
            self._remove(topic, indexes)
            raise

    def reconfigure(self, topic: Topic) -> None:
        for partition in self._by_topic[topic.name].values():
            partition.reconfigure(topic.config)

    def remove(self, topic: Topic, first: int = 0) -> None:
        self._remove(topic, [index for index in self._by_topic.get(topic.name, ()) if index >= first])

    def _remove(self, topic: Topic, indexes: Iterable[int]) -> None:
        partitions = self._by_topic.get(topic.name, {})
        leaving = [partitions.pop(index) for index in indexes if index in partitions]
        if not partitions:
            self._by_topic.pop(topic.name, None)
        for partition in leaving:
            partition.remove()
        self._discard(topic.name, topic.topic_id, [partition.name.partition for partition in leaving])

    def put_aside(self, topic: Topic) -> None:
        """The topic is not there any more, though nobody deleted it: closes its logs and keeps the files."""
        now_ms = int(self._clock() * 1000)
        for index, partition in self._by_topic.pop(topic.name, {}).items():
            partition.close(now_ms)
            self._put_aside(topic.name, topic.topic_id, index, "stray")

    def remove_leftovers(self, name: str, topic_id: TopicId, partitions: int) -> None:
        self._discard(name, topic_id, range(partitions))

    # --- life

    def sweep(self) -> None:
        """At start: removes what is on its way out."""
        self._remove_trees(list(self._directory.glob("*-delete")))

    async def close(self) -> None:
        """Closes every partition; the first refusal is raised when all were tried."""
        await asyncio.gather(*self._removals)
        now_ms = int(self._clock() * 1000)
        refusals = await _flush_together([partition.log for partition in self], now_ms)
        for partition in self:
            try:
                partition.close(now_ms)
            except TreecastError as error:
                refusals.append(error)
        self._by_topic.clear()
        if refusals:
            raise refusals[0]

    def abandon(self) -> None:
        """Lets go of all files without a flush."""
        for partition in self:
            partition.log.delete()
        self._by_topic.clear()

    def _opened(self, topic: Topic, index: int) -> LocalPartition:
        return LocalPartition(
            TopicPartition(topic.name, index),
            self._open_log(self._path(topic.name, index), topic.config),
            self._flusher,
            self._guard,
            self._counters,
            self._clock,
        )

    def _path(self, topic: str, index: int) -> Path:
        return self._directory / f"{topic}-{index}"

    def _discard(self, topic: str, topic_id: TopicId, indexes: Iterable[int]) -> None:
        """Renames, so that the name is free at once; the removal takes its time on a thread.

        The first refusal is raised when all were tried.
        """
        moved: list[Path] = []
        first: TreecastError | None = None
        for index in indexes:
            try:
                aside = self._put_aside(topic, topic_id, index, "delete")
            except TreecastError as error:
                first = first or error
            else:
                moved += [aside] if aside is not None else []
        self._remove_trees(moved)
        if first is not None:
            raise first

    def _remove_trees(self, paths: list[Path]) -> None:
        if paths:
            removal = asyncio.get_running_loop().run_in_executor(None, _remove_all, paths)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    def _put_aside(self, topic: str, topic_id: TopicId, index: int, why: str) -> Path | None:
        """Where the directory is now; None where there was none."""
        path = self._path(topic, index)
        aside = self._directory / f"{topic_id.hex}.{index}-{why}"
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(f"rename {path}", error) from error
        if why == "stray":
            _log.warning("%s belonged to no topic and was renamed to %s", path, aside.name)
        return aside


async def _flush_together(logs: list[PartitionLog], now_ms: int) -> list[TreecastError]:
    """Flushes with checkpoints, many at a time on threads: one after another takes ms each."""
    refusals: list[TreecastError] = []
    loop = asyncio.get_running_loop()
    dirty = [log for log in logs if not log.durability.failed and not log.durability.covered()]
    for start in range(0, len(dirty), _FLUSHED_TOGETHER):
        some = dirty[start : start + _FLUSHED_TOGETHER]
        work = [(log, ticket) for log in some if (ticket := log.durability.begin(now_ms, checkpoint=True))]
        done = await asyncio.gather(*(loop.run_in_executor(None, _run, ticket) for _, ticket in work))
        for (log, ticket), error in zip(work, done, strict=True):
            try:
                log.durability.end(ticket, error)
            except TreecastError as refused:
                refusals.append(refused)
    return refusals


def _run(ticket: FlushTicket) -> OSError | None:
    try:
        ticket.run()
    except OSError as error:
        return error
    return None


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)  # what stays goes at the next start


def _refused(what: str, error: OSError) -> TreecastError:
    return TreecastError(Fault.STORAGE, f"cannot {what}: {error.strerror or error}")
