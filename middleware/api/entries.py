"""The coordinator's entries about a cluster, and their form in messages.

Each entry is an immutable value with a kind and a text key, and a message of
`proto/treecast/v1/coordinator.proto`, the same on the wire and on disk.

| kind       | key                                                                       | entry             |
| ---------- | ------------------------------------------------------------------------- | ----------------- |
| HOST       | the host's name                                                           | `HostEntry`       |
| TOPIC      | the topic's name, Kafka's spelling                                        | `TopicEntry`      |
| HOME       | `g:` group id, `t:` transactional id, `r:` replica controller, `s:` share | `HomeEntry`       |
| STATE      | the state id, decimal                                                     | `StateEntry`      |
| INTEREST   | the host id, decimal                                                      | `InterestEntry`   |
| COUNTER    | the counter's name                                                        | `CounterEntry`    |
| DEFINITION | chosen by the hosts (`broker.queues.shared`)                              | `DefinitionEntry` |
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from google.protobuf.message import DecodeError
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.runs import RunMark

from .messages import form
from .v1 import coordinator_pb2 as pb


class Kind(enum.IntEnum):
    """The kind of an entry, with the numbers of the proto file and the disk."""

    HOST = 1
    TOPIC = 2
    HOME = 3
    STATE = 4
    INTEREST = 5
    COUNTER = 6
    DEFINITION = 7


class Presence(enum.IntEnum):
    """The presence of a host. ABSENT is a name that was never seen, and is not stored."""

    ABSENT = 0
    ATTACHED = 1
    AWAY = 2  # its lease expired
    DETACHED = 3  # it left in an orderly way


class HomeKind(enum.IntEnum):
    GROUP = 1
    TRANSACTION = 2
    REPLICAS = 3  # STARE's replica controller
    SHARE = 4  # MQTT's shared subscriptions


_PREFIXES: Final = {
    HomeKind.GROUP: "g:",
    HomeKind.TRANSACTION: "t:",
    HomeKind.REPLICAS: "r:",
    HomeKind.SHARE: "s:",
}


class Counter(enum.Enum):
    """Numbers that only increase, except STATE_ID, which wraps after the last id."""

    HOST_ID = "host-id"  # the last one given
    PRODUCER_ID = "producer-id"  # the next one to give
    STATE_ID = "state-id"  # the next one to try
    HOME_EPOCH = "home-epoch"  # the highest epoch of all forgotten homes; new ones begin above


class HostEntry(Struct, frozen=True):
    """A host. `instance` identifies its data directory; `incarnation` rises with every attach and fences
    older ones.

    `run` is the highest known run number under this name, over all its directories. `leads_nothing`: it has
    no broker, and gets no partitions to lead. `zone`: a label of hosts near each other, with outer labels
    before inner ones, separated by "/". `run_id`: drawn by the run that attached last; empty from an earlier
    version. `lost_run`: the last run that began on a new directory, or on an older state of it; 0: none.
    `mtu`: of its fabric's interface; 0: unknown.
    """

    host_id: int
    name: str
    instance: str
    address: str
    version: str
    incarnation: int
    presence: Presence
    run: int = 0
    leads_nothing: bool = False
    zone: str = ""
    run_id: str = ""
    lost_run: int = 0
    mtu: int = 0


class LostRange(Struct, frozen=True):
    """Lost records of a partition: all from `first` on that only its leader `host` had.

    `heard`: records before this offset were heard of. The log continues at `first` with `leader_epoch`.
    `time_ms` is of the host that leads since then. `unknown`: nobody knows where the log ended. `accepted`:
    an operator knows of it.
    """

    first: int
    heard: int
    leader_epoch: int
    host: int
    time_ms: int
    unknown: bool = False
    accepted: bool = False

    @property
    def is_loss(self) -> bool:
        """Whether records are missing or may be. Else the log went on where everybody knew it to end, and
        only records of the disk's very last moment, of which nobody heard, may have been on it.
        """
        return self.unknown or self.heard > self.first

    @property
    def is_open(self) -> bool:
        """Whether an operator has yet to look at it."""
        return self.is_loss and not self.accepted


class PartitionEntry(Struct, frozen=True):
    """A partition. `waits`: its leader came back with another data directory, and does not lead it yet."""

    leader: int  # host id
    leader_epoch: int
    waits: bool = False
    lost: tuple[LostRange, ...] = ()  # oldest first


class TopicEntry(Struct, frozen=True):
    name: str
    topic_id: TopicId
    partitions: tuple[PartitionEntry, ...]
    config: Mapping[str, str]  # overrides


class HomeEntry(Struct, frozen=True):
    """Which host owns a group id or a transactional id. Writers of lower epochs are refused."""

    kind: HomeKind
    id: str
    host_id: int
    epoch: int

    @property
    def key(self) -> str:
        return home_key(self.kind, self.id)


class StateEntry(Struct, frozen=True):
    """A state id (22 bits) and the topic, as levels, that it stands for."""

    state_id: int
    levels: tuple[str, ...]
    holders: tuple[int, ...]  # host ids, ascending


class InterestEntry(Struct, frozen=True):
    host_id: int
    incarnation: int
    version: int
    patterns: tuple[str, ...]


class CounterEntry(Struct, frozen=True):
    name: Counter
    value: int


class DefinitionEntry(Struct, frozen=True):
    """A definition of AMQP, opaque here. `host_id`: the host that set it, which is the home of a queue."""

    key: str
    host_id: int
    value: bytes


_BINDING: Final = "5:"
_END_RANKS: Final = {"exchange": "3:", "queue": "4:"}
_BUILT_IN: Final = "amq."  # exchanges that every virtual host has, without a definition


def binding_ends(key: str) -> tuple[str, ...]:
    """Returns the keys of the exchanges and the queue that a binding cannot be without; () for the key of
    another definition. `broker.queues.shared` has the layout of keys."""
    parts = key.removeprefix(_BINDING).split("/")
    if not key.startswith(_BINDING) or len(parts) < 4 or parts[2] not in _END_RANKS:
        return ()
    vhost, source, kind, name = parts[:4]
    ends = [] if source.startswith(_BUILT_IN) else [f"{_END_RANKS['exchange']}{vhost}/{source}"]
    if kind == "queue" or not name.startswith(_BUILT_IN):
        ends.append(f"{_END_RANKS[kind]}{vhost}/{name}")
    return tuple(dict.fromkeys(ends))  # an exchange may be bound to itself


Entry = HostEntry | TopicEntry | HomeEntry | StateEntry | InterestEntry | CounterEntry | DefinitionEntry


class Change(Struct, frozen=True):
    """Sets what is under `key`, or removes it where `entry` is None."""

    kind: Kind
    key: str
    entry: Entry | None


class Position(Struct, frozen=True):
    """How far the coordinator's history is known, and in which epoch it was told. The empty one: nothing
    is.
    """

    history: str = ""
    revision: int = 0
    epoch: int = 0


START: Final = Position()


class Update(Struct, frozen=True):
    """With `snapshot`, `changes` are everything, in place of what was known. `position` comes with it."""

    snapshot: bool
    position: Position
    changes: tuple[Change, ...]


class PartitionEnd(Struct, frozen=True):
    """The end of a log that its host leads, and the leader epoch of its last record.

    `quiet`: nothing had been written for a while, or the host left in order. Else its disk may have had more.
    """

    topic_id: TopicId
    partition: int
    leader_epoch: int
    end: int
    quiet: bool = False


def home_key(kind: HomeKind, id: str) -> str:
    return _PREFIXES[kind] + id


def put(entry: Entry) -> Change:
    """Returns the change that sets `entry` under its kind and key."""
    match entry:
        case HostEntry():
            return Change(Kind.HOST, entry.name, entry)
        case TopicEntry():
            return Change(Kind.TOPIC, entry.name, entry)
        case HomeEntry():
            return Change(Kind.HOME, entry.key, entry)
        case StateEntry():
            return Change(Kind.STATE, str(entry.state_id), entry)
        case InterestEntry():
            return Change(Kind.INTEREST, str(entry.host_id), entry)
        case CounterEntry():
            return Change(Kind.COUNTER, entry.name.value, entry)
        case DefinitionEntry():
            return Change(Kind.DEFINITION, entry.key, entry)


# --- as messages

HOST: Final = form(HostEntry, pb.HostEntry)
TOPIC: Final = form(TopicEntry, pb.TopicEntry)
HOME: Final = form(HomeEntry, pb.HomeEntry)
STATE: Final = form(StateEntry, pb.StateEntry)
INTEREST: Final = form(InterestEntry, pb.InterestEntry)
COUNTER: Final = form(CounterEntry, pb.CounterEntry)
DEFINITION: Final = form(DefinitionEntry, pb.DefinitionEntry)
LOST: Final = form(LostRange, pb.LostRange)
END: Final = form(PartitionEnd, pb.PartitionEnd)
RUN: Final = form(RunMark, pb.RunMark)


def change_message(change: Change) -> pb.EntryChange:
    message = pb.EntryChange(kind=pb.EntryKind.Name(change.kind), key=change.key)
    match change.entry:
        case HostEntry() as host:
            message.host.CopyFrom(HOST.write(host))
        case TopicEntry() as topic:
            message.topic.CopyFrom(TOPIC.write(topic))
        case HomeEntry() as home:
            message.home.CopyFrom(HOME.write(home))
        case StateEntry() as state:
            message.state.CopyFrom(STATE.write(state))
        case InterestEntry() as interest:
            message.interest.CopyFrom(INTEREST.write(interest))
        case CounterEntry() as counter:
            message.counter.CopyFrom(COUNTER.write(counter))
        case DefinitionEntry() as definition:
            message.definition.CopyFrom(DEFINITION.write(definition))
    return message


def read_change(message: pb.EntryChange) -> Change:
    """Returns the change. Raises ValueError for an unknown number or name."""
    return Change(Kind(message.kind), message.key, _read_entry(message))


def _read_entry(message: pb.EntryChange) -> Entry | None:
    match message.WhichOneof("value"):
        case "host":
            if not message.host.presence:
                raise ValueError("a host that was never seen")
            return HOST.read(message.host)
        case "topic":
            return TOPIC.read(message.topic)
        case "home":
            return HOME.read(message.home)
        case "state":
            return STATE.read(message.state)
        case "interest":
            return INTEREST.read(message.interest)
        case "counter":
            return COUNTER.read(message.counter)
        case "definition":
            return DEFINITION.read(message.definition)
    return None


def encode_change(change: Change) -> bytes:
    """Returns the change in the form of the coordinator's store."""
    return change_message(change).SerializeToString(deterministic=True)


def decode_change(data: bytes) -> Change:
    """Returns the change. Raises STORAGE for invalid bytes."""
    try:
        return read_change(pb.EntryChange.FromString(data))
    except (DecodeError, ValueError) as error:
        raise TreecastError(
            Fault.STORAGE, f"the coordinator's store holds a broken entry: {error}"
        ) from error


def heard_change(message: pb.EntryChange) -> Change:
    """Returns a change that a host received. Raises INTERNAL if it is invalid."""
    try:
        return read_change(message)
    except ValueError as error:
        raise TreecastError(
            Fault.INTERNAL, f"the coordinator sent an invalid entry {message.key[:100]!r}: {error}"
        ) from error
