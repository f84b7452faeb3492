"""`KafkaCluster`: the brokers of a Kafka cluster, who leads and coordinates what, and connections to them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from treecast.middleware.api.discovery import Address
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.wire.kafka_primitives import CodecError
from treecast.shims.kafka import errors
from treecast.shims.kafka.errors import fault_of
from treecast.shims.kafka.messages import Row
from treecast.shims.kafka.versions import FIND_COORDINATOR, METADATA

from .connection import CALL_SECONDS, ConnectionLost, KafkaConnection
from .log_in import LogIn

GROUP: Final = 0
TRANSACTION: Final = 1

_IDLE: Final = 32  # connections to one broker that wait for a call
_ATTEMPTS: Final = 5  # calls of a coordinator before a client hears of it
_SEEN: Final = 100  # brokers that are remembered
_PAUSE: Final = 0.1  # s, doubles
_MOVED: Final = frozenset(
    {errors.COORDINATOR_NOT_AVAILABLE, errors.NOT_COORDINATOR, errors.COORDINATOR_LOAD_IN_PROGRESS}
)


class PartitionFound(Struct, frozen=True):
    """A partition as the cluster describes it. `leader` -1: none at present."""

    leader: int
    leader_epoch: int


class TopicFound(Struct, frozen=True):
    name: str
    topic_id: TopicId
    internal: bool
    partitions: tuple[PartitionFound, ...]


class Found(Struct, frozen=True):
    """The cluster at one moment. `controller`: a node id, -1 if unknown."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicFound]


class Pool:
    """Connections to one broker. A call takes one that is idle, or a new one: it may wait long at the
    broker."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None, log_in: LogIn | None, client_id: str
    ) -> None:
        self.address = address
        self._tls = tls
        self._log_in = log_in
        self._client_id = client_id
        self._idle: list[KafkaConnection] = []
        self._used: set[KafkaConnection] = set()
        self._lanes: dict[int, KafkaConnection] = {}
        self._opening: dict[int, asyncio.Task[KafkaConnection]] = {}

    async def connect(self) -> KafkaConnection:
        """Returns a connection of the caller's own. Raises ConnectionLost."""
        return await KafkaConnection.connect(self.address, self._tls, self._log_in, self._client_id)

    async def call(
        self, key: int, values: Mapping[str, Any], *, most: int, seconds: float, client_id: str | None = None
    ) -> Row:
        """`client_id`: of the client on whose behalf it is asked. Raises ConnectionLost or CodecError."""
        while self._idle and not self._idle[-1].open:
            self._idle.pop()
        connection = self._idle.pop() if self._idle else await self.connect()
        self._used.add(connection)
        try:
            return await connection.call(key, values, most=most, seconds=seconds, client_id=client_id)
        finally:
            self._used.discard(connection)
            if connection.open and len(self._idle) < _IDLE:
                self._idle.append(connection)
            else:
                connection.abort()

    def lane(self, number: int) -> KafkaConnection | asyncio.Task[KafkaConnection]:
        """Returns a connection that all who name this number share, or the task that opens it."""
        known = self._lanes.get(number)
        if known is not None and known.open:
            return known
        task = self._opening.get(number)
        if task is None:
            task = self._opening[number] = asyncio.create_task(self._open_lane(number))
            task.add_done_callback(lambda _: self._opening.pop(number, None))
        return task

    async def _open_lane(self, number: int) -> KafkaConnection:
        made = self._lanes[number] = await self.connect()
        return made

    def close(self) -> None:
        for task in self._opening.values():
            task.cancel()
        for connection in (*self._idle, *self._used, *self._lanes.values()):
            connection.abort()


