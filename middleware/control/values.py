"""What the coordinator knows, as immutable entries, each under a kind and a text key.

| kind     | key                                       | entry           |
| -------- | ----------------------------------------- | --------------- |
| HOST     | the host's name                           | `HostEntry`     |
| TOPIC    | the topic's name, Kafka's spelling        | `TopicEntry`    |
| HOME     | `g:` group id, `t:` transactional id, `r:` | `HomeEntry`     |
| STATE    | the state id, decimal                     | `StateEntry`    |
| INTEREST | the host id, decimal                      | `InterestEntry` |
| COUNTER  | the counter's name                        | `CounterEntry`  |
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct, field

from treecast.middleware.model.identity import TopicId

HOST_ID_MAX = 2**31 - 1  # Kafka's node ids are signed 32-bit numbers
PRODUCER_ID_MAX = 2**63 - 1
FIRST_STATE_ID = 256  # STARE: 0-255 are never allotted
LAST_STATE_ID = 2**22 - 1  # 22 bits


class Kind(enum.IntEnum):
    """The numbers are those of the proto file and of the disk."""

    HOST = 1
    TOPIC = 2
    HOME = 3
    STATE = 4
    INTEREST = 5
    COUNTER = 6


class Presence(enum.IntEnum):
    """Whether a host is there. ABSENT is a name that was never seen, and is not stored."""

    ABSENT = 0
    ATTACHED = 1
    AWAY = 2  # its lease ran out
    DETACHED = 3  # it left in order


class HomeKind(enum.IntEnum):
    GROUP = 1
    TRANSACTION = 2
    REPLICAS = 3  # STARE's replica controller
    SHARE = 4  # MQTT's shared subscriptions


HOME_PREFIXES = {
    HomeKind.GROUP: "g:",
    HomeKind.TRANSACTION: "t:",
    HomeKind.REPLICAS: "r:",
    HomeKind.SHARE: "s:",
}


class Counter(enum.Enum):
    """Numbers that only rise, but for STATE_ID, which begins again after the last id."""

    HOST_ID = "host-id"  # the last that was given
    PRODUCER_ID = "producer-id"  # the next to give
    STATE_ID = "state-id"  # the next to try
    HOME_EPOCH = "home-epoch"  # the highest epoch of all homes that were forgotten


class HostEntry(Struct, frozen=True):
    """`instance` is of its data directory; `incarnation` rises with every attach and fences older ones.

    `run`: the highest number of a run of this name that was heard of, over all its directories.
    """

    host_id: int
    name: str
    instance: str
    address: str
    version: str
    incarnation: int
    presence: Presence
    run: int = 0


class LostRange(Struct, frozen=True):
    """What is gone of a partition: all from `first` on that `host`, which led it, alone had.

    `heard`: records before it were heard of. The log goes on at `first` with `leader_epoch`. `time_ms`: of
    the host that leads since.
    """

    first: int
    heard: int
    leader_epoch: int
    host: int
    time_ms: int


class PartitionEntry(Struct, frozen=True):
    """`waits`: the leader came back with another data directory, and does not lead it yet."""

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
    counter: Counter
    value: int


Entry = HostEntry | TopicEntry | HomeEntry | StateEntry | InterestEntry | CounterEntry


class Change(Struct, frozen=True):
    """Sets what is under `key`, or removes it where `entry` is None."""

    kind: Kind
    key: str
    entry: Entry | None


class ItemWrite(Struct, frozen=True):
    """Sets an item of a home, or removes it where `value` is None; with `key` None all of the home's."""

    home: str
    key: bytes | None
    value: bytes | None


def ends_home(topic_id: TopicId) -> str:
    """Under which the ends of a topic's partitions are kept, beside what homes wrote."""
    return "e:" + topic_id.hex


def home_key(kind: HomeKind, id: str) -> str:
    return HOME_PREFIXES[kind] + id


def put(entry: Entry) -> Change:
    """The change that sets `entry` under its own kind and key."""
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
            return Change(Kind.COUNTER, entry.counter.value, entry)


class Limits(Struct, frozen=True):
    """Bounds on what is kept, so that no caller can fill memory. Sizes in bytes of UTF-8."""

    hosts: int = 10_000
    topics: int = 100_000
    partitions: int = 200_000
    partitions_per_topic: int = 10_000
    homes: int = 1_000_000
    states: int = 1_000_000  # far below 2^22, so that a released id rests for long before its next use
    patterns: int = 10_000  # per host
    interest_bytes: int = 1 << 20  # per host
    text: int = 4096  # an id, an address
    levels_bytes: int = 65_535
    item_key: int = 4096
    item_value: int = 1 << 20
    writes: int = 2_000  # homes in one PutHomeState
    ends: int = 10_000  # partitions in one PutEnds
    lost: int = 100  # losses that are told apart, per partition
    producer_block: int = 100_000


class StateSettings(Struct, frozen=True):
    """Times in seconds.

    `longest_step`: how much time one look at the clock may pass at most. The clock is looked at far more
    often; a longer step means that it jumped, or that the coordinator itself stood still, and neither is
    a host's fault.
    """

    lease: float = 10.0
    takeover: float = 30.0  # a home away for longer than this is taken over by who asks
    longest_step: float = 5.0
    producer_block: int = 1000
    limits: Limits = field(default_factory=Limits)
