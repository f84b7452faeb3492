"""The view of the cluster that this host belongs to, in the control service's messages."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from treecast.middleware.api.entries import HostEntry, LostRange
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.broker import Topic
from treecast.middleware.fabric.carriers.carrier import CarrierState
from treecast.middleware.fabric.channel import PeerStatus
from treecast.middleware.fabric.core.accounting import Row
from treecast.middleware.fabric.origin import JoinedStream, Origin, PeerView
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.relay.carrier_troubles import sentences
from treecast.middleware.relay.coordinator_link import called
from treecast.middleware.relay.next_hops import NextHops
from treecast.middleware.relay.partitions.operator import LED, Operator, Standing
from treecast.middleware.relay.path_troubles import path_troubles
from treecast.middleware.relay.ruled_carriers import receiver_sets, set_rules
from treecast.middleware.relay.view_store import ViewStore

from .joining import Joining
from .status import CoordinatorCounts
from .told_wishes import told

E = TypeVar("E", bound=Enum)

_PAGE_BYTES = 1 << 20
_ASK_SECONDS = 1.0  # that a status waits for the coordinator
_MOST_TOLD = 20  # partitions in trouble that a status lists


class JoinedHost:
    """Implements `status.JoinedView`."""

    def __init__(self, joining: Joining) -> None:
        self._joining = joining
        self._view = joining.link.view
        self._neighbours = joining.relay.neighbours

    # --- hosts

    def coordinator(self) -> pb.CoordinatorStatus:
        link = self._joining.link
        return pb.CoordinatorStatus(
            address="" if self._joining.coordinator is not None else link.client.target,
            reachable=link.attached and link.refused is None,
            revision=self._view.position.revision,
            problem=str(link.refused or link.last_error or ""),
        )

    async def events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        found = await called(self._joining.link.client.get_events(request.after, request.last))
        return pb.ListEventsResponse(events=found.events, more=found.more)

    async def ask_coordinator(self) -> pb.CoordinatorStatus:
        found, link = self.coordinator(), self._joining.link
        if link.wanted:
            found.missing.append(link.wanted)
        if found.reachable:
            with contextlib.suppress(TreecastError, TimeoutError):
                async with asyncio.timeout(_ASK_SECONDS):
                    told = await link.client.status()
                    found.problems.extend(told.problems)
                    found.missing.extend(told.missing)
        return found

    def calls(self) -> CoordinatorCounts | None:
        coordinator = self._joining.coordinator
        return coordinator.calls.counters if coordinator is not None else None

    def hosts(self) -> Sequence[pb.HostStatus]:
        channels = {peer.host_id: peer for peer in self._neighbours.channels.peers()}
        led: dict[int, int] = {}
        for topic in self._view.topics:
            for leader in topic.partitions:
                led[leader.leader] = led.get(leader.leader, 0) + 1
        ordered = sorted(self._view.hosts, key=lambda host: host.host_id)
        return [self._host(host, led.get(host.host_id, 0), channels.get(host.host_id)) for host in ordered]

    def _host(self, host: HostEntry, leads: int, channel: PeerStatus | None) -> pb.HostStatus:
        here = host.host_id == self._joining.host.host_id
        return pb.HostStatus(
            host_id=host.host_id,
            name=host.name,
            address=self._address(host, channel, here=here),
            presence=host.presence.name.lower(),
            version=host.version,
            incarnation=host.incarnation,
            leads=leads,
            here=here,
            channel=_channel(channel) if channel is not None and not here else None,
        )

    def _address(self, host: HostEntry, channel: PeerStatus | None, *, here: bool) -> str:
        """Returns where the host is reached, which may be newer than what the coordinator tells."""
        if here:
            return str(self._neighbours.announced)
        return channel.address if channel is not None and channel.address else host.address

    def leader(self, topic: str, index: int) -> str:
        leader = self._view.leader(topic, index)
        return self.name(leader.leader) if leader is not None else ""

    def is_home(self, group_id: str) -> bool:
        home = self._view.group_home(group_id)
        return home is not None and home.host_id == self._joining.host.host_id

    def name(self, host_id: int) -> str:
        """Returns the name of a host."""
        host = self._view.host(host_id)
        return host.name if host is not None else f"host {host_id}"

    @property
    def ways(self) -> NextHops:
        """The ways of messages published here."""
        return self._joining.relay.ways

    # --- the fabric

    def fabric(self) -> pb.FabricResponse:
        state = self._neighbours.fabric.state()
        return pb.FabricResponse(
            address=str(self._neighbours.address),
            announced=str(self._neighbours.announced),
            interface="" if self._neighbours.place.lost else state.interface.name,
            mtu=state.interface.mtu,
            segment_bytes=state.segment_bytes,
            receive_buffer=state.receive_buffer,
            carriers=[_carrier(carrier) for carrier in state.carriers],
            origins=state.origins,
            received=state.received_streams,
        )

    def set_rules(self, request: pb.SetRulesRequest) -> int:
        """See `ruled_carriers.set_rules`."""
        return set_rules(self._neighbours.fabric.carriers, request)

    def receiver_sets(self) -> Sequence[pb.ReceiverSet]:
        """See `ruled_carriers.receiver_sets`."""
        return receiver_sets(self._neighbours.fabric.carriers)

    def wishes(self) -> Sequence[pb.TopicWish]:
        """Returns this host's wishes for topics that MQTT can name."""
        return told(self._joining.relay.distribution.interest.wishes())

    def streams(self) -> Sequence[pb.StreamStatus]:
        """Returns the streams, those of this host first, by name."""
        fabric = self._neighbours.fabric
        outgoing = sorted([*map(self._outgoing, fabric.origins()), *self._resting()], key=_order)
        received = sorted((self._received(joined) for joined in fabric.joined()), key=_order)
        return [*outgoing, *received]

    # --- partitions

    def standings(self, topic: str = "") -> Sequence[pb.PartitionStanding]:
        return [self._standing(one) for one in self._operator.standings(topic)]

    def troubled(self) -> Sequence[pb.PartitionStanding]:
        return [self._standing(one) for one in self._operator.troubled()]

    async def promote(self, request: pb.PromotePartitionRequest, topic: Topic) -> str:
        return await self._operator.promote(
            topic, request.partition, request.host, accept_loss=request.accept_loss
        )

    async def rebuild(self, request: pb.RebuildPartitionRequest, topic: Topic) -> str:
        return await self._operator.rebuild(
            topic, request.partition, request.host, accept_loss=request.accept_loss
        )

    @property
    def _operator(self) -> Operator:
        return self._joining.relay.operator

    def _standing(self, one: Standing) -> pb.PartitionStanding:
        return pb.PartitionStanding(
            topic=one.topic,
            partition=one.partition,
            leader=self.name(one.leader.leader),
            leader_epoch=one.leader.leader_epoch,
            state=one.state,
            problem=one.problem,
            copy=one.end >= 0,
            start=one.start,
            end=one.end,
            lost=[self._lost(lost) for lost in one.leader.lost if lost.is_loss],
            resumed=[self._lost(lost) for lost in one.leader.lost if not lost.is_loss],
        )

    def _lost(self, lost: LostRange) -> pb.LostRecords:
        return pb.LostRecords(
            first=lost.first,
            heard=lost.heard,
            leader_epoch=lost.leader_epoch,
            host=self.name(lost.host),
            time_ms=lost.time_ms,
            unknown=lost.unknown,
            accepted=lost.accepted,
        )

    def export(self, first: int) -> pb.ExportViewResponse:
        entries = list(ViewStore(self._joining.relay.tables).entries())
        page: list[bytes] = []
        size = 0
        for entry in entries[first:]:
            if page and size + len(entry) > _PAGE_BYTES:
                break
            page.append(entry)
            size += len(entry)
        return pb.ExportViewResponse(
            cluster_id=self._joining.token.cluster_id,
            revision=self._view.position.revision,
            history=self._view.position.history,
            changes=page,
            more=first + len(page) < len(entries),
        )

    # --- what is wrong

    def isolation(self) -> str:
        return self._neighbours.isolation()

    def problems(self) -> Sequence[str]:
        said = (self._neighbours.place.trouble, self.isolation(), self._joining.link.wanted)
        found = [text for text in said if text]
        if self._joining.secured is not None:
            found += self._joining.secured.problems(time.time())
        if (refusal := self._joining.link.not_attached) is not None:
            found.append(f"the coordinator does not let this host attach: {refusal.detail}")
        if self._joining.directory_is_old:
            found.append(
                "this data directory is new to the cluster, or was restored to an older state: messages that"
                " only its queues and sessions had are lost, nobody knows how many"
            )
        found += path_troubles(self._neighbours.fabric, self.name)[:_MOST_TOLD]
        found += self.unreached()
        troubled = [text for one in self._operator.troubled() if (text := self._trouble(one))]
        found += troubled[:_MOST_TOLD]
        if len(troubled) > _MOST_TOLD:
            found.append(f"{len(troubled) - _MOST_TOLD} more partitions: `treecast partitions list`")
        return found

    def unreached(self) -> Sequence[str]:
        found = sentences(self._joining.relay.distribution.choice.troubles(), self.name)
        more = [f"{len(found) - _MOST_TOLD} more such groups: `treecast explain`"]
        return found[:_MOST_TOLD] + more if len(found) > _MOST_TOLD else found

    def _trouble(self, one: Standing) -> str:
        name = f"{one.topic}-{one.partition}"
        if one.state != LED:
            return f"{name}: {one.problem}"
        opened = [lost for lost in one.leader.lost if lost.is_open]
        if not opened:
            return ""
        first, unknown = min(lost.first for lost in opened), any(lost.unknown for lost in opened)
        count = sum(lost.heard - lost.first for lost in opened)
        many = "nobody knows how many" if unknown else f"{count:,}"
        are = "may be lost" if unknown and not count else "are lost"
        return (
            f"{name}: records from offset {first:,} on {are} with the disk of host"
            f" {self.name(opened[0].host)}, {many}; `treecast partitions accept {one.topic} {one.partition}`"
            " once they are dealt with"
        )

    # --- streams

    def _outgoing(self, origin: Origin) -> pb.StreamStatus:
        host, stream, epoch = origin.key
        peers = {peer.host: peer for peer in origin.peers()}
        pace = origin.pace()
        return pb.StreamStatus(
            name=origin.name,
            origin_id=host,
            origin=self.name(host),
            stream=stream,
            epoch=epoch,
            outgoing=True,
            end=origin.end,
            state_id=origin.group,
            accounts=[
                self._account(receiver, row, peers.get(receiver)) for receiver, row in origin.rows().items()
            ],
            sent=[
                pb.StreamSent(
                    carrier=sent.carrier, purpose=sent.purpose, packets=sent.packets, bytes=sent.size
                )
                for sent in origin.sent()
            ],
            pace=pb.StreamPace(
                rate=pace.rate,
                window=pace.window,
                on_way=pace.on_way,
                unsent=pace.unsent,
                set_by=self.name(pace.set_by) if pace.set_by else "",
                why=pace.why,
                payload_bytes=pace.payload,
            ),
        )

    def _resting(self) -> Iterator[pb.StreamStatus]:
        """Yields accounts of event streams that no longer exist; the accounts of their sets of hosts
        continue.
        """
        events = self._joining.relay.distribution.events
        own = self._joining.host.host_id
        for name, rows in events.sending.accounts.resting() if events is not None else ():
            accounts = [self._account(receiver, row, None) for receiver, row in rows.items()]
            for account in accounts:
                account.state = "over"
            yield pb.StreamStatus(
                name=name, origin_id=own, origin=self.name(own), outgoing=True, accounts=accounts
            )

    def _account(self, host: int, row: Row, peer: PeerView | None) -> pb.StreamAccount:
        return pb.StreamAccount(
            host_id=host,
            host=self.name(host),
            state=peer.state.name.lower() if peer is not None else "",
            carrier=peer.carrier if peer is not None else "",
            window=peer.window if peer is not None else 0,
            turnaround=peer.turnaround if peer is not None else 0.0,
            out_for=peer.out_for if peer is not None else 0.0,
            left=peer.left if peer is not None else 0,
            addressed=row.addressed,
            live=row.live,
            repaired=row.repaired,
            replayed=row.replayed,
            filtered=row.filtered,
            expired=_by_name(row.expired),
            refused=_by_name(row.refused),
            outstanding=row.outstanding,
            closed=row.closed,
            balanced=row.balanced,
        )

    def _received(self, joined: JoinedStream) -> pb.StreamStatus:
        host, stream, epoch = joined.key
        return pb.StreamStatus(
            name=joined.name,
            origin_id=host,
            origin=self.name(host),
            stream=stream,
            epoch=epoch,
            outgoing=False,
            end=joined.next + joined.lag,
            next=joined.next,
            state=joined.state.name.lower(),
        )


def _order(stream: pb.StreamStatus) -> tuple[str, int, int]:
    return stream.name, stream.stream, stream.epoch


def _by_name(counts: Mapping[E, int]) -> dict[str, int]:
    return {reason.name.lower(): count for reason, count in counts.items()}


def _channel(peer: PeerStatus) -> pb.ChannelStatus:
    return pb.ChannelStatus(
        connected=peer.connected,
        round_trip_seconds=peer.round_trip,
        bytes_in=peer.bytes_in,
        bytes_out=peer.bytes_out,
        in_flight=peer.in_flight,
        queued=peer.queued,
        last_error=peer.last_error,
        advice=peer.advice,
    )


def _carrier(state: CarrierState) -> pb.CarrierStatus:
    return pb.CarrierStatus(
        name=state.name,
        refusal=state.refusal,
        address=state.address,
        targets=state.targets,
        holders=state.holders,
        segmentation=state.segmentation,
        coalescing=state.coalescing,
        one_by_one=state.one_by_one,
    )
