"""At a host that came back without its disk: copies its partitions from other hosts and leads them again.

Each waiting partition has a task that goes through the steps of `lost_disk`. The coordinator tells which
partitions wait. The start of a copy is stored (table `rebuilds`): otherwise a partial copy would be taken for
the original log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from treecast.middleware.api.entries import LostRange, PartitionEnd, PartitionEntry, TopicEntry
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.storage.tables import Change, Tables

from .copies import Copier, Survey
from .lost_disk import NO_EPOCH, Copy, Event, Known, Step, choose, follow, gone, next_epoch
from .ports import Claim, PartitionSettings, Record, Topics

_log = Log(__name__)

REBUILDS: Final = "rebuilds"


class Rebuild:
    """One partition that waits for this host."""

    def __init__(self, name: TopicPartition, entry: TopicEntry, leader: PartitionEntry, now: float) -> None:
        self.name = name
        self.entry = entry
        self.leader = leader
        self.since = now
        self.step = Step.LOOKING
        self.reason = ""  # what it waits for
        self.said = ""  # the reason logged last
        self.known: Known | None = None  # result of the last survey
        self.source: Copy | None = None
        self.accept_loss = False  # whether the operator accepts a loss
        self.over = False  # whether it no longer waits for this host
        self.looks = 0  # number of finished surveys
        self.wake = asyncio.Event()
        self.moved = asyncio.Event()  # set and replaced at each step
        self.task: asyncio.Task[None] | None = None

    @property
    def key(self) -> str:
        return f"{self.entry.topic_id.hex}.{self.name.partition}"


class Rebuilding:
    """All rebuilds of this host, from `start` to `close`. All calls come from the event loop."""

    def __init__(
        self,
        host_id: int,
        run: int,
        partitions: LocalPartitions,
        topics: Topics,
        tables: Tables,
        view: ClusterView,
        survey: Survey,
        copier: Copier,
        record: Record,
        settings: PartitionSettings,
        counters: RelayCounters,
        clock: Callable[[], float],
    ) -> None:
        """`clock` returns wall-clock seconds."""
        self._host_id = host_id
        self._run = run
        self._partitions = partitions
        self._topics = topics
        self._tables = tables
        self._view = view
        self._survey = survey
        self._copier = copier
        self._record = record
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._rebuilds: dict[TopicPartition, Rebuild] = {}
        self._at_once = asyncio.Semaphore(settings.rebuild_at_once)
        self._copied: set[str] = set()  # keys of partitions whose copy has begun here
        self._started = False
        self._do: dict[Step, Callable[[Rebuild, Topic], Awaitable[Event]]] = {
            Step.LOOKING: self._look,
            Step.WAITING: self._wait,
            Step.COPYING: self._copy,
            Step.CLAIMING: self._claim,
        }

    def __iter__(self) -> Iterator[Rebuild]:
        return iter(list(self._rebuilds.values()))

    def find(self, name: TopicPartition) -> Rebuild | None:
        return self._rebuilds.get(name)

    # --- life

    def start(self) -> None:
        self._started = True
        self._copied = set(self._tables.load(REBUILDS))
        for topic in self._view.topics:
            self.topic_changed(None, topic)

    async def close(self) -> None:
        self._started = False
        tasks = [rebuild.task for rebuild in self if rebuild.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._rebuilds.clear()

    def topic_changed(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        if not self._started:
            return
        if before is not None and (after is None or after.topic_id != before.topic_id):
            for name in [name for name in self._rebuilds if name.topic == before.name]:
                self._end(name)
        for index, leader in enumerate(after.partitions if after is not None else ()):
            assert after is not None
            name = TopicPartition(after.name, index)
            mine = leader.waits and leader.leader == self._host_id
            if mine and name not in self._rebuilds:
                self._begin(name, after, leader)
            elif not mine and name in self._rebuilds:
                self._end(name)

    def _begin(self, name: TopicPartition, entry: TopicEntry, leader: PartitionEntry) -> None:
        loop = asyncio.get_running_loop()
        rebuild = self._rebuilds[name] = Rebuild(name, entry, leader, loop.time())
        rebuild.task = loop.create_task(self._go(rebuild), name=f"rebuild {name}")

    def _end(self, name: TopicPartition) -> None:
        """Ends a rebuild. A claim under way is not cancelled: its answer tells the outcome."""
        rebuild = self._rebuilds.pop(name)
        rebuild.over = True
        _tell(rebuild)
        if rebuild.step is not Step.CLAIMING and rebuild.task is not None:
            rebuild.task.cancel()

    def look_again(self) -> None:
        """Triggers a survey of all waiting partitions: a newly connected host may have a copy."""
        for rebuild in self:
            rebuild.wake.set()

    # --- the steps

    async def _go(self, rebuild: Rebuild) -> None:
        while not rebuild.over and rebuild.step is not Step.LED:
            topic = self._topics.topics().get(rebuild.name.topic)
            if topic is None or topic.topic_id != rebuild.entry.topic_id:
                await asyncio.sleep(self._settings.rebuild_look)  # the view is ahead of the definitions
                continue
            event = await self._do[rebuild.step](rebuild, topic)
            rebuild.step = follow(rebuild.step, event)
            _tell(rebuild)

    async def _look(self, rebuild: Rebuild, topic: Topic) -> Event:
        try:
            known = await self._survey.look(topic, rebuild.name.partition)
        except TreecastError as error:
            self._told(rebuild, f"until it is known what there was: {error}")
            return Event.NOT_YET
        waited = asyncio.get_running_loop().time() - rebuild.since
        choice = choose(known, waited, self._settings.rebuild_grace, accept_loss=rebuild.accept_loss)
        rebuild.known, rebuild.source = known, choice.source
        rebuild.looks += 1
        if choice.event is Event.NOT_YET:
            self._told(rebuild, choice.reason)
        return choice.event

    def _told(self, rebuild: Rebuild, reason: str) -> None:
        """Sets the reason for waiting and logs it if it has changed."""
        rebuild.reason = reason
        if reason != rebuild.said:
            rebuild.said = reason
            name = rebuild.name
            _log.warning(
                "partition has no leader: its disk is lost or old",
                partition=name,
                waits=reason,
                advice="only if that never comes, give up what no copy has:"
                f" `treecast partitions rebuild {name.topic} {name.partition} --accept-loss`",
            )

    async def _wait(self, rebuild: Rebuild, topic: Topic) -> Event:
        try:
            async with asyncio.timeout(self._settings.rebuild_look):
                await rebuild.wake.wait()
        except TimeoutError:
            pass
        rebuild.wake.clear()
        return Event.LOOK_AGAIN

    async def _copy(self, rebuild: Rebuild, topic: Topic) -> Event:
        source, index = rebuild.source, rebuild.name.partition
        assert source is not None
        async with self._at_once:
            try:
                if rebuild.key not in self._copied:
                    await self._tables.commit([Change(REBUILDS, rebuild.key, b"")])
                    self._copied.add(rebuild.key)
                await self._copier.copy(topic, index, source)
            except TreecastError as error:
                self._told(rebuild, f"for a copy that can be read: {error}")
                return Event.SOURCE_GONE
        return Event.COPIED

    async def _claim(self, rebuild: Rebuild, topic: Topic) -> Event:
        known, index = rebuild.known, rebuild.name.partition
        assert known is not None
        try:
            log = self._partitions.held(topic, index)
            end = log.end_offset if log is not None else 0
            claim = self._claimed(rebuild, known, end, log.leader_epoch if log is not None else 0)
            await self._record.take_lead(claim)
        except TreecastError as error:
            if (
                error.fault is not Fault.FENCED_LEADER_EPOCH
            ):  # another change came first; the view will have it soon
                self._told(rebuild, f"for the coordinator: {error}")
            return Event.REFUSED
        await self._led(rebuild, claim, end)
        return Event.AGREED

    def _claimed(self, rebuild: Rebuild, known: Known, end: int, log_epoch: int) -> Claim:
        whole = known.own.end > 0 and rebuild.key not in self._copied
        lost = gone(known, end, whole=whole)
        epoch = next_epoch(known, rebuild.leader.leader_epoch, [self._run, log_epoch + 1])
        now_ms = int(self._clock() * 1000)
        return Claim(
            rebuild.entry.topic_id,
            rebuild.name.partition,
            rebuild.leader.leader_epoch,
            epoch,
            lost=None
            if lost is None
            else LostRange(
                lost.first,
                lost.heard,
                epoch,
                self._host_id,
                now_ms,
                lost.unknown,
                accepted=rebuild.accept_loss,
            ),
        )

    async def _led(self, rebuild: Rebuild, claim: Claim, end: int) -> None:
        name, lost = rebuild.name, claim.lost
        self._counters.rebuilt_partitions += 1
        self._copied.discard(rebuild.key)
        where = (
            f"rebuilt from host {rebuild.source.host}"
            if rebuild.source is not None
            else "from this host's log"
        )
        _log.warning(
            "partition is led here again",
            partition=name,
            end=end,
            source=where,
            leader_epoch=claim.leader_epoch,
        )
        if lost is not None and lost.is_loss:
            self._counters.lost_records += lost.heard - lost.first
            _log.error(
                "records of the lost disk are gone",
                partition=name,
                first=lost.first,
                reported=lost.heard,
                more="may be gone; nobody knows how many" if lost.unknown else "none",
            )
        try:
            if not end:  # `ends` tells those of other logs
                await self._record.put_ends(
                    [PartitionEnd(claim.topic_id, claim.partition, NO_EPOCH, 0, quiet=True)]
                )
            await self._tables.commit([Change(REBUILDS, rebuild.key, None)])
        except TreecastError as error:
            _log.warning("end of a rebuild cannot be written", partition=name, error=error)


def _tell(rebuild: Rebuild) -> None:
    moved, rebuild.moved = rebuild.moved, asyncio.Event()
    moved.set()
