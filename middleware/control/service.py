"""The calls of `Coordinator` in coordinator.proto, translated to commands of the coordinator."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

import treecast
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import (
    END,
    HOME,
    LOST,
    RUN,
    STATE,
    TOPIC,
    HomeEntry,
    HomeKind,
    HostEntry,
    InterestEntry,
    Position,
    Presence,
    StateEntry,
    TopicEntry,
    home_key,
)
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.runs import RunMark

from . import commands
from .commands import Command, HomeRefusals, ProducerBlock, Session
from .coordinator import Coordinator
from .handed_views import HandedViews
from .leads import read_ends
from .values import STAMPS, ends_home, read_stamp, stamp_key

CHUNK_BYTES = 512 << 10  # of changes in one message of Watch, and of items in one of GetHomeState
_CHANGES_TAG = b"\x2a"  # field 5 of WatchResponse, length-delimited


class CoordinatorService:
    """The service. Refusals are raised as TreecastError; `calls` turns them into statuses."""

    def __init__(
        self, coordinator: Coordinator, new_topic_id: Callable[[], uuid.UUID], max_watchers: int
    ) -> None:
        """`about`, which may be set later, fills in what only the process knows about itself."""
        self._coordinator = coordinator
        self._stored = coordinator.stored
        self._new_topic_id = new_topic_id
        self._max_watchers = max_watchers
        self._watchers = 0
        self._watched = True
        self._views = HandedViews()
        self.about: Callable[[pb.CoordinatorStatusResponse], None] = lambda status: None

    def end_watches(self) -> None:
        """Ends all watches before the address closes; watchers then reconnect."""
        self._watched = False
        self._stored.wake()

    # --- hosts

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        _check_address(request.address)
        known = self._stored.state.host(request.name)
        host_id = known.host_id if known is not None else 0
        if await self._wants(request.name, host_id, request.heard):
            return pb.AttachResponse(view_wanted=True, cluster_id=self._stored.cluster_id)
        command = commands.Attach(
            request.name,
            request.instance,
            request.address,
            request.version,
            request.run,
            request.clock_run,
            request.leads_nothing,
            request.zone,
            tuple(map(RUN.read, request.runs)),
            await self._stamp_of(request.name),
            request.mtu,
        )
        host: HostEntry = await self._coordinator.do(command)
        return pb.AttachResponse(
            session=pb.HostSession(host_id=host.host_id, incarnation=host.incarnation),
            cluster_id=self._stored.cluster_id,
            lease_seconds=self._lease,
            run=host.run,
            older=0 < host.run == host.lost_run,
        )

    async def _stamp_of(self, name: str) -> RunMark | None:
        """Returns how far the last run of the host came, as stored. No other call of the host changes it
        meanwhile, unless its old daemon still runs.
        """
        host = self._stored.state.host(name)
        if host is None:
            return None
        before = stamp_key(host.host_id - 1)
        items, _ = await self._coordinator.home_items(STAMPS, before, 1)
        return next((read_stamp(value) for key, value in items if key == stamp_key(host.host_id)), None)

    async def renew(self, request: pb.RenewRequest) -> pb.RenewResponse:
        name, session = self._name(request.session), request.session
        if await self._wants(name, session.host_id, session.heard):
            return pb.RenewResponse(view_wanted=True)
        await self._coordinator.do(commands.Renew(_session(session), request.stamp))
        return pb.RenewResponse(lease_seconds=self._lease)

    async def detach(self, request: pb.DetachRequest) -> pb.DetachResponse:
        await self._coordinator.do(commands.Detach(_session(request.session), request.stamp))
        return pb.DetachResponse()

    # --- an older state of the store

    async def _wants(self, name: str, host_id: int, heard: pb.Heard) -> bool:
        """Returns whether the caller's view is wanted, because it has what the store lacks."""
        told = Position(heard.history, heard.revision, heard.epoch)
        return await self._coordinator.older.meet(name, host_id, told, heard.highest)

    def _name(self, session: pb.HostSession) -> str:
        host = self._stored.state.host_by_id(session.host_id)
        return host.name if host is not None else session.heard.name or f"with id {session.host_id}"

    async def _caller(self, session: pb.HostSession) -> Session:
        """Returns the session of a call. Raises COORDINATOR_UNAVAILABLE if the store is an older state than
        the caller's view: its answer would be about another state.
        """
        await self._check_not_older(self._name(session), session.host_id, session.heard)
        return _session(session)

    async def _check_not_older(self, name: str, host_id: int, heard: pb.Heard) -> None:
        if await self._wants(name, host_id, heard):
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"the coordinator's store is an older state than host {name} knows: it waits for that host's"
                " view, which the host hands in when it renews its lease",
            )

    async def hand_in(self, request: pb.HandInRequest) -> pb.HandInResponse:
        heard = request.heard
        told = Position(heard.history, heard.revision, heard.epoch)
        if not await self._wants(request.name, 0, heard):
            self._views.forget(request.name)  # the store has it by now
        elif (view := self._views.page(request, told)) is not None:
            await self._coordinator.older.adopt(request.name, told, view)
        return pb.HandInResponse()

    @property
    def _lease(self) -> float:
        return self._stored.state.settings.lease

    # --- watching

    async def watch(self, request: pb.WatchRequest) -> AsyncGenerator[bytes, None]:
        """Yields encoded messages: a snapshot if needed, then changes as they occur, until closed."""
        if self._watchers >= self._max_watchers:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"the coordinator has {self._watchers} watchers, which is the limit: try later",
            )
        self._watchers += 1
        try:
            history, revision = request.history, request.revision
            await self._check_watcher(request)
            while self._watched and not self._stored.closed:
                found = self._stored.after(history, revision, CHUNK_BYTES)
                if found is None:
                    history, taken = self._stored.history_id, await self._coordinator.snapshot()
                    header = self._header(history, taken.revision)
                    for message in _snapshot_messages(header, taken.changes):
                        yield message
                    revision = taken.revision
                elif found:
                    revision = found[-1].number
                    header = self._header(history, revision)
                    yield _with_changes(header, [change for each in found for change in each.changes])
                else:
                    await self._stored.moved(revision)
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._stored.forget_snapshot()

    def _header(self, history: str, revision: int) -> pb.WatchResponse:
        return pb.WatchResponse(history=history, revision=revision, epoch=self._stored.epoch)

    async def _check_watcher(self, request: pb.WatchRequest) -> None:
        """Refuses a watcher that knows more than the store: a snapshot would take it from the watcher."""
        session = request.session
        if session.heard.history:
            await self._check_not_older(self._name(session), session.host_id, session.heard)
        else:  # of an earlier version, or no host
            heard = pb.Heard(history=request.history, revision=request.revision)
            await self._check_not_older("that watches", 0, heard)

    # --- topics

    async def create_topic(self, request: pb.CreateTopicEntryRequest) -> pb.TopicEntryResponse:
        command = commands.CreateTopic(
            request.name,
            _topic_id(request.topic_id) if request.topic_id else self._new_topic_id(),
            request.partitions,
            dict(request.config),
            tuple(request.pinned),
            brought=bool(request.topic_id),
        )
        return await self._topic(command, validate_only=request.validate_only)

    async def delete_topic(self, request: pb.DeleteTopicEntryRequest) -> pb.TopicEntryResponse:
        return await self._topic(commands.DeleteTopic(request.name))

    async def alter_topic(self, request: pb.AlterTopicEntryRequest) -> pb.TopicEntryResponse:
        command = commands.AlterTopic(request.name, dict(request.set), tuple(request.unset))
        return await self._topic(command, validate_only=request.validate_only)

    async def create_partitions(self, request: pb.CreatePartitionEntriesRequest) -> pb.TopicEntryResponse:
        command = commands.CreatePartitions(request.name, request.total, tuple(request.pinned))
        return await self._topic(command, validate_only=request.validate_only)

    async def _topic(self, command: Command, *, validate_only: bool = False) -> pb.TopicEntryResponse:
        topic: TopicEntry = (
            self._coordinator.validate(command) if validate_only else await self._coordinator.do(command)
        )
        return pb.TopicEntryResponse(topic=TOPIC.write(topic), revision=self._stored.revision)

    async def take_lead(self, request: pb.TakeLeadRequest) -> pb.TopicEntryResponse:
        command = commands.TakeLead(
            await self._caller(request.session),
            _topic_id(request.topic_id),
            request.partition,
            request.known_epoch,
            request.leader_epoch,
            request.promoted,
            LOST.read(request.lost) if request.HasField("lost") else None,
        )
        return await self._topic(command)

    async def give_up(self, request: pb.GiveUpRequest) -> pb.TopicEntryResponse:
        topic_id, session = _topic_id(request.topic_id), await self._caller(request.session)
        return await self._topic(commands.GiveUp(session, topic_id, tuple(request.partitions)))

    async def accept_losses(self, request: pb.AcceptLossesRequest) -> pb.TopicEntryResponse:
        topic_id, session = _topic_id(request.topic_id), await self._caller(request.session)
        return await self._topic(commands.AcceptLosses(session, topic_id, request.partition))

    async def put_ends(self, request: pb.PutEndsRequest) -> pb.PutEndsResponse:
        for end in request.ends:
            _topic_id(end.topic_id)
        ends = tuple(map(END.read, request.ends))
        await self._coordinator.do(commands.PutEnds(await self._caller(request.session), ends))
        return pb.PutEndsResponse()

    async def get_ends(self, request: pb.GetEndsRequest) -> pb.GetEndsResponse:
        topics = [_topic_id(one) for one in (request.topic_id, *request.topic_ids) if one]
        items = await self._coordinator.items_of(list(map(ends_home, topics)))
        ends = [end for topic, found in zip(topics, items, strict=True) for end in read_ends(topic, found)]
        return pb.GetEndsResponse(ends=map(END.write, ends))

    # --- homes

    async def group_home(self, request: pb.HomeRequest) -> pb.HomeResponse:
        return await self._home(request, HomeKind.GROUP)

    async def transaction_home(self, request: pb.HomeRequest) -> pb.HomeResponse:
        return await self._home(request, HomeKind.TRANSACTION)

    async def replicas_home(self, request: pb.HomeRequest) -> pb.HomeResponse:
        return await self._home(request, HomeKind.REPLICAS)

    async def share_home(self, request: pb.HomeRequest) -> pb.HomeResponse:
        return await self._home(request, HomeKind.SHARE)

    async def _home(self, request: pb.HomeRequest, kind: HomeKind) -> pb.HomeResponse:
        command = commands.AskHome(await self._caller(request.session), kind, request.id)
        home: HomeEntry = await self._coordinator.do(command)
        return pb.HomeResponse(home=HOME.write(home))

    async def put_home_state(self, request: pb.PutHomeStateRequest) -> pb.PutHomeStateResponse:
        writes = tuple(_home_write(write) for write in request.writes)
        command = commands.PutHomeState(await self._caller(request.session), writes)
        answer: HomeRefusals = await self._coordinator.do(command)
        return pb.PutHomeStateResponse(
            refused=[
                pb.HomeRefusal(index=index, fault=error.fault.name, detail=error.detail)
                for index, error in answer.refused.items()
            ]
        )

    async def get_home_state(self, request: pb.GetHomeStateRequest) -> pb.GetHomeStateResponse:
        kind = _home_kind(request.kind)
        command = commands.CheckHome(await self._caller(request.session), kind, request.id, request.epoch)
        await self._coordinator.do(command)
        key = home_key(kind, request.id)
        items, more = await self._coordinator.home_items(key, request.after, CHUNK_BYTES)
        return pb.GetHomeStateResponse(
            items=[pb.HomeItem(key=key, value=value) for key, value in items], more=more
        )

    # --- ids and interest

    async def producer_ids(self, request: pb.ProducerIdsRequest) -> pb.ProducerIdsResponse:
        command = commands.TakeProducerIds(
            await self._caller(request.session), request.count, request.at_least
        )
        block: ProducerBlock = await self._coordinator.do(command)
        return pb.ProducerIdsResponse(first=block.first, count=block.count)

    async def allot_state(self, request: pb.AllotStateRequest) -> pb.AllotStateResponse:
        command = commands.AllotState(await self._caller(request.session), tuple(request.levels))
        state: StateEntry = await self._coordinator.do(command)
        return pb.AllotStateResponse(state=STATE.write(state))

    async def release_state(self, request: pb.ReleaseStateRequest) -> pb.ReleaseStateResponse:
        command = commands.ReleaseState(await self._caller(request.session), request.state_id, request.force)
        await self._coordinator.do(command)
        return pb.ReleaseStateResponse()

    async def put_interest(self, request: pb.PutInterestRequest) -> pb.PutInterestResponse:
        command = commands.PutInterest(
            await self._caller(request.session), request.version, tuple(request.patterns)
        )
        recorded: InterestEntry = await self._coordinator.do(command)
        return pb.PutInterestResponse(version=recorded.version)

    async def put_definitions(self, request: pb.PutDefinitionsRequest) -> pb.PutDefinitionsResponse:
        writes = tuple(
            commands.DefinitionWrite(
                write.key, write.value if write.HasField("value") else None, write.replace
            )
            for write in request.writes
        )
        await self._coordinator.do(commands.PutDefinitions(await self._caller(request.session), writes))
        return pb.PutDefinitionsResponse(revision=self._stored.revision)

    # --- events

    async def put_events(self, request: pb.PutEventsRequest) -> pb.PutEventsResponse:
        told = tuple(commands.ToldEvent(one.kind, one.face, one.who, one.what) for one in request.events)
        await self._coordinator.do(
            commands.PutEvents(await self._caller(request.session), told, request.missed)
        )
        return pb.PutEventsResponse()

    async def get_events(self, request: pb.GetEventsRequest) -> pb.GetEventsResponse:
        found, more = await self._coordinator.events(request.after, request.last, CHUNK_BYTES)
        return pb.GetEventsResponse(events=map(pb.ClusterEvent.FromString, found), more=more)

    # --- itself

    async def status(self, request: pb.CoordinatorStatusRequest) -> pb.CoordinatorStatusResponse:
        coordinator = self._coordinator
        found = pb.CoordinatorStatusResponse(
            cluster_id=self._stored.cluster_id,
            version=treecast.__version__,
            revision=self._stored.revision,
            hosts=sum(host.presence is Presence.ATTACHED for host in self._stored.state.hosts()),
            watchers=self._watchers,
            refused_writes=coordinator.refused_writes,
            epoch=self._stored.epoch,
        )
        found.missing.extend(coordinator.older.problems())
        found.problems.extend(found.missing)
        self.about(found)
        return found


