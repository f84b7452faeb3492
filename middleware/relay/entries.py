"""What the coordinator tells of a cluster, as plain values, and how they are read from its messages.

The values mirror the entries of `proto/treecast/v1/coordinator.proto`; nothing else of the coordinator is
known here. A message that makes no sense raises INTERNAL.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping

from msgspec import Struct

from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId


class Kind(enum.IntEnum):
    """The numbers are those of the proto file."""

    HOST = 1
    TOPIC = 2
    HOME = 3
    STATE = 4
    INTEREST = 5
    COUNTER = 6


class Presence(enum.IntEnum):
    ATTACHED = 1
    AWAY = 2  # its lease ran out
    DETACHED = 3  # it left in order


class HomeKind(enum.IntEnum):
    GROUP = 1
    TRANSACTION = 2
    REPLICAS = 3
    SHARE = 4


_PREFIXES = {
    HomeKind.GROUP: "g:",
    HomeKind.TRANSACTION: "t:",
    HomeKind.REPLICAS: "r:",
    HomeKind.SHARE: "s:",
}


class HostEntry(Struct, frozen=True):
    """`address`: HOST:PORT of its fabric. `incarnation` rises with every attach, `run` with every run."""

    host_id: int
    name: str
    instance: str
    address: str
    version: str
    incarnation: int
    presence: Presence
    run: int = 0


class Lost(Struct, frozen=True):
    """What is gone of a partition: all from `first` on that `host` alone had, which led it.

    `heard`: records before it were heard of. The log goes on at `first` with `leader_epoch`.
    """

    first: int
    heard: int
    leader_epoch: int
    host: int
    time_ms: int


class Leader(Struct, frozen=True):
    """Who leads a partition. `epoch`: no log that is led goes on with a lower leader epoch.

    `waits`: that host came back with another data directory, and nobody leads the partition yet.
    """

    host_id: int
    epoch: int
    waits: bool = False
    lost: tuple[Lost, ...] = ()


class TopicEntry(Struct, frozen=True):
    """`leaders`: one per partition. `config`: the overrides."""

    name: str
    topic_id: TopicId
    leaders: tuple[Leader, ...]
    config: Mapping[str, str]


class HomeEntry(Struct, frozen=True):
    """The host that owns a group id or a transactional id. Lower epochs are fenced."""

    kind: HomeKind
    id: str
    host_id: int
    epoch: int


class StateEntry(Struct, frozen=True):
    """A state id and the topic, as levels, that it stands for; `holders` are host ids."""

    state_id: int
    levels: tuple[str, ...]
    holders: tuple[int, ...]


class InterestEntry(Struct, frozen=True):
    """What a host wants, as it told the coordinator for the record."""

    host_id: int
    incarnation: int
    version: int
    patterns: tuple[str, ...]


Entry = HostEntry | TopicEntry | HomeEntry | StateEntry | InterestEntry


class Change(Struct, frozen=True):
    """Sets what is under `key`, or removes it where `entry` is None. Keys are the coordinator's."""

    kind: Kind
    key: str
    entry: Entry | None


def home_key(kind: HomeKind, id: str) -> str:
    return _PREFIXES[kind] + id


def read_change(message: pb.EntryChange) -> Change:
    """Counters are the coordinator's own: they come without an entry."""
    try:
        return Change(Kind(message.kind), message.key, _read(message))
    except ValueError as error:
        raise TreecastError(
            Fault.INTERNAL, f"the coordinator tells of {message.key[:100]!r} what makes no sense: {error}"
        ) from error


def _read(message: pb.EntryChange) -> Entry | None:
    match message.WhichOneof("value"):
        case "host":
            return _host(message.host)
        case "topic":
            return topic_entry(message.topic)
        case "home":
            return home_entry(message.home)
        case "state":
            state = message.state
            return StateEntry(state.state_id, tuple(state.levels), tuple(state.holders))
        case "interest":
            wanted = message.interest
            return InterestEntry(wanted.host_id, wanted.incarnation, wanted.version, tuple(wanted.patterns))
    return None


def _host(host: pb.HostEntry) -> HostEntry:
    return HostEntry(
        host.host_id,
        host.name,
        host.instance,
        host.address,
        host.version,
        host.incarnation,
        Presence(host.presence),
        host.run,
    )


def topic_entry(topic: pb.TopicEntry) -> TopicEntry:
    """Raises ValueError where the topic id is none."""
    leaders = tuple(_leader(partition) for partition in topic.partitions)
    return TopicEntry(topic.name, uuid.UUID(bytes=topic.topic_id), leaders, dict(topic.config))


def _leader(entry: pb.PartitionEntry) -> Leader:
    lost = tuple(
        Lost(lost.first, lost.heard, lost.leader_epoch, lost.host, lost.time_ms) for lost in entry.lost
    )
    return Leader(entry.leader, entry.leader_epoch, entry.waits, lost)


def home_entry(home: pb.HomeEntry) -> HomeEntry:
    """Raises ValueError where the kind is unknown."""
    return HomeEntry(HomeKind(home.kind), home.id, home.host_id, home.epoch)
