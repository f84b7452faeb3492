"""What can be asked of the coordinator. Each command is answered with the type beside it in `state`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from treecast.middleware.api.entries import HomeKind, LostRange, PartitionEnd
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicId


class Session(Struct, frozen=True):
    """A host as it calls: the incarnation says which of its lives it is in."""

    host_id: int
    incarnation: int


class Attach(Struct, frozen=True):
    name: str
    instance: str
    address: str
    version: str
    run: int = 0  # of this directory; 0 if it is not told
    clock_run: int = 0  # a number by the host's clock
    leads_nothing: bool = False  # it has no broker


class Renew(Struct, frozen=True):
    session: Session


class Detach(Struct, frozen=True):
    session: Session


class Expire(Struct, frozen=True):
    """The coordinator's own: this host's lease has run out."""

    name: str


class CreateTopic(Struct, frozen=True):
    """`topic_id` is drawn by the caller. `pinned`: host names; none, one for all, or one per partition.

    `brought`: the topic is one that a host had while it was alone. Where it is here already, with the same
    id, that is the answer.
    """

    name: str
    topic_id: TopicId
    partitions: int
    config: Mapping[str, str] = {}
    pinned: tuple[str, ...] = ()
    brought: bool = False


class DeleteTopic(Struct, frozen=True):
    name: str


class AlterTopic(Struct, frozen=True):
    name: str
    set: Mapping[str, str]
    unset: tuple[str, ...] = ()


class CreatePartitions(Struct, frozen=True):
    """`total`: how many there are then. `pinned`: of the new ones, as in CreateTopic."""

    name: str
    total: int
    pinned: tuple[str, ...] = ()


class TakeLead(Struct, frozen=True):
    """The caller leads a partition from now on, which waited for it, or which an operator moves to it.

    `known_epoch`: the coordinator's, as the caller knows it. `lost`: what is given up by it.
    """

    session: Session
    topic_id: TopicId
    partition: int
    known_epoch: int
    leader_epoch: int
    promoted: bool = False
    lost: LostRange | None = None


class GiveUp(Struct, frozen=True):
    """The caller leads these partitions, and has lost records of them."""

    session: Session
    topic_id: TopicId
    partitions: tuple[int, ...]


class PutEnds(Struct, frozen=True):
    """For the record: what a lost disk had."""

    session: Session
    ends: tuple[PartitionEnd, ...]


class AskHome(Struct, frozen=True):
    session: Session
    kind: HomeKind
    id: str


class CheckHome(Struct, frozen=True):
    """Whether the caller is this home at this epoch. Raises NOT_COORDINATOR if it isn't."""

    session: Session
    kind: HomeKind
    id: str
    epoch: int


class HomeWrite(Struct, frozen=True):
    """Items of one home, None removes; `forget` removes the home and all that it wrote."""

    kind: HomeKind
    id: str
    epoch: int
    items: tuple[tuple[bytes, bytes | None], ...] = ()
    forget: bool = False


class PutHomeState(Struct, frozen=True):
    session: Session
    writes: tuple[HomeWrite, ...]


class TakeProducerIds(Struct, frozen=True):
    """`count` 0: as many as the settings say. `at_least`: no id below is given, now or later."""

    session: Session
    count: int = 0
    at_least: int = 0


class AllotState(Struct, frozen=True):
    session: Session
    levels: tuple[str, ...]


class ReleaseState(Struct, frozen=True):
    session: Session
    state_id: int
    force: bool = False


class PutInterest(Struct, frozen=True):
    session: Session
    version: int
    patterns: tuple[str, ...]


Command = (
    Attach
    | Renew
    | Detach
    | Expire
    | CreateTopic
    | DeleteTopic
    | AlterTopic
    | CreatePartitions
    | TakeLead
    | GiveUp
    | PutEnds
    | AskHome
    | CheckHome
    | PutHomeState
    | TakeProducerIds
    | AllotState
    | ReleaseState
    | PutInterest
)


# --- answers that are no entry


class HomeRefusals(Struct, frozen=True):
    """The writes that were refused, by their place in the command."""

    refused: Mapping[int, TreecastError]


class ProducerBlock(Struct, frozen=True):
    """Producer ids from `first` on, `count` of them, never given to anybody else."""

    first: int
    count: int


class Done(Struct, frozen=True):
    """Nothing more to say."""
