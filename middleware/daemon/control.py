"""The control address: the gRPC service of `proto/treecast/v1/daemon.proto`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio

from treecast.middleware.api.calls import Calls
from treecast.middleware.api.daemon_client import SERVICE
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.rpc import MAX_CALLS, Method, server_options
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.broker import (
    GROUPS,
    Cluster,
    ConfigChange,
    ConfigOperation,
    Definitions,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupType,
    NewTopic,
    Topic,
    view_of,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import TOPIC_CONFIG_KEYS

from .consumer_assignment import assigned_partitions
from .control_access import ControlAdmission
from .listeners import StartError, check_free
from .reset import reset_offsets
from .settings import value_text
from .status import JoinedView, Subject, take_status
from .view import GroupView, OffsetView, PartitionView, TopicView, view_group, view_topic, view_topics

if TYPE_CHECKING:
    from .door import Door

UNKNOWN = "Unknown"  # the state of a group whose home cannot be asked
_HOME_AWAY = {
    Fault.COORDINATOR_UNAVAILABLE,
    Fault.COORDINATOR_LOADING,
    Fault.NOT_COORDINATOR,
    Fault.TIMED_OUT,
}
_GONE = ("", "over")  # accounts of hosts that no longer receive a stream

_STALL_SECONDS = 30.0  # this service has no streams
DEAD = "Dead"  # the home's description of a group that does not exist


class ControlServer:
    """The gRPC server. Listens on TCP and optionally on a Unix socket, from `start` to `close`.

    A coordinator's calls are answered from then on, the daemon's own once it shows itself (`show`).
    """

    def __init__(
        self,
        cluster_id: str,
        address: Address,
        unix_path: Path | None,
        coordinator: grpc.GenericRpcHandler | None = None,
        token: JoinToken | None = None,
        connections: int = 0,
        door: Door | None = None,
    ) -> None:
        """`coordinator`: the calls of a coordinator embedded in this daemon. `token`: its key signs changes
        from other hosts; with None, no other host may make changes. `connections`: at most so many of each
        listener, if not 0. `door`: TLS in front of the address, on a secured host.
        """
        options = server_options(connections, called_by_hosts=coordinator is not None)
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
        certified = door.caller if door is not None else None
        admission = ControlAdmission(cluster_id, token, lambda: self._port, certified=certified)
        self._door = door
        self._port = 0  # gRPC's own: behind the door a port of loopback
        self._service: DaemonService | None = None
        self.calls = Calls(
            SERVICE,
            self._serving,
            admission,
            time.monotonic,
            _STALL_SECONDS,
        )
        self._server.add_generic_rpc_handlers((self.calls.handler,))
        if coordinator is not None:
            self._server.add_generic_rpc_handlers((coordinator,))
        self.unix_path = unix_path
        self._wanted = address
        self.address = address

    def show(self, subject: Subject) -> None:
        """Lets the daemon's own calls be answered, about `subject`."""
        self._service = DaemonService(subject)

    def _serving(self, method: Method) -> Callable[[Any], Any]:
        if self._service is None:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "this daemon is still starting: try again")
        call: Callable[[Any], Any] = getattr(self._service, method.attribute)
        return call

    async def start(self) -> None:
        """Starts to listen. Raises StartError if the address is not available."""
        wanted = check_free("control", self._wanted)  # gRPC does not report why it cannot bind
        own = wanted if self._door is None else Address("127.0.0.1", 0)
        try:
            self._port = self._server.add_insecure_port(str(own))
            if self.unix_path is not None:
                self._server.add_insecure_port(f"unix:{self.unix_path}")
        except RuntimeError as error:
            raise StartError(f"--control {wanted}: cannot listen there: {error}") from error
        self.address = Address(wanted.host, self._port)
        await self._server.start()
        if self._door is not None:
            self.address = await self._door.open(wanted, self._port)

    async def close(self, grace: float) -> None:
        if self._door is not None:
            await self._door.close()
        await self._server.stop(grace)


