"""Between the broker's values of the new group protocol and the messages of `peer_homes.proto`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from treecast.middleware.api.v1 import peer_homes_pb2 as pb
from treecast.middleware.broker.values import (
    ConfigChange,
    ConfigOperation,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    ConsumerMemberState,
    Places,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId


def places(value: Places) -> list[pb.HomePlaces]:
    found: dict[TopicId, list[int]] = {}
    for topic, number in sorted(value):
        found.setdefault(topic, []).append(number)
    return [pb.HomePlaces(topic_id=topic.bytes, partitions=numbers) for topic, numbers in found.items()]


def read_places(messages: Iterable[pb.HomePlaces]) -> Places:
    try:
        return frozenset(
            (uuid.UUID(bytes=message.topic_id), number)
            for message in messages
            for number in message.partitions
        )
    except ValueError as error:
        raise TreecastError(Fault.INVALID_REQUEST, f"no topic id: {error}") from error


def heartbeat(target: pb.HomeTarget, request: ConsumerHeartbeat) -> pb.HomeConsumerHeartbeat:
    return pb.HomeConsumerHeartbeat(
        home=target,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=request.client_id,
        client_host=request.client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        has_topics=request.topics is not None,
        topics=request.topics or (),
        regex=request.regex,
        assignor=request.assignor,
        has_owned=request.owned is not None,
        owned=places(request.owned or frozenset()),
    )


def read_heartbeat(message: pb.HomeConsumerHeartbeat) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        message.home.id,
        message.member_id,
        message.member_epoch,
        message.client_id,
        message.client_host,
        message.instance_id if message.HasField("instance_id") else None,
        message.rack_id if message.HasField("rack_id") else None,
        message.rebalance_timeout_ms,
        tuple(message.topics) if message.has_topics else None,
        message.regex if message.HasField("regex") else None,
        message.assignor if message.HasField("assignor") else None,
        read_places(message.owned) if message.has_owned else None,
    )


def answer(value: ConsumerHeartbeatAnswer) -> pb.HomeConsumerAnswer:
    return pb.HomeConsumerAnswer(
        member_id=value.member_id,
        member_epoch=value.member_epoch,
        heartbeat_interval_ms=value.heartbeat_interval_ms,
        has_assignment=value.assignment is not None,
        assignment=places(value.assignment or frozenset()),
    )


def read_answer(message: pb.HomeConsumerAnswer) -> ConsumerHeartbeatAnswer:
    return ConsumerHeartbeatAnswer(
        message.member_id,
        message.member_epoch,
        message.heartbeat_interval_ms,
        read_places(message.assignment) if message.has_assignment else None,
    )


def member_state(value: ConsumerMemberState | None) -> pb.HomeConsumerMember | None:
    if value is None:
        return None
    return pb.HomeConsumerMember(
        epoch=value.epoch,
        rack_id=value.rack_id,
        topics=value.topics,
        regex=value.regex,
        assigned=places(value.assigned),
        target=places(value.target),
        classic=value.classic,
    )


def read_member_state(message: pb.HomeConsumerMember) -> ConsumerMemberState:
    return ConsumerMemberState(
        message.epoch,
        message.rack_id,
        tuple(message.topics),
        message.regex,
        read_places(message.assigned),
        read_places(message.target),
        message.classic,
    )


def alter_config(
    target: pb.HomeTarget, changes: Sequence[ConfigChange], *, validate_only: bool
) -> pb.HomeAlterConfig:
    return pb.HomeAlterConfig(
        home=target,
        changes=[
            pb.HomeConfigChange(name=change.name, operation=change.operation.value, value=change.value)
            for change in changes
        ],
        validate_only=validate_only,
    )


def read_changes(messages: Iterable[pb.HomeConfigChange]) -> list[ConfigChange]:
    try:
        return [
            ConfigChange(
                message.name,
                ConfigOperation(message.operation),
                message.value if message.HasField("value") else None,
            )
            for message in messages
        ]
    except ValueError as error:
        raise TreecastError(Fault.INVALID_REQUEST, str(error)) from error
