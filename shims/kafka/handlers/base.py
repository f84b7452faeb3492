"""What all handlers share: their context, their shape, and a few rows that many answers contain.

A handler answers one request with the fields of its response, or raises: a `TreecastError` refuses the
request as a whole, and `refuse` says that in the API's own shape. Errors of single topics, partitions or
groups are the handler's own to report. A handler that never waits is a plain function.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, TypeVar

from treecast.middleware.broker import BrokerSettings, Cluster
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

from ..errors import code_for
from ..internal import visible_topic
from ..settings import KafkaSettings

T = TypeVar("T")

Fields = Mapping[str, Any]
Message = SimpleNamespace  # a decoded request, or a struct in it

# The operations that a client may do; without an authorizer, all that the resource knows (KIP-430).
# Bits: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9,
# DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_ASKED = -(2**31)

_FEW_PLACES = 6  # so many look-ups are faster than a look at all topics


@dataclass(slots=True)
class Context:
    """Who asks, and what. `address` is where this client finds the daemon again."""

    cluster: Cluster
    broker: BrokerSettings
    settings: KafkaSettings
    key: int
    version: int
    client_id: str | None
    client_host: str
    address: tuple[str, int]

    @property
    def node_id(self) -> int:
        return self.cluster.host.host_id

    def code(self, error: TreecastError) -> int:
        return code_for(error, self.key, self.version)


@dataclass(frozen=True, slots=True)
class Handler:
    """`refuse(request, code, detail)` gives the fields of an answer that refuses all of `request`."""

    run: Callable[[Context, Message], Fields | Awaitable[Fields]]
    refuse: Callable[[Message, int, str], Fields]


def refuse_at_top(request: Message, code: int, detail: str) -> Fields:
    """For responses whose one error code is at the top."""
    return {"error_code": code}


def refuse_with_message(request: Message, code: int, detail: str) -> Fields:
    return {"error_code": code, "error_message": detail}


def settled(value: T | Future[T]) -> Awaitable[T]:
    """Awaits what may be there already; no trip through the loop where it is."""
    return value if isinstance(value, Future) else _Ready(value)


class _Ready(Awaitable[T]):
    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Any:
        return self._value
        yield  # makes this a generator


def known_partition(cluster: Cluster, partition: TopicPartition) -> bool:
    topic = visible_topic(cluster, partition.topic)
    return topic is not None and 0 <= partition.partition < topic.partitions


def check_collision(cluster: Cluster, name: str) -> None:
    """INVALID_TOPIC where a topic has the same name but for `.` and `_`, as Kafka has it.

    Kafka's metrics write both as `_`. Ours do not, and to other faces `.` parts levels: an operator can make
    such a topic by `treecast topics create`.
    """
    known = cluster.definitions.topics()
    if name in known:
        return  # which is another refusal
    places = [place for place, letter in enumerate(name) if letter in "._"]
    if len(places) <= _FEW_PLACES:
        spellings: Iterable[str] = _spellings(name, places)
    else:
        flat = flattened(name)
        spellings = (other for other in known if flattened(other) == flat)
    for other in spellings:
        if other in known:
            raise colliding(name, other)


def flattened(name: str) -> str:
    """As Kafka's metrics write it: the same for names that differ by `.` and `_` alone."""
    return name.replace(".", "_")


def colliding(name: str, other: str) -> TreecastError:
    return TreecastError(
        Fault.INVALID_TOPIC,
        f"topic {name} collides with topic {other}, from which it differs by . and _ alone;"
        " `treecast topics create` makes it all the same",
    )


def _spellings(name: str, places: Sequence[int]) -> Iterator[str]:
    """All names that differ from `name` by `.` and `_` alone, and itself."""
    for letters in product("._", repeat=len(places)):
        spelt = list(name)
        for place, letter in zip(places, letters, strict=True):
            spelt[place] = letter
        yield "".join(spelt)


def unknown_partition(partition: TopicPartition) -> TreecastError:
    return TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {partition}")


def by_topic(partitions: Iterable[tuple[TopicPartition, Fields]]) -> list[tuple[str, list[Fields]]]:
    """Rows of partitions, put together per topic in the order of their first appearance."""
    topics: dict[str, list[Fields]] = {}
    for partition, row in partitions:
        topics.setdefault(partition.topic, []).append(row)
    return list(topics.items())