class DaemonService:
    """The calls of the service. Refusals are raised as TreecastError; `Calls` turns them into statuses."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    async def status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        return await take_status(self._subject, time.time())

    async def fabric(self, request: pb.FabricRequest) -> pb.FabricResponse:
        return self._joined.fabric()

    async def list_streams(self, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
        joined = self._joined
        coordinator = await joined.ask_coordinator()
        return pb.ListStreamsResponse(
            streams=joined.streams(),
            partitions=joined.troubled(),
            missing=coordinator.missing,
            unreached=joined.unreached(),
        )

    async def set_rules(self, request: pb.SetRulesRequest) -> pb.SetRulesResponse:
        return pb.SetRulesResponse(version=self._joined.set_rules(request))

    async def list_receiver_sets(self, request: pb.ListReceiverSetsRequest) -> pb.ListReceiverSetsResponse:
        return pb.ListReceiverSetsResponse(sets=self._joined.receiver_sets())

    async def list_wishes(self, request: pb.ListWishesRequest) -> pb.ListWishesResponse:
        return pb.ListWishesResponse(wishes=self._joined.wishes())

    @property
    def _joined(self) -> JoinedView:
        if self._subject.joined is None:
            raise TreecastError(
                Fault.NOT_SUPPORTED,
                "the fabric is off, and this host is alone: start it with --fabric HOST:PORT",
            )
        return self._subject.joined

    # --- topics

    async def list_topics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        return pb.ListTopicsResponse(topics=[topic_message(t) for t in await view_topics(self._cluster)])

    async def describe_topic(self, request: pb.DescribeTopicRequest) -> pb.DescribeTopicResponse:
        view = await view_topic(self._cluster, self._shown(request.name))
        receivers = self._receivers()
        return pb.DescribeTopicResponse(
            topic=topic_message(view),
            partitions=[
                _partition_message(
                    partition,
                    self._leader(request.name, partition.index),
                    self._copies(request.name, partition.index, receivers),
                )
                for partition in view.partitions
            ],
            config=_config_entries(view.topic.config.overrides, self._subject.settings.topic_defaults),
        )

    async def create_topic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
        new = NewTopic(request.name, request.partitions or -1, dict(request.config), tuple(request.leaders))
        topic = await self._definitions.create_topic(new, validate_only=request.validate_only)
        return pb.CreateTopicResponse(topic=topic_message(TopicView(topic, ())))

    async def delete_topic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        topic = await self._definitions.delete_topic(request.name)
        return pb.DeleteTopicResponse(topic=topic_message(TopicView(topic, ())))

    async def alter_topic(self, request: pb.AlterTopicRequest) -> pb.AlterTopicResponse:
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in request.set.items()]
        changes += [ConfigChange(name, ConfigOperation.DELETE, None) for name in request.unset]
        topic = await self._definitions.alter_topic(
            request.name, changes, validate_only=request.validate_only
        )
        return pb.AlterTopicResponse(topic=topic_message(TopicView(topic, ())))

    async def create_partitions(self, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsResponse:
        topic = await self._definitions.create_partitions(
            request.name, request.total, validate_only=request.validate_only
        )
        return pb.CreatePartitionsResponse(topic=topic_message(TopicView(topic, ())))

    # --- partitions of joined hosts

    async def list_partitions(self, request: pb.ListPartitionsRequest) -> pb.ListPartitionsResponse:
        joined = self._joined
        if request.topic:
            self._topic(request.topic)
        return pb.ListPartitionsResponse(partitions=joined.standings(request.topic))

    async def list_events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        return await self._joined.events(request)

    async def explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        if self._subject.explanation is None:
            raise TreecastError(Fault.NOT_SUPPORTED, "this daemon is still starting")
        return await self._subject.explanation.answer(request)

    async def export_view(self, request: pb.ExportViewRequest) -> pb.ExportViewResponse:
        return self._joined.export(request.first)

    async def promote_partition(self, request: pb.PromotePartitionRequest) -> pb.PromotePartitionResponse:
        said = await self._joined.promote(request, self._topic(request.topic))
        return pb.PromotePartitionResponse(said=said, partition=self._standing(request))

    async def rebuild_partition(self, request: pb.RebuildPartitionRequest) -> pb.RebuildPartitionResponse:
        said = await self._joined.rebuild(request, self._topic(request.topic))
        return pb.RebuildPartitionResponse(said=said, partition=self._standing(request))

    def _standing(
        self, request: pb.PromotePartitionRequest | pb.RebuildPartitionRequest
    ) -> pb.PartitionStanding | None:
        found = self._joined.standings(request.topic)
        return found[request.partition] if request.partition < len(found) else None

    # --- groups

    async def list_groups(self, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        listed = sorted(await self._cluster.list_groups(), key=lambda entry: entry.group_id)
        return pb.ListGroupsResponse(groups=await asyncio.gather(*map(self._listed_group, listed)))

    async def _listed_group(self, listed: GroupListing) -> pb.Group:
        """Returns a listed group; one whose home is away gets the state Unknown."""
        unknown = pb.Group(
            group_id=listed.group_id,
            protocol_type=listed.protocol_type,
            state=UNKNOWN,
            type="" if listed.state == UNKNOWN else listed.group_type.value,
        )
        if listed.state == UNKNOWN:
            return unknown
        try:
            return _group_message(await self._cluster.home(GROUPS, listed.group_id).describe(listed.group_id))
        except TreecastError as error:
            if error.fault not in _HOME_AWAY:
                raise
            return unknown

    async def describe_group(self, request: pb.DescribeGroupRequest) -> pb.DescribeGroupResponse:
        view = await self._group(request.group_id)
        return pb.DescribeGroupResponse(
            group=_group_message(view.description),
            protocol=view.description.protocol,
            members=_member_messages(view.description),
            offsets=[offset_message(offset) for offset in view.offsets],
        )

    async def delete_group(self, request: pb.DeleteGroupRequest) -> pb.DeleteGroupResponse:
        await self._cluster.home(GROUPS, request.group_id).delete(request.group_id)
        return pb.DeleteGroupResponse()

    async def reset_group(self, request: pb.ResetGroupRequest) -> pb.ResetGroupResponse:
        # the call creates a group that does not exist
        group = await view_group(self._cluster, request.group_id)
        before, after = await reset_offsets(self._cluster, group, request)
        return pb.ResetGroupResponse(
            before=[offset_message(offset) for offset in before],
            after=[offset_message(offset) for offset in after],
        )

    # --- look-ups

    @property
    def _cluster(self) -> Cluster:
        return self._subject.cluster

    @property
    def _definitions(self) -> Definitions:
        return self._subject.cluster.definitions

    def _topic(self, name: str) -> Topic:
        topics = self._subject.cluster.definitions.topics()
        if name not in topics:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {name!r}")
        return topics[name]

    def _shown(self, name: str) -> Topic:
        """As `_topic`, with views."""
        return view_of(self._subject.cluster.definitions.topics(), name) or self._topic(name)

    def _leader(self, topic: str, index: int) -> str:
        return self._subject.joined.leader(topic, index) if self._subject.joined is not None else ""

    def _receivers(self) -> Mapping[str, int]:
        """Returns the number of hosts that receive each stream of this host, by the stream's name."""
        joined = self._subject.joined
        return {
            stream.name: sum(1 for account in stream.accounts if account.state not in _GONE)
            for stream in (joined.streams() if joined is not None else ())
            if stream.outgoing
        }

    def _copies(self, topic: str, index: int, receivers: Mapping[str, int]) -> int:
        """Returns the number of hosts with the partition's log; 0 if another host leads it, which knows."""
        if self._leader(topic, index) not in ("", self._subject.settings.name):
            return 0
        return 1 + receivers.get(f"{topic}-{index}", 0)

    async def _group(self, group_id: str) -> GroupView:
        view = await view_group(self._subject.cluster, group_id)
        if view.description.state == DEAD and not view.offsets:
            raise TreecastError(Fault.GROUP_NOT_FOUND, f"there is no group {group_id!r}")
        return view


