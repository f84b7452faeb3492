"""The base of all handlers: their context, their signature, and helpers for common parts of answers.

A handler returns the fields of its response, or raises. A `TreecastError` refuses the request as a whole, and
`refuse` builds the answer in the API's own shape. The handler itself reports errors of single topics,
partitions or groups. A handler that never waits is a plain function.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

from treecast.middleware.broker import BrokerSettings, Cluster, rest
from treecast.middleware.broker.access import CLUSTER, Operation, ResourceKind
from treecast.middleware.model.budget import WorkBudget
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.principal import Principal
from treecast.shims.log_ins import LogIns

from ..errors import code_for
from ..internal import visible_topic
from ..log_in import LogIn
from ..messages import Row
from ..rights import operations
from ..settings import KafkaSettings

T = TypeVar("T")

Fields = Mapping[str, Any]
Message = Row  # a decoded request, or a struct in it

MOST_ROWS = 1000  # of a request that changes or describes users, quotas or rules: the loop stands meanwhile
TOO_MANY_ROWS = f"at most {MOST_ROWS} in one request: ask again for the others"
OPERATIONS_NOT_ASKED = -(2**31)

AT_MOST = 100  # topics that one Metadata request creates
BURST = 1_000
RATE = 50  # per second
_AT_ONCE = 16  # items of a request that are served before the work budget is asked
_FEW_PLACES = 6  # up to 2**6 look-ups are faster than a scan of all topics


class AutoCreations:
    """How many topics Metadata requests may create, over all clients: `BURST` at once, then `RATE` a second.

    Clients repeat a request for a topic that is not there yet, so the rest is created a little later.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()

    def take(self, wanted: int) -> int:
        """Returns how many of `wanted` topics may be created now."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * RATE, float(BURST))
        self._at = now
        granted = min(wanted, AT_MOST, int(self._left))
        self._left -= granted
        return granted


@dataclass(slots=True)
class Context:
    """The context of one request. `address` is the (host, port) at which this client reaches the daemon."""

    cluster: Cluster
    broker: BrokerSettings
    settings: KafkaSettings
    key: int
    version: int
    client_id: str | None
    client_host: str
    address: tuple[str, int]
    work: WorkBudget
    creations: AutoCreations
    log_in: LogIn
    log_ins: LogIns

    @property
    def node_id(self) -> int:
        return self.cluster.host.host_id

    def code(self, error: TreecastError) -> int:
        return code_for(error, self.key, self.version)

    @property
    def principal(self) -> Principal:
        return self.log_in.granted.principal

    def may(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> bool:
        return self.log_in.granted.may(operation, kind, name)

    def check(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER) -> None:
        """Raises FORBIDDEN_TOPIC, or the like for other kinds, if the client lacks the right."""
        self.log_in.granted.check(operation, kind, name)

    @property
    def may_write_idempotently(self) -> bool:
        """Whether the client may have a producer id: it may write to some topic (KIP-679)."""
        if self.log_in.granted.would(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER):
            return True
        return self.log_in.granted.may_any(Operation.WRITE, ResourceKind.TOPIC)

    def refusal(self, operation: Operation, kind: ResourceKind, name: str) -> TreecastError:
        return self.log_in.granted.refusal(operation, kind, name)

    def operations(self, asked: bool, kind: ResourceKind, name: str = CLUSTER) -> int:
        """Returns what the client may do to a resource, if it has asked for that (KIP-430)."""
        return operations(self.log_in.granted, kind, name) if asked else OPERATIONS_NOT_ASKED


@dataclass(frozen=True, slots=True)
class Handler:
    """One API's handler. `refuse(request, code, detail)` returns the fields that refuse all of `request`."""

    run: Callable[[Context, Message], Fields | Awaitable[Fields]]
    refuse: Callable[[Message, int, str], Fields]


def refuse_at_top(request: Message, code: int, detail: str) -> Fields:
    """As `Handler.refuse`, for responses whose only error code is at the top."""
    return {"error_code": code}


def refuse_with_message(request: Message, code: int, detail: str) -> Fields:
    return {"error_code": code, "error_message": detail}


async def paced(ctx: Context, items: Iterable[T]) -> AsyncIterator[T]:
    """Yields the items of a request, and rests between them when the work budget is spent."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _AT_ONCE == 0:
            await rest(ctx.work)


def rows_of(fields: Fields) -> int:
    """Returns about how many rows an answer has: elements of its lists, and of lists in these."""
    rows = 0
    for value in fields.values():
        if isinstance(value, list):
            rows += len(value)
            for row in value:
                if isinstance(row, dict):
                    rows += sum([len(inner) for inner in row.values() if isinstance(inner, list)])
    return rows


def settled(value: T | Future[T]) -> Awaitable[T]:
    """Returns an awaitable for `value`. Awaiting a plain value does not go through the loop."""
    return value if isinstance(value, Future) else _Ready(value)


class _Ready(Awaitable[T]):
    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Any:
        return self._value
        yield  # makes this a generator


def check_create(ctx: Context, name: str) -> None:
    """Raises FORBIDDEN_TOPIC if the client may create neither this topic nor any topic."""
    if not ctx.log_in.granted.would(Operation.CREATE, ResourceKind.CLUSTER):
        ctx.check(Operation.CREATE, ResourceKind.TOPIC, name)
    else:
        ctx.check(Operation.CREATE, ResourceKind.CLUSTER)  # which the audit notes


def known_partition(cluster: Cluster, partition: TopicPartition) -> bool:
    topic = visible_topic(cluster, partition.topic)
    return topic is not None and 0 <= partition.partition < topic.partitions


def check_collision(cluster: Cluster, name: str) -> None:
    """Raises INVALID_TOPIC if another topic's name differs from `name` only in `.` and `_`, as in Kafka.

    Kafka's metrics write both as `_`. Treecast's metrics do not, and other faces use `.` to separate levels,
    so an operator can create such a topic with `treecast topics create`.
    """
    known = cluster.definitions.topics()
    if name in known:
        return  # an existing topic is refused elsewhere
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
    """Returns `name` as Kafka's metrics write it, the same for names that differ only in `.` and `_`."""
    return name.replace(".", "_")


def colliding(name: str, other: str) -> TreecastError:
    return TreecastError(
        Fault.INVALID_TOPIC,
        f"topic {name} collides with topic {other}, from which it differs by . and _ alone;"
        " `treecast topics create` makes it all the same",
    )


def _spellings(name: str, places: Sequence[int]) -> Iterator[str]:
    """Yields `name` and all names that differ from it only in `.` and `_`."""
    for letters in product("._", repeat=len(places)):
        spelt = list(name)
        for place, letter in zip(places, letters, strict=True):
            spelt[place] = letter
        yield "".join(spelt)


def unknown_partition(partition: TopicPartition) -> TreecastError:
    return TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {partition}")


def by_topic(partitions: Iterable[tuple[TopicPartition, Fields]]) -> list[tuple[str, list[Fields]]]:
    """Groups rows of partitions by topic, in the order of the topics' first appearance."""
    topics: dict[str, list[Fields]] = {}
    for partition, row in partitions:
        topics.setdefault(partition.topic, []).append(row)
    return list(topics.items())
