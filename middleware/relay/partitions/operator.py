"""Operators' commands about partitions whose leader has lost its disk, and the state of partitions.

A command that concerns another host is forwarded to it. No command removes data: replaced copies are put
aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from msgspec import Struct

from treecast.middleware.api.entries import LostRange, PartitionEntry
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.channel import Method, Methods
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.relay.view import ClusterView

from . import calls
from .copies import Survey
from .following import Following
from .lost_disk import Known, Step, gone, next_epoch
from .ports import Claim, Record, Topics
from .rebuilding import Rebuild, Rebuilding

LED, WAITS, REBUILDING, REFUSED = "led", "waits", "rebuilding", "refused"
_WORD_SECONDS = 25.0  # time-out of a forwarded command
_LOOK_SECONDS = 15.0  # time-out of one survey of the rebuilding


class Standing(Struct, frozen=True):
    """The state of a partition as known here. `start`, `end`: of the local log, -1 if there is none."""

    topic: str
    partition: int
    leader: PartitionEntry
    state: str
    problem: str
    start: int
    end: int


class Operator:
    """The commands `promote` and `rebuild`, and the states. All calls come from the event loop."""

    def __init__(
        self,
        host_id: int,
        partitions: LocalPartitions,
        topics: Topics,
        view: ClusterView,
        following: Following,
        rebuilding: Rebuilding,
        survey: Survey,
        methods: Methods,
        is_up: Callable[[int], bool],
        record: Record,
        clock: Callable[[], float],
    ) -> None:
        """`clock` returns wall-clock seconds."""
        self._host_id = host_id
        self._partitions = partitions
        self._topics = topics
        self._view = view
        self._following = following
        self._rebuilding = rebuilding
        self._survey = survey
        self._methods = methods
        self._is_up = is_up
        self._record = record
        self._clock = clock
        methods.register(calls.PROMOTE, self._asked_to_promote)
        methods.register(calls.REBUILD, self._asked_to_rebuild)

    # --- states

    def standings(self, topic: str = "") -> Iterator[Standing]:
        """Yields the states of all partitions, or of one topic's, in order."""
        for entry in sorted(self._view.topics, key=lambda entry: entry.name):
            if not topic or entry.name == topic:
                for index, leader in enumerate(entry.partitions):
                    yield self._standing(TopicPartition(entry.name, index), leader)

    def troubled(self) -> list[Standing]:
        """Returns, in order, the partitions that wait, had a lost disk or have a refused replica here."""
        names = {
            TopicPartition(entry.name, index): leader
            for entry in self._view.topics
            for index, leader in enumerate(entry.partitions)
            if leader.waits or leader.lost
        }
        for partition in self._following:
            leader = self._view.leader(partition.name.topic, partition.name.partition)
            if leader is not None and partition.replica is not None and partition.replica.refused:
                names[partition.name] = leader
        return [self._standing(name, leader) for name, leader in sorted(names.items(), key=_by_name)]

    def _standing(self, name: TopicPartition, leader: PartitionEntry) -> Standing:
        state, problem = self._state(name, leader)
        held = self._partitions.find(name.topic, name.partition) or self._partitions.replica(
            name.topic, name.partition
        )
        start, end = (held.log.start_offset, held.log.end_offset) if held is not None else (-1, -1)
        return Standing(name.topic, name.partition, leader, state, problem, start, end)

    def _state(self, name: TopicPartition, leader: PartitionEntry) -> tuple[str, str]:
        rebuild = self._rebuilding.find(name)
        if leader.waits and rebuild is None:
            return (
                WAITS,
                f"the disk of host {self._name(leader.leader)} is gone or old, and it does not lead it yet",
            )
        if leader.waits and rebuild is not None:
            return self._rebuilt(rebuild)
        found = self._following.find(name.topic, name.partition)
        if found is not None and found.replica is not None and found.replica.refused:
            return REFUSED, found.replica.refused
        return LED, ""

    def _rebuilt(self, rebuild: Rebuild) -> tuple[str, str]:
        if rebuild.step is Step.WAITING or rebuild.source is None:
            return (
                WAITS,
                f"its disk is gone or old; it waits {rebuild.reason}"
                if rebuild.reason
                else "it is looked at",
            )
        source = rebuild.source
        return (
            REBUILDING,
            f"it is copied from host {self._name(source.host)}, which has it up to {source.end}",
        )

    def _name(self, host_id: int) -> str:
        host = self._view.host(host_id)
        return host.name if host is not None else str(host_id)

    def _leader(self, topic: Topic, index: int) -> PartitionEntry:
        leader = self._view.leader(topic.name, index)
        if leader is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {topic.name}-{index}")
        return leader

    # --- another host becomes leader

    async def promote(self, topic: Topic, index: int, host: str, *, accept_loss: bool) -> str:
        """Makes `host` (this one if empty) lead the partition with its copy. Returns what was done."""
        self._leader(topic, index)
        target = self._target(host)
        if target == self._host_id:
            return await self._promote(topic, index, accept_loss)
        ref = calls.PartitionRef(topic.topic_id, index)
        request = calls.OperatorRequest(ref, accept_loss)
        return await self._ask(target, calls.PROMOTE, request)

    async def _asked_to_promote(
        self, host: int, request: calls.OperatorRequest, body: memoryview
    ) -> tuple[str, Buffer]:
        topic = self._topics.topic_by_id(request.partition.topic_id)
        said = await self._promote(topic, request.partition.partition, request.accept_loss)
        return said, b""

    async def _promote(self, topic: Topic, index: int, accept_loss: bool) -> str:
        name, leader = TopicPartition(topic.name, index), self._leader(topic, index)
        own, before = self._name(self._host_id), self._name(leader.leader)
        self._check_promotable(name, leader, own, before)
        known = await self._survey.look(topic, index)
        self._check_copy(name, known, own, before, accept_loss)
        found = self._view.host(leader.leader)
        runs = [found.run + 1 if found is not None else 0]
        epoch, end = next_epoch(known, leader.leader_epoch, runs), known.own.end
        lost = gone(known, end, whole=False)
        now_ms = int(self._clock() * 1000)
        claim = Claim(
            topic.topic_id,
            index,
            leader.leader_epoch,
            epoch,
            promoted=True,
            lost=None
            if lost is None
            else LostRange(
                lost.first, lost.heard, epoch, leader.leader, now_ms, lost.unknown, accepted=accept_loss
            ),
        )
        await self._record.take_lead(claim)
        return f"host {own} leads {name} from offset {end} on, with leader epoch {epoch}"

    def _check_promotable(self, name: TopicPartition, leader: PartitionEntry, own: str, before: str) -> None:
        if leader.leader == self._host_id:
            what = "it waits for this host: use `rebuild`" if leader.waits else "there is nothing to do"
            raise TreecastError(Fault.INVALID_REQUEST, f"host {own} is the leader of {name}; {what}")
        if not leader.waits and self._is_up(leader.leader):
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"host {before} leads {name} and can be reached: only what nobody leads is moved; stop it"
                " first",
            )

    def _check_copy(
        self, name: TopicPartition, known: Known, own: str, before: str, accept_loss: bool
    ) -> None:
        if not known.own.end:
            holders = sorted(self._name(copy.host) for copy in known.copies if copy.end)
            where = f"; hosts with one: {', '.join(holders)}" if holders else ""
            raise TreecastError(Fault.INVALID_REQUEST, f"host {own} has no copy of {name}{where}")
        if accept_loss:
            return
        best = known.best
        if best is not known.own:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"host {self._name(best.host)} has {name} up to {best.end} (leader epoch {best.epoch}), host"
                f" {own} only up to {known.own.end} (leader epoch {known.own.epoch}): promote that one, or"
                " give the rest up with --accept-loss",
            )
        if known.lacking:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"{name} was reported up to {known.heard}, and the longest copy ends at {best.end}: wait for"
                f" host {before} or its disk, or give the rest up with --accept-loss",
            )

    # --- waiting partitions continue, refused replicas restart

    async def rebuild(self, topic: Topic, index: int, host: str, *, accept_loss: bool) -> str:
        """Continues a waiting partition, or restarts a refused replica. Returns what was done.

        `host`: where; if empty, the leader of a waiting partition, else this host.
        """
        leader = self._leader(topic, index)
        if accept_loss and not leader.waits and any(one.is_open for one in leader.lost):
            await self._record.accept_losses(topic.topic_id, index)
            return f"what {topic.name}-{index} has lost stays listed, and counts as known from now on"
        target = self._target(host) if host else leader.leader if leader.waits else self._host_id
        if target == self._host_id:
            return await self._rebuild(topic, index, accept_loss)
        ref = calls.PartitionRef(topic.topic_id, index)
        request = calls.OperatorRequest(ref, accept_loss)
        return await self._ask(target, calls.REBUILD, request)

    async def _asked_to_rebuild(
        self, host: int, request: calls.OperatorRequest, body: memoryview
    ) -> tuple[str, Buffer]:
        topic = self._topics.topic_by_id(request.partition.topic_id)
        said = await self._rebuild(topic, request.partition.partition, request.accept_loss)
        return said, b""

    async def _rebuild(self, topic: Topic, index: int, accept_loss: bool) -> str:
        name = TopicPartition(topic.name, index)
        rebuild = self._rebuilding.find(name)
        if rebuild is not None:
            return await self._go_on(rebuild, accept_loss)
        found = self._following.find(topic.name, index)
        if found is None or found.replica is None or not found.replica.refused:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"{name} does not wait, and host {self._name(self._host_id)} has no copy of it that was"
                " refused: there is nothing to rebuild",
            )
        aside = self._following.begin_anew(topic, index)
        return f"the copy of {name} is copied from its leader again; the old one is {aside}"

    async def _go_on(self, rebuild: Rebuild, accept_loss: bool) -> str:
        """Triggers a survey now. Raises POLICY_VIOLATION with the reason if the partition still waits.

        The operator may then give the missing records up.
        """
        name, looks = rebuild.name, rebuild.looks
        rebuild.accept_loss = rebuild.accept_loss or accept_loss
        rebuild.wake.set()
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                while not rebuild.over and (rebuild.looks == looks or rebuild.step is Step.LOOKING):
                    await rebuild.moved.wait()
        except TimeoutError:
            pass
        if rebuild.over or rebuild.step is Step.LED:
            return f"{name} is led here again"
        if rebuild.step is Step.WAITING:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"{name} waits {rebuild.reason}: remove that reason, or give up"
                " records without a copy with --accept-loss",
            )
        return f"{name} {rebuild.step.value}"

    # --- hosts

    def _target(self, name: str) -> int:
        if not name:
            return self._host_id
        host = self._view.host_named(name)
        if host is None:
            raise TreecastError(Fault.INVALID_REQUEST, f"no host is named {name!r}")
        return host.host_id

    async def _ask(
        self, host: int, method: Method[calls.OperatorRequest, str], request: calls.OperatorRequest
    ) -> str:
        if not self._is_up(host):
            raise TreecastError(Fault.LEADER_UNAVAILABLE, f"host {self._name(host)} cannot be reached")
        said, _ = await self._methods.ask(host, method, request, _WORD_SECONDS)
        return said


def _by_name(item: tuple[TopicPartition, PartitionEntry]) -> TopicPartition:
    return item[0]