class KafkaCluster:
    """In use from the first `refresh` to `close`. Raises TreecastError as a client of a daemon hears it."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        tls: ssl.SSLContext | None,
        log_in: LogIn | None,
        client_id: str,
    ) -> None:
        self.found = Found("", -1, {}, {})
        self._bootstrap = bootstrap
        self._tls = tls
        self._log_in = log_in
        self._client_id = client_id
        self._pools: dict[Address, Pool] = {}
        self._seen: dict[Address, None] = {}  # brokers of all answers, the latest last
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: asyncio.Task[Found] | None = None

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    # --- brokers, topics and leaders

    async def refresh(self) -> Found:
        """Asks a broker for all topics and leaders. Concurrent callers share one question. Raises
        ConnectionLost."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(), name="metadata of the Kafka cluster")
            self._refreshing.add_done_callback(self._refreshed)
        return await asyncio.shield(self._refreshing)

    def _refreshed(self, task: asyncio.Task[Found]) -> None:
        self._refreshing = None
        task.cancelled() or task.exception()

    async def _refresh(self) -> Found:
        reasons: list[str] = []
        for address in dict.fromkeys((*self.found.brokers.values(), *self._bootstrap, *self._seen)):
            try:
                answer = await self._pool(address).call(
                    METADATA, {"topics": None, "allow_auto_topic_creation": False}, most=12, seconds=10.0
                )
            except (ConnectionLost, CodecError) as error:
                reasons.append(str(error))
                continue
            self.found = _found(answer)
            self._remember()
            self._forget_brokers()
            return self.found
        raise ConnectionLost("; ".join(reasons))

    def _remember(self) -> None:
        """Remembers brokers that may be away now, and alone be there when those of today are away."""
        for address in self.found.brokers.values():
            self._seen.pop(address, None)
            self._seen[address] = None
        while len(self._seen) > _SEEN:
            del self._seen[next(iter(self._seen))]

    def _forget_brokers(self) -> None:
        kept = {*self.found.brokers.values(), *self._bootstrap}
        for address in [address for address in self._pools if address not in kept]:
            self._pools.pop(address).close()

    def pool(self, node: int) -> Pool:
        """Returns the connections to a broker. Raises LEADER_UNAVAILABLE."""
        address = self.found.brokers.get(node)
        if address is None:
            raise TreecastError(Fault.LEADER_UNAVAILABLE, f"the Kafka cluster names no broker {node}")
        return self._pool(address)

    def _pool(self, address: Address) -> Pool:
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools[address] = Pool(address, self._tls, self._log_in, self._client_id)
        return pool

    def leader(self, topic: str, index: int) -> PartitionFound | None:
        found = self.found.topics.get(topic)
        return found.partitions[index] if found is not None and index < len(found.partitions) else None

    # --- calls

    async def at_node(
        self,
        node: int,
        key: int,
        values: Mapping[str, Any],
        *,
        most: int = 1 << 15,
        seconds: float = CALL_SECONDS,
        client_id: str | None = None,
    ) -> Row:
        """Calls one broker. Raises LEADER_UNAVAILABLE, or UNSUPPORTED_VERSION."""
        try:
            pool = self.pool(node)
            return await pool.call(key, values, most=most, seconds=seconds, client_id=client_id)
        except ConnectionLost as error:
            raise TreecastError(Fault.LEADER_UNAVAILABLE, f"Kafka broker {node}: {error}") from error
        except CodecError as error:
            raise TreecastError(Fault.UNSUPPORTED_VERSION, str(error)) from error

    async def at_any(self, key: int, values: Mapping[str, Any], *, most: int = 1 << 15) -> Row:
        """Calls a broker that answers. Raises LEADER_UNAVAILABLE, or UNSUPPORTED_VERSION."""
        last = TreecastError(Fault.LEADER_UNAVAILABLE, "no broker of the Kafka cluster is known yet")
        for node in list(self.found.brokers):
            try:
                return await self.at_node(node, key, values, most=most)
            except TreecastError as error:
                if error.fault is not Fault.LEADER_UNAVAILABLE:
                    raise
                last = error
        raise last

    async def at_leader(self, topic: str, index: int, key: int, values: Mapping[str, Any]) -> Row:
        """Calls the broker that leads a partition. Raises LEADER_UNAVAILABLE, or UNSUPPORTED_VERSION."""
        leader = self.leader(topic, index)
        if leader is None or leader.leader < 0:
            raise TreecastError(
                Fault.LEADER_UNAVAILABLE, f"{topic}-{index} has no leader in the Kafka cluster"
            )
        return await self.at_node(leader.leader, key, values)

    async def at_coordinator(
        self,
        kind: int,
        id: str,
        key: int,
        values: Mapping[str, Any],
        *,
        most: int = 1 << 15,
        seconds: float = CALL_SECONDS,
        code: str = "error_code",
        client_id: str | None = None,
    ) -> Row:
        """Calls the coordinator of a group or a transactional id, and looks it up again if it has moved.

        `code`: the answer's field with its error. Raises COORDINATOR_UNAVAILABLE, or UNSUPPORTED_VERSION.
        """
        pause, why = _PAUSE, "it did not answer"
        for _ in range(_ATTEMPTS):
            try:
                node = await self._coordinator(kind, id)
                answer = await self.at_node(
                    node, key, values, most=most, seconds=seconds, client_id=client_id
                )
            except TreecastError as error:
                if error.fault is not Fault.LEADER_UNAVAILABLE:
                    raise
                why = error.detail
                await self._look_again()
            else:
                if first_code(answer, code) not in _MOVED:
                    return answer
                why = f"the broker answers with error {first_code(answer, code)}"
            self._coordinators.pop((kind, id), None)
            await asyncio.sleep(pause)
            pause *= 2
        raise TreecastError(
            Fault.COORDINATOR_UNAVAILABLE, f"the coordinator of {id!r} in the Kafka cluster: {why}"
        )

    async def _look_again(self) -> None:
        try:
            await self.refresh()
        except ConnectionLost:
            return

    async def _coordinator(self, kind: int, id: str) -> int:
        known = self._coordinators.get((kind, id))
        if known is not None and known in self.found.brokers:
            return known
        values = {"key": id, "key_type": kind, "coordinator_keys": [id]}
        answer = await self.at_any(FIND_COORDINATOR, values, most=3)
        if answer.error_code:
            fault = fault_of(answer.error_code)
            if answer.error_code in _MOVED:
                fault = Fault.LEADER_UNAVAILABLE
            raise TreecastError(fault, answer.error_message or "the Kafka cluster finds no coordinator")
        if len(self._coordinators) > 100_000:
            self._coordinators.clear()
        self._coordinators[kind, id] = answer.node_id
        if answer.node_id not in self.found.brokers:
            await self._look_again()
        node: int = answer.node_id
        return node


