"""What partitions need of their surroundings, as small Protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from treecast.middleware.api.entries import LostRange, PartitionEnd, PartitionEntry
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.identity import TopicId

from .lost_disk import Recorded


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


class PartitionSettings(Struct, frozen=True):
    """What operators may one day set of partitions across hosts. Times in seconds, sizes in bytes."""

    down_grace: float = 1.0  # a leader whose connection broke is waited for so long, then calls are refused
    produce_timeout: float = 30.0
    call_timeout: float = 10.0
    offsets_wait: float = 1.0  # for the leader's word on its end, before a replica says what it has
    stall: float = 2.0  # without progress for so long, though there is more, the leader is asked instead
    follow_again: float = 10.0  # and for so long, the stream is joined anew
    accounts_every: float = 2.0  # what receivers have counted is written down
    ends_every: float = 1.0  # the coordinator is told where logs end that have grown
    rebuild_grace: float = 30.0  # hosts that may have a copy are waited for so long
    rebuild_look: float = 1.0  # and so often is looked again
    rebuild_at_once: int = 4  # partitions that are copied at the same time
    copy_bytes: int = 1 << 20  # of one piece
    retry_first: float = 0.2  # pause after a follow that failed; doubles
    retry_longest: float = 5.0
    idle: float = 600.0  # without a fetch for so long, a partition is not followed any more
    idle_bytes: int = 16 << 30  # of replicas that are not followed; beyond it the one used longest ago goes
