"""The calls of the coordinator (`proto/treecast/v1/coordinator.proto`), whatever makes them.

`watch` resumes after every interruption. Every call raises TreecastError: COORDINATOR_UNAVAILABLE if nobody
answers, INTERNAL for an invalid answer, otherwise the coordinator's own refusal.
"""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from treecast.middleware.model.errors import Fault, TreecastError

from .entries import START, Change, Position, Update, change_message, heard_change
from .lasting import BackOff
from .v1 import coordinator_pb2 as pb

MAX_SNAPSHOT_ENTRIES = 5_000_000
PAGE_BYTES = 512 << 10  # of a view that is handed in
_LONGEST_LEASE = 3600.0
# Faults that end a watch: the same call would be refused again.
_FINAL = {Fault.POLICY_VIOLATION, Fault.UNSUPPORTED_VERSION, Fault.INVALID_REQUEST, Fault.NOT_SUPPORTED}

R = TypeVar("R", bound=Message)


class CoordinatorCalls(ABC):
    """The calls of a coordinator, whatever the transport. `target` names it in messages."""

    def __init__(self, target: str, cluster_id: str, rng: random.Random) -> None:
        """`cluster_id` may be empty; the first attach then learns it. `rng` spreads repeats."""
        self.target = target
        self.cluster_id = cluster_id
        self.rng = rng
        self.epoch = 0  # the highest epoch of a leadership that was heard of
        # How far the caller's view is; the coordinator compares its store with it.
        self.position: Callable[[], Position] = Position

    @abstractmethod
    async def _call(self, name: str, request: Message, response: type[R]) -> R:
        """Makes one call. Raises TreecastError as described in the module."""

    @abstractmethod
    def _stream(self, name: str, request: Message) -> AsyncGenerator[bytes, None]:
        """Makes one call whose answer is a stream of messages."""

    @abstractmethod
    async def close(self) -> None:
        """Releases the transport."""

    def _heed(self, epoch: int) -> None:
        """Notes the epoch of an answer. Raises if a later leadership was heard of: the answer is void."""
        if 0 < epoch < self.epoch:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"the coordinator at {self.target} decides in epoch {epoch}, and another one has begun epoch"
                f" {self.epoch}: its answer is void",
            )
        self.epoch = max(self.epoch, epoch)

    def heard(self) -> pb.Heard:
        """Returns how far the caller's view is, in a call."""
        at = self.position()
        highest = max(self.epoch, at.epoch)
        return pb.Heard(history=at.history, revision=at.revision, epoch=at.epoch, highest=highest)

    # --- hosts

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        """Attaches, and adopts the cluster id if none was known. Raises POLICY_VIOLATION if it differs, and
        `ViewWanted`.
        """
        request.heard.CopyFrom(self.heard())
        answer = await self._call("Attach", request, pb.AttachResponse)
        if self.cluster_id and answer.cluster_id != self.cluster_id:
            raise TreecastError(
                Fault.POLICY_VIOLATION,
                f"the coordinator at {self.target} is of cluster {answer.cluster_id[:100]!r},"
                f" not of {self.cluster_id!r}: look at --join",
            )
        if answer.view_wanted:
            raise ViewWanted(self.target)
        _check_lease(answer.lease_seconds)
        self.cluster_id = answer.cluster_id
        return answer

    async def renew(self, session: pb.HostSession, stamp: int = 0) -> pb.RenewResponse:
        """Prolongs the lease. `stamp`: of the directory's run, where it has moved. Raises `ViewWanted` if the
        store lacks what the caller knows.
        """
        request = pb.RenewRequest(session=session, stamp=stamp)
        answer = await self._call("Renew", request, pb.RenewResponse)
        if answer.view_wanted:
            raise ViewWanted(self.target)
        _check_lease(answer.lease_seconds)
        return answer

    async def detach(self, session: pb.HostSession, stamp: int = 0) -> None:
        await self._call("Detach", pb.DetachRequest(session=session, stamp=stamp), pb.DetachResponse)

    async def hand_in(self, name: str, position: Position, view: Sequence[Change]) -> None:
        """Hands in the whole view of host `name` as of `position`, in pages."""
        highest = max(self.epoch, position.epoch)
        heard = pb.Heard(
            history=position.history, revision=position.revision, epoch=position.epoch, highest=highest
        )
        request = pb.HandInRequest(name=name, heard=heard, more=True)
        size = 0
        for number, change in enumerate(view):
            message = change_message(change)
            if size > PAGE_BYTES:
                await self._call("HandIn", request, pb.HandInResponse)
                request = pb.HandInRequest(name=name, heard=heard, first=number, more=True)
                size = 0
            request.changes.append(message)
            size += message.ByteSize()
        request.more = False
        await self._call("HandIn", request, pb.HandInResponse)

    # --- topics

    async def create_topic(self, request: pb.CreateTopicEntryRequest) -> pb.TopicEntryResponse:
        return await self._call("CreateTopic", request, pb.TopicEntryResponse)

    async def delete_topic(self, name: str) -> pb.TopicEntryResponse:
        request = pb.DeleteTopicEntryRequest(name=name)
        return await self._call("DeleteTopic", request, pb.TopicEntryResponse)

    async def alter_topic(self, request: pb.AlterTopicEntryRequest) -> pb.TopicEntryResponse:
        return await self._call("AlterTopic", request, pb.TopicEntryResponse)

    async def create_partitions(self, request: pb.CreatePartitionEntriesRequest) -> pb.TopicEntryResponse:
        return await self._call("CreatePartitions", request, pb.TopicEntryResponse)

    # --- homes

    async def group_home(self, session: pb.HostSession, group_id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=group_id)
        return (await self._call("GroupHome", request, pb.HomeResponse)).home

    async def transaction_home(self, session: pb.HostSession, transactional_id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=transactional_id)
        return (await self._call("TransactionHome", request, pb.HomeResponse)).home

    async def replicas_home(self, session: pb.HostSession, id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=id)
        return (await self._call("ReplicasHome", request, pb.HomeResponse)).home

    async def share_home(self, session: pb.HostSession, id: str) -> pb.HomeEntry:
        request = pb.HomeRequest(session=session, id=id)
        return (await self._call("ShareHome", request, pb.HomeResponse)).home

    async def put_home_state(
        self, session: pb.HostSession, writes: Sequence[pb.HomeWrite]
    ) -> dict[int, TreecastError]:
        """Returns the refused writes by their index; all others are on the coordinator's disk."""
        request = pb.PutHomeStateRequest(session=session, writes=writes)
        answer = await self._call("PutHomeState", request, pb.PutHomeStateResponse)
        return {
            refusal.index: TreecastError(_fault(refusal.fault), refusal.detail) for refusal in answer.refused
        }

    async def get_home_state(self, session: pb.HostSession, home: pb.HomeEntry) -> dict[bytes, bytes]:
        """Returns all items of a home that is on the caller's host, read page by page."""
        found: dict[bytes, bytes] = {}
        after = b""
        while True:
            request = pb.GetHomeStateRequest(
                session=session, kind=home.kind, id=home.id, epoch=home.epoch, after=after
            )
            page = await self._call("GetHomeState", request, pb.GetHomeStateResponse)
            found.update((item.key, item.value) for item in page.items)
            if not page.more:
                return found
            if not page.items or page.items[-1].key <= after:
                raise nonsense("a page of a home's state does not continue the previous one")
            after = page.items[-1].key

    # --- who leads

    async def take_lead(self, request: pb.TakeLeadRequest) -> pb.TopicEntryResponse:
        """Makes the caller the leader of a partition, with `request.leader_epoch`."""
        return await self._call("TakeLead", request, pb.TopicEntryResponse)

    async def give_up(
        self, session: pb.HostSession, topic_id: bytes, partitions: Sequence[int]
    ) -> pb.TopicEntryResponse:
        """Reports that records of partitions that the caller leads are lost; the partitions then wait
        for it.
        """
        request = pb.GiveUpRequest(session=session, topic_id=topic_id, partitions=partitions)
        return await self._call("GiveUp", request, pb.TopicEntryResponse)

    async def accept_losses(
        self, session: pb.HostSession, topic_id: bytes, partition: int
    ) -> pb.TopicEntryResponse:
        """Says that an operator knows of what the partition has lost so far."""
        request = pb.AcceptLossesRequest(session=session, topic_id=topic_id, partition=partition)
        return await self._call("AcceptLosses", request, pb.TopicEntryResponse)

    async def put_ends(self, session: pb.HostSession, ends: Sequence[pb.PartitionEnd]) -> None:
        """Records the end offsets of logs that the caller leads."""
        await self._call("PutEnds", pb.PutEndsRequest(session=session, ends=ends), pb.PutEndsResponse)

    async def get_ends(self, *topic_ids: bytes) -> Sequence[pb.PartitionEnd]:
        """Returns the recorded ends of topics' partitions; partitions without a record are left out."""
        request = pb.GetEndsRequest(topic_ids=topic_ids)
        return (await self._call("GetEnds", request, pb.GetEndsResponse)).ends

    # --- ids and interest

    async def producer_ids(self, session: pb.HostSession, count: int = 0, at_least: int = 0) -> range:
        """Returns a block of ids from `at_least` on; no later block has lower ids either."""
        request = pb.ProducerIdsRequest(session=session, count=count, at_least=at_least)
        answer = await self._call("ProducerIds", request, pb.ProducerIdsResponse)
        if not answer.count or answer.first + answer.count > 2**63:
            raise nonsense(f"a block of {answer.count} producer ids from {answer.first}")
        return range(answer.first, answer.first + answer.count)

    async def allot_state(self, session: pb.HostSession, levels: Sequence[str]) -> pb.StateEntry:
        request = pb.AllotStateRequest(session=session, levels=levels)
        return (await self._call("AllotState", request, pb.AllotStateResponse)).state

    async def release_state(self, session: pb.HostSession, state_id: int, *, force: bool = False) -> None:
        request = pb.ReleaseStateRequest(session=session, state_id=state_id, force=force)
        await self._call("ReleaseState", request, pb.ReleaseStateResponse)

    async def put_interest(self, session: pb.HostSession, version: int, patterns: Sequence[str]) -> int:
        """Returns the version that is now recorded."""
        request = pb.PutInterestRequest(session=session, version=version, patterns=patterns)
        return (await self._call("PutInterest", request, pb.PutInterestResponse)).version

    async def put_definitions(self, session: pb.HostSession, writes: Sequence[pb.DefinitionWrite]) -> int:
        """Returns the revision in which all of them are decided."""
        request = pb.PutDefinitionsRequest(session=session, writes=writes)
        return (await self._call("PutDefinitions", request, pb.PutDefinitionsResponse)).revision

    # --- events

    async def put_events(
        self, session: pb.HostSession, events: Sequence[pb.ClusterEvent], missed: int = 0
    ) -> None:
        """Tells which applications have joined and left."""
        request = pb.PutEventsRequest(session=session, events=events, missed=missed)
        await self._call("PutEvents", request, pb.PutEventsResponse)

    async def get_events(self, after: int = 0, last: int = 0) -> pb.GetEventsResponse:
        """Returns the latest `last` events, or else events after the number `after`."""
        request = pb.GetEventsRequest(after=after, last=last)
        return await self._call("GetEvents", request, pb.GetEventsResponse)

    # --- itself

    async def status(self) -> pb.CoordinatorStatusResponse:
        """Returns the coordinator's status. Raises INTERNAL for an earlier version, which has none."""
        return await self._call("Status", pb.CoordinatorStatusRequest(), pb.CoordinatorStatusResponse)

    # --- watching

    async def watch(
        self, position: Position = START, host: Callable[[], pb.HostSession] | None = None
    ) -> AsyncGenerator[Update, None]:
        """Yields all changes from `position` on, across interruptions and restarts of the coordinator.

        `host`: the session of the watching host, or what it has heard alone. Ends only with a refusal that
        would repeat: another cluster, key or version.
        """
        back_off = BackOff(self.rng)
        while True:
            try:
                async with aclosing(self._watch_once(position, host)) as updates:
                    async for update in updates:
                        position = update.position
                        back_off.reset()
                        yield update
            except TreecastError as error:
                if error.fault in _FINAL:
                    raise
                if error.fault is Fault.INTERNAL:
                    position = Position()
            await asyncio.sleep(back_off.pause())

    async def _watch_once(
        self, position: Position, host: Callable[[], pb.HostSession] | None = None
    ) -> AsyncGenerator[Update, None]:
        parts: list[Change] = []
        unfinished: Position | None = None  # of a snapshot with more parts to come
        session = host() if host is not None else None
        request = pb.WatchRequest(history=position.history, revision=position.revision, session=session)
        async with aclosing(self._stream("Watch", request)) as messages:
            async for body in messages:
                message = parse(pb.WatchResponse, body)
                self._heed(message.epoch)
                reached = Position(message.history, message.revision, message.epoch)
                changes = tuple(map(heard_change, message.changes))
                if unfinished is not None and not (message.snapshot and reached == unfinished):
                    raise nonsense("an incomplete snapshot")
                if not message.snapshot:
                    if reached.history != position.history or reached.revision <= position.revision:
                        raise nonsense("changes that do not follow the previous ones")
                    position = reached
                    yield Update(False, position, changes)
                    continue
                parts += changes
                if len(parts) > MAX_SNAPSHOT_ENTRIES:
                    raise nonsense(f"a snapshot of more than {MAX_SNAPSHOT_ENTRIES} entries")
                unfinished = reached if message.more else None
                if unfinished is None:
                    position, changes, parts = reached, tuple(parts), []
                    yield Update(True, position, changes)


class ViewWanted(TreecastError):
    """The coordinator's store is an older state than the caller's view, which is handed in first."""

    def __init__(self, target: str) -> None:
        super().__init__(
            Fault.COORDINATOR_UNAVAILABLE,
            f"the store of the coordinator at {target} is an older state than this host knows: this host"
            " hands in its view",
        )


def parse(of: type[R], body: bytes) -> R:
    try:
        return of.FromString(body)
    except DecodeError as error:
        raise nonsense(f"no {of.DESCRIPTOR.name}: {error}") from error


def _check_lease(seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 < seconds <= _LONGEST_LEASE):
        raise nonsense(f"a lease of {seconds} s")


def nonsense(what: str) -> TreecastError:
    return TreecastError(Fault.INTERNAL, f"the coordinator's answer is invalid: {what}")


def _fault(name: str) -> Fault:
    return Fault[name] if name in Fault.__members__ else Fault.INTERNAL
