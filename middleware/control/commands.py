"""What can be asked of the coordinator. Each command is answered with the type beside it in `state`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicId

from .values import HomeKind


@dataclass(frozen=True, slots=True)
class Session:
    """A host as it calls: the incarnation says which of its lives it is in."""

    host_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Attach:
    name: str
    instance: str
    address: str
    version: str


@dataclass(frozen=True, slots=True)
class Renew:
    session: Session


@dataclass(frozen=True, slots=True)
class Detach:
    session: Session


@dataclass(frozen=True, slots=True)
class Expire:
    """The coordinator's own: this host's lease has run out."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """`topic_id` is drawn by the caller. `pinned`: host names; none, one for all, or one per partition.

    `brought`: the topic is one that a host had while it was alone. Where it is here already, with the same
    id, that is the answer.
    """

    name: str
    topic_id: TopicId
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    pinned: tuple[str, ...] = ()
    brought: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    name: str


@dataclass(frozen=True, slots=True)
class AlterTopic:
    name: str
    set: Mapping[str, str]
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """`total`: how many there are then. `pinned`: of the new ones, as in CreateTopic."""

    name: str
    total: int
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskHome:
    session: Session
    kind: HomeKind
    id: str


@dataclass(frozen=True, slots=True)
class CheckHome:
    """Whether the caller is this home at this epoch; NOT_COORDINATOR where it isn't."""

    session: Session
    kind: HomeKind
    id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class HomeWrite:
    """Items of one home, None removes; `forget` removes the home and all that it wrote."""

    kind: HomeKind
    id: str
    epoch: int
    items: tuple[tuple[bytes, bytes | None], ...] = ()
    forget: bool = False


@dataclass(frozen=True, slots=True)
class PutHomeState:
    session: Session
    writes: tuple[HomeWrite, ...]


@dataclass(frozen=True, slots=True)
class TakeProducerIds:
    """`count` 0: as many as the settings say. `at_least`: no id below is given, now or later."""

    session: Session
    count: int = 0
    at_least: int = 0


@dataclass(frozen=True, slots=True)
class AllotState:
    session: Session
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseState:
    session: Session
    state_id: int
    force: bool = False


@dataclass(frozen=True, slots=True)
class PutInterest:
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
    | AskHome
    | CheckHome
    | PutHomeState
    | TakeProducerIds
    | AllotState
    | ReleaseState
    | PutInterest
)


# --- answers that are no entry


@dataclass(frozen=True, slots=True)
class HomeRefusals:
    """The writes that were refused, by their place in the command."""

    refused: Mapping[int, TreecastError]


@dataclass(frozen=True, slots=True)
class ProducerBlock:
    """Producer ids from `first` on, `count` of them, never given to anybody else."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to say."""
