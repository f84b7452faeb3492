"""The coordinator's knowledge as immutable entries, each with a kind and a text key.

| kind       | key                                        | entry             |
| ---------- | ------------------------------------------ | ----------------- |
| HOST       | the host's name                            | `HostEntry`       |
| TOPIC      | the topic's name, Kafka's spelling         | `TopicEntry`      |
| HOME       | `g:` group id, `t:` transactional id, `r:` | `HomeEntry`       |
| STATE      | the state id, decimal                      | `StateEntry`      |
| INTEREST   | the host id, decimal                       | `InterestEntry`   |
| COUNTER    | the counter's name                         | `CounterEntry`    |
| DEFINITION | chosen by the hosts                        | `DefinitionEntry` |
"""

from __future__ import annotations

from msgspec import Struct, field

from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.runs import RunMark, read_runs, write_runs

HOST_ID_MAX = 2**31 - 1  # Kafka's node ids are signed 32-bit numbers
PRODUCER_ID_MAX = 2**63 - 1
FIRST_STATE_ID = 256  # STARE: 0-255 are never allotted
LAST_STATE_ID = 2**22 - 1  # 22 bits


class ItemWrite(Struct, frozen=True):
    """Sets an item of a home, or removes it if `value` is None; `key` None removes all items of the home."""

    home: str
    key: bytes | None
    value: bytes | None


class Event(Struct, frozen=True):
    """An event. `number` and `time_ms` are set when it is stored."""

    kind: str
    host: str
    face: str = ""
    who: str = ""
    what: str = ""
    number: int = 0
    time_ms: int = 0


EVENTS = "events"  # where they are, among the items of homes, whose keys all have a colon


def event_key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def event_number(key: bytes) -> int:
    return int.from_bytes(key, "big")


STAMPS = "stamps"  # where the last stamps of hosts are, by host id


def stamp_write(host_id: int, run_id: str, stamp: int) -> ItemWrite:
    """Returns the write of how far a host's run came."""
    return ItemWrite(STAMPS, stamp_key(host_id), write_runs([RunMark(run_id, stamp)]))


def stamp_key(host_id: int) -> bytes:
    return host_id.to_bytes(4, "big")


def read_stamp(value: bytes) -> RunMark | None:
    return next(iter(read_runs(value)), None)


def ends_home(topic_id: TopicId) -> str:
    """Returns the key of a topic's recorded partition ends, beside homes' items."""
    return "e:" + topic_id.hex


class Limits(Struct, frozen=True):
    """Limits of stored data, so that no caller can fill memory. Sizes in bytes of UTF-8."""

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
    lost: int = 100  # losses recorded separately, per partition
    producer_block: int = 100_000
    definitions: int = 1_000_000
    definition_writes: int = 10_000  # in one PutDefinitions
    definition_value: int = 65_536
    events: int = 2_000  # in one PutEvents


class StateSettings(Struct, frozen=True):
    """Settings; times in seconds.

    `longest_step`: the most time that one look at the clock may add. The clock is read far more often; a
    longer step means that it jumped or that the coordinator itself was stopped, which no host is to blame
    for. `hearing`: how long hosts that were attached are waited for after a start, before anything is given
    out.
    """

    lease: float = 10.0
    hearing: float = 8.0
    takeover: float = 30.0  # a home that has been away for longer goes to the next host that asks
    longest_step: float = 5.0
    producer_block: int = 1000
    limits: Limits = field(default_factory=Limits)