# --- messages as values, and back


def _session(session: pb.HostSession) -> Session:
    return Session(session.host_id, session.incarnation)


def _topic_id(raw: bytes) -> uuid.UUID:
    if len(raw) != 16:
        raise TreecastError(Fault.INVALID_REQUEST, f"a topic id has 16 bytes, not {len(raw)}")
    return uuid.UUID(bytes=raw)


def _home_kind(kind: int) -> HomeKind:
    try:
        return HomeKind(kind)
    except ValueError:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"home kind {kind} is unknown: send GROUP, TRANSACTION, REPLICAS or SHARE"
        ) from None


def _home_write(write: pb.HomeWrite) -> commands.HomeWrite:
    items = tuple((item.key, item.value if item.HasField("value") else None) for item in write.items)
    return commands.HomeWrite(_home_kind(write.kind), write.id, write.epoch, items, write.forget)


def _check_address(text: str) -> None:
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise TreecastError(Fault.INVALID_REQUEST, f"fabric address {text[:300]!r}: {error}") from error
    if not address.port:
        raise TreecastError(Fault.INVALID_REQUEST, f"fabric address {text!r}: send the port that was picked")


def _snapshot_messages(header: pb.WatchResponse, changes: Sequence[bytes]) -> Iterator[bytes]:
    """Yields at least one message with the header's fields; all but the last have `more`."""
    header.snapshot = True
    start = 0
    while True:
        end, size = start, 0
        while end < len(changes) and (end == start or size + len(changes[end]) <= CHUNK_BYTES):
            size += len(changes[end])
            end += 1
        header.more = end < len(changes)
        yield _with_changes(header, changes[start:end])
        if not header.more:
            return
        start = end


def _with_changes(header: pb.WatchResponse, changes: Sequence[bytes]) -> bytes:
    """Returns the message with the encoded `changes` appended as a field after the header's own bytes."""
    parts = [header.SerializeToString()]
    for change in changes:
        parts += (_CHANGES_TAG, _varint(len(change)), change)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Returns Protobuf's base-128: 7 bits a byte, lowest first, the top bit set on all but the last."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
