"""Between the broker's values and the messages of `peer_homes.proto`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from treecast.middleware.api.v1 import peer_homes_pb2 as pb
from treecast.middleware.broker.values import (
    NOBODY,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupType,
    Joined,
    JoinedMember,
    JoinGroup,
    MemberIdentity,
    OffsetCommits,
    PartitionErrors,
    Synced,
    SyncGroup,
    TransactionListing,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition

from .consumer_messages import member_state, read_member_state

Fetched = Mapping[TopicPartition, CommittedOffset | TreecastError]


def _optional(message: pb.HomeMember | pb.HomeJoin | pb.HomeSync, field: str) -> str | None:
    return getattr(message, field) if message.HasField(field) else None


# --- refusals of parts


def outcome(error: TreecastError | None) -> pb.HomeOutcome:
    return pb.HomeOutcome() if error is None else pb.HomeOutcome(fault=error.fault.name, detail=error.detail)


def read_outcome(message: pb.HomeOutcome) -> TreecastError | None:
    """A fault of a newer version is INTERNAL here."""
    if not message.fault:
        return None
    fault = Fault[message.fault] if message.fault in Fault.__members__ else Fault.INTERNAL
    return TreecastError(fault, message.detail)


# --- partitions and producers


def partition(value: TopicPartition) -> pb.HomePartition:
    return pb.HomePartition(topic=value.topic, partition=value.partition)


def partitions(values: Iterable[TopicPartition]) -> list[pb.HomePartition]:
    return [partition(value) for value in values]


def read_partition(message: pb.HomePartition) -> TopicPartition:
    return TopicPartition(message.topic, message.partition)


def read_partitions(messages: Iterable[pb.HomePartition]) -> list[TopicPartition]:
    return [read_partition(message) for message in messages]


def partition_errors(errors: PartitionErrors) -> pb.HomePartitionErrors:
    return pb.HomePartitionErrors(
        errors=[
            pb.HomePartitionError(partition=partition(where), outcome=outcome(error))
            for where, error in errors.items()
        ]
    )


def read_partition_errors(message: pb.HomePartitionErrors) -> PartitionErrors:
    read = ((read_partition(row.partition), read_outcome(row.outcome)) for row in message.errors)
    return {where: error for where, error in read if error is not None}


def producer(value: ProducerIdentity) -> pb.HomeProducer:
    return pb.HomeProducer(producer_id=value.producer_id, epoch=value.epoch)


def read_producer(message: pb.HomeProducer) -> ProducerIdentity:
    return ProducerIdentity(message.producer_id, message.epoch)


# --- members


def member(value: MemberIdentity) -> pb.HomeMember:
    return pb.HomeMember(
        member_id=value.member_id,
        instance_id=value.instance_id,
        generation=value.generation,
        reason=value.reason,
    )


def read_member(message: pb.HomeMember) -> MemberIdentity:
    instance_id = _optional(message, "instance_id")
    return MemberIdentity(message.member_id, instance_id, message.generation, message.reason)


def join(target: pb.HomeTarget, request: JoinGroup) -> pb.HomeJoin:
    return pb.HomeJoin(
        home=target,
        member_id=request.member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[pb.HomeProtocol(name=name, metadata=metadata) for name, metadata in request.protocols],
        require_known_member_id=request.require_known_member_id,
        reason=request.reason,
        can_skip_assignment=request.can_skip_assignment,
    )


def read_join(message: pb.HomeJoin) -> JoinGroup:
    return JoinGroup(
        group_id=message.home.id,
        member_id=message.member_id,
        instance_id=_optional(message, "instance_id"),
        client_id=message.client_id,
        client_host=message.client_host,
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in message.protocols),
        require_known_member_id=message.require_known_member_id,
        reason=message.reason,
        can_skip_assignment=message.can_skip_assignment,
    )


def joined(value: Joined) -> pb.HomeJoined:
    return pb.HomeJoined(
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol=value.protocol,
        leader=value.leader,
        member_id=value.member_id,
        members=[
            pb.HomeJoinedMember(member_id=m.member_id, instance_id=m.instance_id, metadata=m.metadata)
            for m in value.members
        ],
        skip_assignment=value.skip_assignment,
    )


def read_joined(message: pb.HomeJoined) -> Joined:
    members = tuple(
        JoinedMember(m.member_id, m.instance_id if m.HasField("instance_id") else None, m.metadata)
        for m in message.members
    )
    return Joined(
        message.generation,
        message.protocol_type,
        message.protocol,
        message.leader,
        message.member_id,
        members,
        message.skip_assignment,
    )


def sync(target: pb.HomeTarget, request: SyncGroup) -> pb.HomeSync:
    return pb.HomeSync(
        home=target,
        generation=request.generation,
        member_id=request.member_id,
        instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol,
        assignments=[
            pb.HomeAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in request.assignments
        ],
    )


def read_sync(message: pb.HomeSync) -> SyncGroup:
    return SyncGroup(
        group_id=message.home.id,
        generation=message.generation,
        member_id=message.member_id,
        instance_id=_optional(message, "instance_id"),
        protocol_type=_optional(message, "protocol_type"),
        protocol=_optional(message, "protocol"),
        assignments=tuple((row.member_id, row.assignment) for row in message.assignments),
    )


def synced(value: Synced) -> pb.HomeSynced:
    return pb.HomeSynced(
        protocol_type=value.protocol_type, protocol=value.protocol, assignment=value.assignment
    )


def read_synced(message: pb.HomeSynced) -> Synced:
    return Synced(message.protocol_type, message.protocol, message.assignment)


# --- offsets


def _offset(where: TopicPartition, value: CommittedOffset) -> pb.HomeOffset:
    return pb.HomeOffset(
        partition=partition(where),
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _read_offset(message: pb.HomeOffset) -> CommittedOffset:
    return CommittedOffset(message.offset, message.leader_epoch, message.metadata)


def commit(
    target: pb.HomeTarget,
    who: MemberIdentity,
    offsets: OffsetCommits,
    transactional_id: str | None = None,
    by: ProducerIdentity | None = None,
) -> pb.HomeCommit:
    """In a transaction with `transactional_id` and `by`."""
    return pb.HomeCommit(
        home=target,
        member=member(who),
        offsets=[_offset(where, value) for where, value in offsets.items()],
        transactional_id=transactional_id,
        producer=None if by is None else producer(by),
    )


def read_commits(message: pb.HomeCommit) -> OffsetCommits:
    return {read_partition(row.partition): _read_offset(row) for row in message.offsets}


def fetch(
    target: pb.HomeTarget,
    wanted: Sequence[TopicPartition] | None,
    who: MemberIdentity,
    *,
    require_stable: bool,
) -> pb.HomeFetch:
    return pb.HomeFetch(
        home=target,
        all=wanted is None,
        partitions=partitions(wanted or ()),
        require_stable=require_stable,
        member=None if who == NOBODY else member(who),
    )


def fetched(found: Fetched) -> pb.HomeFetched:
    rows = []
    for where, value in found.items():
        if isinstance(value, TreecastError):
            offset = pb.HomeOffset(partition=partition(where))
            rows.append(pb.HomeFetchedOffset(offset=offset, refused=outcome(value)))
        else:
            rows.append(pb.HomeFetchedOffset(offset=_offset(where, value)))
    return pb.HomeFetched(offsets=rows)


def read_fetched(message: pb.HomeFetched) -> Fetched:
    return {
        read_partition(row.offset.partition): read_outcome(row.refused) or _read_offset(row.offset)
        for row in message.offsets
    }


# --- administration


def described(value: GroupDescription) -> pb.HomeDescribed:
    return pb.HomeDescribed(
        state=value.state,
        protocol_type=value.protocol_type,
        protocol=value.protocol,
        members=[
            pb.HomeDescribedMember(
                member_id=m.member_id,
                instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                metadata=m.metadata,
                assignment=m.assignment,
                consumer=member_state(m.consumer),
            )
            for m in value.members
        ],
        group_type=value.group_type.value,
        epoch=value.epoch,
        assignment_epoch=value.assignment_epoch,
    )


def read_described(group_id: str, message: pb.HomeDescribed) -> GroupDescription:
    members = tuple(
        GroupMember(
            m.member_id,
            m.instance_id if m.HasField("instance_id") else None,
            m.client_id,
            m.client_host,
            m.metadata,
            m.assignment,
            read_member_state(m.consumer) if m.HasField("consumer") else None,
        )
        for m in message.members
    )
    return GroupDescription(
        group_id,
        message.state,
        message.protocol_type,
        message.protocol,
        members,
        _group_type(message.group_type),
        message.epoch,
        message.assignment_epoch,
    )


def _group_type(name: str) -> GroupType:
    """None is said by a host of an older version, which knows classic groups only."""
    return GroupType(name) if name else GroupType.CLASSIC


def listed(groups: Iterable[GroupListing]) -> pb.HomeListed:
    return pb.HomeListed(
        groups=[
            pb.HomeListing(
                group_id=g.group_id,
                protocol_type=g.protocol_type,
                state=g.state,
                group_type=g.group_type.value,
            )
            for g in groups
        ]
    )


def read_listed(message: pb.HomeListed) -> list[GroupListing]:
    return [
        GroupListing(g.group_id, g.protocol_type, g.state, _group_type(g.group_type)) for g in message.groups
    ]


def transactions(listings: Iterable[TransactionListing]) -> pb.HomeTransactions:
    return pb.HomeTransactions(
        transactions=[
            pb.HomeTransaction(
                id=one.transactional_id,
                state=one.state,
                producer=producer(one.producer),
                timeout_ms=one.timeout_ms,
                started_ms=one.started_ms,
                partitions=partitions(one.partitions),
            )
            for one in listings
        ]
    )


def read_transactions(message: pb.HomeTransactions) -> list[TransactionListing]:
    return [
        TransactionListing(
            one.id,
            one.state,
            read_producer(one.producer),
            one.timeout_ms,
            one.started_ms,
            tuple(read_partitions(one.partitions)),
        )
        for one in message.transactions
    ]
