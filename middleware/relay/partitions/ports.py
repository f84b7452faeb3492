"""What partitions need of their surroundings, as small Protocols, and the numbers of their calls."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from treecast.middleware.api.entries import LostRange, PartitionEnd, PartitionEntry
from treecast.middleware.api.v1 import peer_partitions_pb2 as pb
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId

from .lost_disk import Recorded


class PartitionMethod(enum.IntEnum):
    """Numbers of calls; their messages are those of `peer_partitions.proto`."""

    FOLLOW = 40
    UNFOLLOW = 41
    PRODUCE = 42
    FETCH = 43
    WATCH = 44
    OFFSET = 45
    EPOCH_END = 46
    DELETE = 47
    MARKER = 48
    LOG_START = 49
    HOLDS = 50
    COPY = 51
    PROMOTE = 52
    REBUILD = 53


class Claim(Struct, frozen=True):
    """To lead a partition with this epoch. `known_epoch`: the coordinator's, as it is known here.

    `promoted`: by an operator. `lost`: what is given up by it.
    """

    topic_id: TopicId
    partition: int
    known_epoch: int
    leader_epoch: int
    promoted: bool = False
    lost: LostRange | None = None


class Topics(Protocol):
    """The definitions, as far as they are looked at here."""

    def topics(self) -> Mapping[str, Topic]: ...

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """UNKNOWN_TOPIC_ID where there is none."""


class Leaders(Protocol):
    """Who leads: `view.ClusterView`."""

    def leader(self, topic: str, index: int) -> PartitionEntry | None: ...


class Record(Protocol):
    """What the coordinator knows of logs, and who may lead them. All raise COORDINATOR_UNAVAILABLE."""

    async def put_ends(self, ends: Sequence[PartitionEnd]) -> None:
        """Where logs end that this host leads."""

    async def ends_of(self, topic_id: TopicId) -> Mapping[int, Recorded]:
        """Where logs of a topic ended when their leaders told it last, by number; without those of which
        nothing was told."""

    async def give_up(self, topic_id: TopicId, partitions: Sequence[int]) -> None:
        """This host leads them, and has lost records of them: they wait for it. Returns when it has heard."""

    async def take_lead(self, claim: Claim) -> None:
        """This host leads a partition from now on; returns when it has heard of that itself.

        FENCED_LEADER_EPOCH where another change was quicker; NOT_LEADER, POLICY_VIOLATION where it may not.
        """


def topic_of(topics: Topics, ref: pb.PartitionRef) -> Topic:
    """The topic that a peer names. INVALID_REQUEST, UNKNOWN_TOPIC_ID."""
    if len(ref.topic_id) != 16:
        raise TreecastError(Fault.INVALID_REQUEST, f"a topic id has 16 bytes, not {len(ref.topic_id)}")
    return topics.topic_by_id(uuid.UUID(bytes=ref.topic_id))
