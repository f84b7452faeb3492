"""`KafkaGroups`: consumer groups whose coordinator is in the Kafka cluster. Implements
`broker.cluster.GroupHome`.

Each call is a value of the broker's Protocols and becomes one request to the group's coordinator, in the form
that the client's own version has where that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from treecast.middleware.broker.values import (
    NOBODY,
    CommittedOffset,
    ConfigChange,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    ConsumerMemberState,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupType,
    Joined,
    JoinedMember,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    OffsetCommits,
    PartitionErrors,
    Place,
    Places,
    Synced,
    SyncGroup,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.shims.kafka import errors
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.messages import Row

from .cluster import GROUP, KafkaCluster, refusal

_GRACE: Final = 30.0
_SYNC_SECONDS: Final = 300.0
_JOIN_WITHOUT_ID: Final = 3  # up to this version a member joins without an id (KIP-394)
_JOIN_WITH_ASSIGNMENT: Final = 8  # and its leader always assigns (KIP-814)
_SYNC_WITHOUT_PROTOCOL: Final = 4
_ALL_DESCRIBED: Final = 5  # up to this version a group that does not exist is described as Dead


class KafkaGroups:
    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    async def _ask(self, group_id: str, key: int, values: Mapping[str, Any], **named: Any) -> Row:
        return await self._cluster.at_coordinator(GROUP, group_id, key, values, **named)

    # --- the classic protocol

    async def join(self, request: JoinGroup) -> Joined:
        values = {
            "group_id": request.group_id,
            "session_timeout_ms": request.session_timeout_ms,
            "rebalance_timeout_ms": request.rebalance_timeout_ms,
            "member_id": request.member_id,
            "group_instance_id": request.instance_id,
            "protocol_type": request.protocol_type,
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in request.protocols],
            "reason": request.reason or None,
        }
        most = v.NEVER if request.can_skip_assignment else _JOIN_WITH_ASSIGNMENT
        if not request.require_known_member_id and request.instance_id is None:
            most = _JOIN_WITHOUT_ID
        seconds = max(request.rebalance_timeout_ms, request.session_timeout_ms) / 1000 + _GRACE
        answer = await self._ask(
            request.group_id, v.JOIN_GROUP, values, most=most, seconds=seconds, client_id=request.client_id
        )
        if answer.error_code == errors.MEMBER_ID_REQUIRED:
            raise MemberIdRequired(answer.member_id)
        _check(answer)
        members = tuple(
            JoinedMember(one.member_id, one.group_instance_id, one.metadata) for one in answer.members
        )
        return Joined(
            answer.generation_id,
            answer.protocol_type or request.protocol_type,
            answer.protocol_name or "",
            answer.leader,
            answer.member_id,
            members,
            bool(answer.skip_assignment),
        )

    async def sync(self, request: SyncGroup) -> Synced:
        values = {
            "group_id": request.group_id,
            "generation_id": request.generation,
            "member_id": request.member_id,
            "group_instance_id": request.instance_id,
            "protocol_type": request.protocol_type,
            "protocol_name": request.protocol,
            "assignments": [
                {"member_id": member, "assignment": assignment} for member, assignment in request.assignments
            ],
        }
        most = _SYNC_WITHOUT_PROTOCOL if request.protocol is None else v.NEVER
        answer = await self._ask(request.group_id, v.SYNC_GROUP, values, most=most, seconds=_SYNC_SECONDS)
        _check(answer)
        return Synced(
            answer.protocol_type or request.protocol_type or "",
            answer.protocol_name or request.protocol or "",
            answer.assignment,
        )

    async def heartbeat(self, group_id: str, member: MemberIdentity) -> None:
        values = {
            "group_id": group_id,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
        }
        _check(await self._ask(group_id, v.HEARTBEAT, values))

    async def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> Sequence[TreecastError | None]:
        rows = [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "reason": one.reason or None,
            }
            for one in members
        ]
        values = {"group_id": group_id, "member_id": members[0].member_id if members else "", "members": rows}
        answer = await self._ask(group_id, v.LEAVE_GROUP, values)
        _check(answer)
        found = [_error(one.error_code) for one in answer.members]
        return found if len(found) == len(members) else [None] * len(members)

    # --- the new protocol (KIP-848)

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        values = {
            "group_id": request.group_id,
            "member_id": request.member_id,
            "member_epoch": request.member_epoch,
            "instance_id": request.instance_id,
            "rack_id": request.rack_id,
            "rebalance_timeout_ms": request.rebalance_timeout_ms,
            "subscribed_topic_names": None if request.topics is None else list(request.topics),
            "subscribed_topic_regex": request.regex,
            "server_assignor": request.assignor,
            "topic_partitions": None if request.owned is None else _rows(request.owned),
        }
        answer = await self._ask(
            request.group_id, v.CONSUMER_GROUP_HEARTBEAT, values, client_id=request.client_id
        )
        _check(answer)
        given = answer.assignment
        return ConsumerHeartbeatAnswer(
            answer.member_id or request.member_id,
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            None if given is None else _places(given.topic_partitions),
        )

    # --- offsets

    async def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> PartitionErrors:
        values = {
            "group_id": group_id,
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "topics": _commits(offsets),
        }
        answer = await self._ask(group_id, v.OFFSET_COMMIT, values, code="topics.partitions.error_code")
        return _partition_errors(answer.topics)

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberIdentity = NOBODY,
    ) -> Mapping[TopicPartition, CommittedOffset | TreecastError]:
        topics = None
        if partitions is not None:
            topics = [{"name": name, "partition_indexes": numbers} for name, numbers in _by_topic(partitions)]
        group = {
            "group_id": group_id,
            "member_id": member.member_id or None,
            "member_epoch": member.generation,
            "topics": topics,
        }
        values = {
            "group_id": group_id,
            "topics": topics,
            "groups": [group],
            "require_stable": require_stable,
        }
        answer = await self._ask(group_id, v.OFFSET_FETCH, values, code="groups.error_code")
        found = answer.groups[0] if answer.groups else answer
        _check(found)
        return dict(_committed(found.topics))

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> PartitionErrors:
        topics = [
            {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
            for name, numbers in _by_topic(partitions)
        ]
        answer = await self._ask(group_id, v.OFFSET_DELETE, {"group_id": group_id, "topics": topics})
        _check(answer)
        return _partition_errors(answer.topics)

    async def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> PartitionErrors:
        values = {
            "transactional_id": transactional_id,
            "group_id": group_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "topics": _commits(offsets),
        }
        answer = await self._ask(group_id, v.TXN_OFFSET_COMMIT, values, code="topics.partitions.error_code")
        return _partition_errors(answer.topics)

    async def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> None:
        raise TreecastError(
            Fault.NOT_SUPPORTED,
            f"group {group_id} is the Kafka cluster's: transactions of other ids cannot commit its offsets",
        )

    # --- looking

    async def describe(self, group_id: str) -> GroupDescription:
        found = await self._describe_consumers(group_id)
        if found is not None:
            return found
        answer = await self._ask(
            group_id, v.DESCRIBE_GROUPS, {"groups": [group_id]}, most=_ALL_DESCRIBED, code="groups.error_code"
        )
        group = answer.groups[0]
        _check(group)
        members = tuple(
            GroupMember(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                one.member_metadata,
                one.member_assignment,
            )
            for one in group.members
        )
        return GroupDescription(
            group_id, group.group_state, group.protocol_type, group.protocol_data, members
        )

    async def _describe_consumers(self, group_id: str) -> GroupDescription | None:
        """Returns a group of type consumer; None if it is of another type, or the cluster is too old for
        any."""
        try:
            answer = await self._ask(
                group_id, v.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group_id]}, code="groups.error_code"
            )
        except TreecastError as error:
            if error.fault is Fault.UNSUPPORTED_VERSION:
                return None
            raise
        group = answer.groups[0]
        if group.error_code in (errors.GROUP_ID_NOT_FOUND, errors.UNSUPPORTED_VERSION):
            return None
        _check(group)
        return GroupDescription(
            group_id,
            group.group_state,
            "consumer",
            group.assignor_name,
            tuple(map(_consumer, group.members)),
            GroupType.CONSUMER,
            group.group_epoch,
            group.assignment_epoch,
        )

    async def delete(self, group_id: str) -> None:
        answer = await self._ask(
            group_id, v.DELETE_GROUPS, {"groups_names": [group_id]}, code="results.error_code"
        )
        _check(answer.results[0])

    async def alter_config(
        self, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Mapping[str, str]:
        if changes:
            raise TreecastError(
                Fault.NOT_SUPPORTED, f"group {group_id} is the Kafka cluster's: change its settings there"
            )
        return {}

    async def list_groups(self) -> list[GroupListing]:
        """Returns the groups of all brokers that answer."""
        found: dict[str, GroupListing] = {}
        for node in list(self._cluster.found.brokers):
            answer = await self._cluster.at_node(node, v.LIST_GROUPS, {})
            for one in answer.groups:
                kind = GroupType.CONSUMER if one.group_type.lower() == "consumer" else GroupType.CLASSIC
                found[one.group_id] = GroupListing(one.group_id, one.protocol_type, one.group_state, kind)
        return list(found.values())


def _error(code: int, detail: str | None = None) -> TreecastError | None:
    return refusal(code, detail) if code else None


def _check(answer: Row) -> None:
    """Raises the refusal that an answer carries."""
    if answer.error_code:
        raise refusal(answer.error_code, getattr(answer, "error_message", None))


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for one in partitions:
        found.setdefault(one.topic, []).append(one.partition)
    return iter(found.items())


def _commits(offsets: OffsetCommits) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "partitions": [_commit(number, offsets[TopicPartition(name, number)]) for number in numbers],
        }
        for name, numbers in _by_topic(offsets)
    ]


def _commit(number: int, offset: CommittedOffset) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "committed_metadata": offset.metadata,
    }


def _partition_errors(topics: Sequence[Row]) -> PartitionErrors:
    found: dict[TopicPartition, TreecastError] = {}
    for topic in topics:
        for row in topic.partitions:
            if row.error_code:
                found[TopicPartition(topic.name, row.partition_index)] = refusal(row.error_code)
    return found


def _committed(topics: Sequence[Row]) -> Iterator[tuple[TopicPartition, CommittedOffset | TreecastError]]:
    for topic in topics:
        for row in topic.partitions:
            name = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                yield name, refusal(row.error_code)
            elif row.committed_offset >= 0:
                yield (
                    name,
                    CommittedOffset(row.committed_offset, row.committed_leader_epoch, row.metadata or ""),
                )


def _rows(places: Places) -> list[dict[str, Any]]:
    found: dict[Any, list[int]] = {}
    for topic_id, number in sorted(places):
        found.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in found.items()]


def _places(rows: Sequence[Row]) -> Places:
    found: set[Place] = {(row.topic_id, number) for row in rows for number in row.partitions}
    return frozenset(found)


def _consumer(one: Row) -> GroupMember:
    state = ConsumerMemberState(
        one.member_epoch,
        one.rack_id or "",
        tuple(one.subscribed_topic_names),
        one.subscribed_topic_regex or "",
        _places(one.assignment.topic_partitions),
        _places(one.target_assignment.topic_partitions),
        one.member_type == 0,
    )
    return GroupMember(one.member_id, one.instance_id, one.client_id, one.client_host, b"", b"", state)