# --- values as messages


def topic_message(view: TopicView) -> pb.Topic:
    topic = view.topic
    return pb.Topic(
        name=topic.name,
        topic_id=str(topic.topic_id),
        internal=topic.internal,
        partitions=topic.partitions,
        overrides=dict(topic.config.overrides),
        records=view.records,
        bytes=view.size,
    )


def _partition_message(view: PartitionView, leader: str, copies: int) -> pb.Partition:
    return pb.Partition(
        index=view.index,
        leader_epoch=view.leader_epoch,
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        stable_offset=view.stable_offset,
        bytes=view.size,
        leader=leader,
        copies=copies,
    )


def _config_entries(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> Sequence[pb.ConfigEntry]:
    return [
        pb.ConfigEntry(
            name=name,
            value=value_text(overrides.get(name, defaults.get(name, key.default))),
            overridden=name in overrides,
            doc=key.doc,
        )
        for name, key in TOPIC_CONFIG_KEYS.items()
    ]


def _group_message(description: GroupDescription) -> pb.Group:
    return pb.Group(
        group_id=description.group_id,
        protocol_type=description.protocol_type,
        state=description.state,
        members=len(description.members),
        type=description.group_type.value,
        epoch=description.epoch,
        assignment_epoch=description.assignment_epoch,
    )


def _member_messages(description: GroupDescription) -> Sequence[pb.GroupMember]:
    """Returns the members in a stable order: by client, then by member."""
    consumers = description.protocol_type == "consumer"
    return [
        pb.GroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id or "",
            client_id=member.client_id,
            client_host=member.client_host,
            epoch=description.epoch if member.consumer is None else member.consumer.epoch,
            protocol=_protocol(member).value,
            assigned=[
                pb.AssignedTopic(topic=topic, partitions=partitions)
                for topic, partitions in (assigned_partitions(member.assignment) if consumers else ())
            ],
        )
        for member in sorted(
            description.members, key=lambda m: (m.client_id, m.instance_id or "", m.member_id)
        )
    ]


def _protocol(member: GroupMember) -> GroupType:
    """Returns the group protocol that the member uses."""
    classic = member.consumer is None or member.consumer.classic
    return GroupType.CLASSIC if classic else GroupType.CONSUMER


def offset_message(view: OffsetView) -> pb.GroupOffset:
    return pb.GroupOffset(
        topic=view.partition.topic,
        partition=view.partition.partition,
        committed=view.committed,
        end_offset=view.end_offset,
        lag=view.lag,
        metadata=view.metadata,
    )
