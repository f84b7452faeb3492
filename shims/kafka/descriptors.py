"""Message descriptors that kafka-python lacks: those of the new group protocol (KIP-848), and of share groups
(KIP-932) as far as they are refused.

They have the form of Kafka's own descriptors, which `messages` compiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .messages import Json


def _field(name: str, kind: str, since: int = 0, *, nullable: bool = False, **more: object) -> Json:
    field: Json = {"name": name, "type": kind, "versions": f"{since}+", **more}
    if nullable:
        field |= {"nullableVersions": f"{since}+", "default": "null"}
    return field


def _places(name: str, *, named: bool = False, nullable: bool = False) -> Json:
    """Partitions by topic."""
    names = [_field("TopicName", "string")] if named else []
    fields = [_field("TopicId", "uuid"), *names, _field("Partitions", "[]int32")]
    return _field(name, "[]TopicPartitions", nullable=nullable, fields=fields)


def _assignment(name: str, *, named: bool = False, nullable: bool = False) -> Json:
    return _field(name, "Assignment", nullable=nullable, fields=[_places("TopicPartitions", named=named)])


def _message(key: int, name: str, versions: str, fields: list[Json]) -> tuple[str, Json]:
    described: Json = {
        "apiKey": key,
        "type": "request" if name.endswith("Request") else "response",
        "name": name,
        "validVersions": versions,
        "flexibleVersions": "0+",
        "fields": fields,
    }
    return name, described


_OUTCOME = [_field("ErrorCode", "int16"), _field("ErrorMessage", "string", nullable=True)]
_NO_OPERATIONS = "-2147483648"


def _describe(key: int, name: str, versions: str, member: list[Json]) -> list[tuple[str, Json]]:
    """The request and response that describe groups of one kind. `member`: the fields of a member."""
    group = [
        *_OUTCOME,
        _field("GroupId", "string"),
        _field("GroupState", "string"),
        _field("GroupEpoch", "int32"),
        _field("AssignmentEpoch", "int32"),
        _field("AssignorName", "string"),
        _field("Members", "[]Member", fields=member),
        _field("AuthorizedOperations", "int32", default=_NO_OPERATIONS),
    ]
    asked = [_field("GroupIds", "[]string"), _field("IncludeAuthorizedOperations", "bool")]
    answered = [_field("ThrottleTimeMs", "int32"), _field("Groups", "[]DescribedGroup", fields=group)]
    return [
        _message(key, f"{name}Request", versions, asked),
        _message(key, f"{name}Response", versions, answered),
    ]


DESCRIPTORS: Mapping[str, Json] = MappingProxyType(
    dict(
        [
            _message(
                68,
                "ConsumerGroupHeartbeatRequest",
                "0-1",
                [
                    _field("GroupId", "string"),
                    _field("MemberId", "string"),
                    _field("MemberEpoch", "int32"),
                    _field("InstanceId", "string", nullable=True),
                    _field("RackId", "string", nullable=True),
                    _field("RebalanceTimeoutMs", "int32", default=-1),
                    _field("SubscribedTopicNames", "[]string", nullable=True),
                    _field("SubscribedTopicRegex", "string", 1, nullable=True),
                    _field("ServerAssignor", "string", nullable=True),
                    _places("TopicPartitions", nullable=True),
                ],
            ),
            _message(
                68,
                "ConsumerGroupHeartbeatResponse",
                "0-1",
                [
                    _field("ThrottleTimeMs", "int32"),
                    *_OUTCOME,
                    _field("MemberId", "string", nullable=True),
                    _field("MemberEpoch", "int32"),
                    _field("HeartbeatIntervalMs", "int32"),
                    _assignment("Assignment", nullable=True),
                ],
            ),
            _message(
                76,
                "ShareGroupHeartbeatRequest",
                "1",
                [
                    _field("GroupId", "string"),
                    _field("MemberId", "string"),
                    _field("MemberEpoch", "int32"),
                    _field("RackId", "string", nullable=True),
                    _field("SubscribedTopicNames", "[]string", nullable=True),
                ],
            ),
            _message(
                76,
                "ShareGroupHeartbeatResponse",
                "1",
                [
                    _field("ThrottleTimeMs", "int32"),
                    *_OUTCOME,
                    _field("MemberId", "string", nullable=True),
                    _field("MemberEpoch", "int32"),
                    _field("HeartbeatIntervalMs", "int32"),
                    _assignment("Assignment", nullable=True),
                ],
            ),
            *_describe(
                77,
                "ShareGroupDescribe",
                "1",
                [
                    _field("MemberId", "string"),
                    _field("RackId", "string", nullable=True),
                    _field("MemberEpoch", "int32"),
                    _field("ClientId", "string"),
                    _field("ClientHost", "string"),
                    _field("SubscribedTopicNames", "[]string"),
                    _assignment("Assignment", named=True),
                ],
            ),
            *_describe(
                69,
                "ConsumerGroupDescribe",
                "0-1",
                [
                    _field("MemberId", "string"),
                    _field("InstanceId", "string", nullable=True),
                    _field("RackId", "string", nullable=True),
                    _field("MemberEpoch", "int32"),
                    _field("ClientId", "string"),
                    _field("ClientHost", "string"),
                    _field("SubscribedTopicNames", "[]string"),
                    _field("SubscribedTopicRegex", "string", nullable=True),
                    _assignment("Assignment", named=True),
                    _assignment("TargetAssignment", named=True),
                    _field("MemberType", "int8", 1, default="-1"),
                ],
            ),
        ]
    )
)
