"""The coordinator's commands. `state` defines the type of each answer."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from treecast.middleware.api.entries import Change, HomeKind, Kind, LostRange, PartitionEnd
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.runs import RunMark


class Session(Struct, frozen=True):
    """A calling host. The incarnation identifies its current attach."""

    host_id: int
    incarnation: int


class Attach(Struct, frozen=True):
    name: str
    instance: str
    address: str
    version: str
    run: int = 0  # of this directory; 0 if unknown
    clock_run: int = 0  # a number from the host's clock
    leads_nothing: bool = False  # it has no broker
    zone: str = ""
    runs: tuple[RunMark, ...] = ()  # that the directory knows, its own last; none from an earlier version
    heard: RunMark | None = None  # the last stamp of the host, as stored
    mtu: int = 0  # of its fabric's interface


class Renew(Struct, frozen=True):
    """`stamp`: of the caller's run; 0: as before."""

    session: Session
    stamp: int = 0


class Detach(Struct, frozen=True):
    """`stamp`: the last one of the caller's run; 0: as before."""

    session: Session
    stamp: int = 0


class Expire(Struct, frozen=True):
    """Sent by the coordinator itself: this host's lease has expired."""

    name: str


class CreateTopic(Struct, frozen=True):
    """Creates a topic. The caller draws `topic_id`. `pinned`: host names; none, one for all, or one per
    partition.

    `brought`: a host had the topic while it was alone. If it exists here with the same id, that is the
    answer.
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
    """`total` is the new number of partitions. `pinned` is for the new ones, as in CreateTopic."""

    name: str
    total: int
    pinned: tuple[str, ...] = ()


class TakeLead(Struct, frozen=True):
    """Makes the caller the leader of a partition that waited for it, or that an operator moves to it.

    `known_epoch`: the coordinator's epoch as the caller knows it. `lost`: the records given up by the move.
    """

    session: Session
    topic_id: TopicId
    partition: int
    known_epoch: int
    leader_epoch: int
    promoted: bool = False
    lost: LostRange | None = None


class GiveUp(Struct, frozen=True):
    """Reports that the caller has lost records of partitions that it leads."""

    session: Session
    topic_id: TopicId
    partitions: tuple[int, ...]


class AcceptLosses(Struct, frozen=True):
    """An operator knows of what the partition has lost so far."""

    session: Session
    topic_id: TopicId
    partition: int


class PutEnds(Struct, frozen=True):
    """Records the end offsets, in case the disk is lost."""

    session: Session
    ends: tuple[PartitionEnd, ...]


class AskHome(Struct, frozen=True):
    session: Session
    kind: HomeKind
    id: str


class CheckHome(Struct, frozen=True):
    """Checks that the caller is this home at this epoch. Raises NOT_COORDINATOR if it is not.

    Epoch 0: any attached host may read the home's items, to compare them with its own.
    """

    session: Session
    kind: HomeKind
    id: str
    epoch: int


class HomeWrite(Struct, frozen=True):
    """Items of one home; None removes an item. `forget` removes the home and all its items."""

    kind: HomeKind
    id: str
    epoch: int
    items: tuple[tuple[bytes, bytes | None], ...] = ()
    forget: bool = False


class PutHomeState(Struct, frozen=True):
    session: Session
    writes: tuple[HomeWrite, ...]


class TakeProducerIds(Struct, frozen=True):
    """`count` 0: as configured. `at_least`: no lower id is given, now or later."""

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


class DefinitionWrite(Struct, frozen=True):
    """Sets a definition, or removes it if `value` is None. An existing one with another value stays unless
    `replace`."""

    key: str
    value: bytes | None
    replace: bool = False


class PutDefinitions(Struct, frozen=True):
    session: Session
    writes: tuple[DefinitionWrite, ...]


class ToldEvent(Struct, frozen=True):
    """An application that joined or left a host, as the host tells it. `kind`: `joined` or `left`."""

    kind: str
    face: str
    who: str
    what: str


class PutEvents(Struct, frozen=True):
    """`missed`: events of the host that are not listed."""

    session: Session
    events: tuple[ToldEvent, ...]
    missed: int = 0


class AdoptView(Struct, frozen=True):
    """Adopts the view of host `name` at `revision`: the whole of what it knows of this store's own later
    state.

    `own`: what was changed here since this state was left behind; None if that is not known any more.
    `beside`: the host in whose data directory the store is, which is as old.
    """

    name: str
    revision: int
    changes: tuple[Change, ...]
    own: frozenset[tuple[Kind, str]] | None
    beside: str = ""


class SkipNumbers(Struct, frozen=True):
    """Leaves out numbers that a later state of the store may have given out."""


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
    | AcceptLosses
    | PutEnds
    | AskHome
    | CheckHome
    | PutHomeState
    | TakeProducerIds
    | AllotState
    | ReleaseState
    | PutInterest
    | PutDefinitions
    | PutEvents
    | AdoptView
    | SkipNumbers
)


# --- answers that are no entry


class HomeRefusals(Struct, frozen=True):
    """The refused writes, by their index in the command."""

    refused: Mapping[int, TreecastError]


class ProducerBlock(Struct, frozen=True):
    """The producer ids `first` to `first + count - 1`, never given to anybody else."""

    first: int
    count: int


class Returned(Struct, frozen=True):
    """The outcome of an adoption. `missing`: what could not come back, as sentences."""

    entries: int
    missing: tuple[str, ...]


class Done(Struct, frozen=True):
    """An answer without content."""