def first_code(answer: Row, path: str) -> int:
    """Returns an error code of an answer; `a.b` is field b of the first row of list a, 0 if there is none."""
    found: Any = answer
    for name in path.split("."):
        if isinstance(found, list | tuple):
            if not found:
                return 0
            found = found[0]
        found = getattr(found, name)
    return int(found)


def refusal(code: int, detail: str | None = None) -> TreecastError:
    """Returns the error of a Kafka broker as a client of a daemon hears it.

    Clients at a daemon must not look for another coordinator or leader: the agent has done that.
    """
    fault = fault_of(code)
    if fault is Fault.NOT_COORDINATOR:
        fault = Fault.COORDINATOR_UNAVAILABLE
    if fault is Fault.NOT_LEADER:
        fault = Fault.LEADER_UNAVAILABLE
    return TreecastError(fault, detail or f"the Kafka cluster answers with error {code}")


def _found(answer: Row) -> Found:
    topics = {
        topic.name: TopicFound(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            tuple(
                PartitionFound(row.leader_id, row.leader_epoch)
                for row in sorted(topic.partitions, key=lambda row: int(row.partition_index))
            ),
        )
        for topic in answer.topics
        if not topic.error_code
    }
    brokers = {row.node_id: Address(row.host, row.port) for row in answer.brokers}
    return Found(answer.cluster_id or "", answer.controller_id, brokers, topics)
