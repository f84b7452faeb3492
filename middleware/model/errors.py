"""The error taxonomy.

Every refusal inside Treecast is a `TreecastError` with a `Fault`. Each face owns a total mapping from `Fault`
to its protocol's codes. A fault states what is wrong, never how a protocol encodes it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence


class Fault(enum.Enum):
    """The kind of a refusal. The value is the text that an operator reads when there is no detail."""

    # records
    CORRUPT_BATCH = "the batch fails its checksum or its structure"
    INVALID_RECORD = "the batch breaks a rule of its topic"
    BATCH_TOO_LARGE = "the batch is larger than the topic allows"
    UNSUPPORTED_BATCH_FORMAT = "only record batches of magic 2 are stored"
    UNSUPPORTED_COMPRESSION = "this compression is unknown"
    INVALID_TIMESTAMP = "the timestamp is outside what the topic allows"
    # topics and partitions
    UNKNOWN_TOPIC = "there is no such topic or partition"
    UNKNOWN_TOPIC_ID = "there is no topic with this id"
    TOPIC_EXISTS = "the topic exists already"
    INVALID_TOPIC = "the topic name is not allowed"
    INVALID_PARTITIONS = "the number of partitions is not allowed"
    INVALID_REPLICATION = "the replication factor is not allowed"
    INVALID_ASSIGNMENT = "the replica assignment is not allowed"
    INVALID_CONFIG = "the configuration is not allowed"
    POLICY_VIOLATION = "the policy of this cluster forbids it"
    # reading
    OFFSET_OUT_OF_RANGE = "the offset is outside the log"
    NOT_LEADER = "another host leads the partition"
    LEADER_UNAVAILABLE = "the leader cannot be reached"
    FENCED_LEADER_EPOCH = "the leader epoch is older than the partition's"
    UNKNOWN_LEADER_EPOCH = "the leader epoch is newer than the partition's"
    # storage
    STORAGE = "the disk refused"
    # groups
    NOT_COORDINATOR = "this host is not the group's or transaction's home"
    COORDINATOR_LOADING = "the home is still loading"
    COORDINATOR_UNAVAILABLE = "the home cannot be reached"
    UNKNOWN_MEMBER = "the member is not in the group"
    ILLEGAL_GENERATION = "the generation is not the group's"
    REBALANCE_IN_PROGRESS = "the group is rebalancing"
    INCONSISTENT_PROTOCOL = "no assignor is common to all members"
    INVALID_GROUP = "the group id is not allowed"
    INVALID_SESSION_TIMEOUT = "the session timeout is outside the allowed range"
    MEMBER_ID_REQUIRED = "join again with the member id that was given"
    FENCED_INSTANCE = "another member took over this instance id"
    GROUP_FULL = "the group's member limit is reached"
    GROUP_NOT_EMPTY = "the group still has members"
    GROUP_NOT_FOUND = "there is no such group"
    GROUP_SUBSCRIBED = "the group is subscribed to the topic"
    FENCED_MEMBER_EPOCH = "the member has another epoch: it must give up its partitions and rejoin"
    STALE_MEMBER_EPOCH = "the member's epoch has changed"
    UNSUPPORTED_ASSIGNOR = "there is no such server-side assignor"
    UNRELEASED_INSTANCE = "another member has this instance id and has not left"
    INVALID_REGEX = "the regular expression is not valid"
    OFFSET_METADATA_TOO_LARGE = "the metadata beside the offset is too long"
    UNSTABLE_OFFSETS = "a transaction on these offsets is still open"
    # idempotent and transactional producers
    OUT_OF_ORDER_SEQUENCE = "the sequence number is not the next one"
    DUPLICATE_SEQUENCE = "the sequence number is older than any that is remembered"
    UNKNOWN_PRODUCER = "the producer id is unknown"
    INVALID_PRODUCER_EPOCH = "the producer epoch is older than the current one"
    PRODUCER_FENCED = "a newer producer took over the transactional id"
    INVALID_PRODUCER_MAPPING = "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_STATE = "the transaction's state does not allow it"
    NOT_IN_TRANSACTION = "the open transaction does not include it; abort the transaction"
    INVALID_TRANSACTION_TIMEOUT = "the transaction timeout is outside the allowed range"
    CONCURRENT_TRANSACTIONS = "the previous transaction is still being completed"
    # rights
    FORBIDDEN_TOPIC = "the principal has no right to do this to the topic"
    FORBIDDEN_GROUP = "the principal has no right to do this to the group"
    FORBIDDEN_TRANSACTION = "the principal has no right to use the transactional id"
    FORBIDDEN_CLUSTER = "the principal has no right to do this to the cluster"
    # requests
    INVALID_REQUEST = "the request contradicts itself"
    UNSUPPORTED_VERSION = "this version is not supported"
    NOT_SUPPORTED = "this is not supported"
    TIMED_OUT = "it took longer than allowed"
    INTERNAL = "internal error; the log has the trace"


class TreecastError(Exception):
    """A refusal: `fault` states what is wrong, `detail` what to do about it.

    `records` lists the offending records of a refused batch as (index in the batch, reason). It is empty if
    the batch as a whole is at fault.
    """

    def __init__(self, fault: Fault, detail: str = "", records: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(detail or fault.value)
        self.fault = fault
        self.detail = detail or fault.value
        self.records = records

    def __repr__(self) -> str:
        return f"TreecastError({self.fault.name}, {self.detail!r})"
