"""`KafkaOwner`: calls about partitions, passed on to the brokers that lead them."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import Any, Final

from treecast.middleware.broker.values import ActiveProducer, Appended, Isolation, OffsetAtTime
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.wire.kafka_primitives import CodecError
from treecast.shims.kafka import errors
from treecast.shims.kafka.codec_client import (
    decode_produce_response,
    encode_produce_request,
    shared_version,
)
from treecast.shims.kafka.messages import Row
from treecast.shims.kafka.versions import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)

from .cluster import KafkaCluster, Pool, first_code, refusal
from .connection import ConnectionLost, KafkaConnection

LANES: Final = 4  # connections to a broker for produces; a partition keeps to one
PRODUCE_SECONDS: Final = 30.0
_IN_FLIGHT: Final = 64 << 20  # bytes of produces without an answer
# From version 12 on a broker adds partitions to transactions itself (KIP-890), for producers that know.
_PRODUCE_MOST: Final = 11
_MOVED: Final = frozenset(
    {
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.LEADER_NOT_AVAILABLE,
        errors.FENCED_LEADER_EPOCH,
        errors.UNKNOWN_LEADER_EPOCH,
    }
)


class KafkaOwner:
    """Implements `partition.Owner`."""

    def __init__(self, cluster: KafkaCluster, look: Callable[[], None]) -> None:
        """`look`: asks for the cluster's leaders again soon."""
        self.produced = 0  # batches' requests that the cluster has taken
        self.refused: dict[str, int] = {}  # and not, by reason
        self._cluster = cluster
        self._look = look
        self._in_flight = 0
        self._behind: dict[tuple[int, int], asyncio.Task[None]] = {}

    # --- producing

    def produce(
        self, name: TopicPartition, batches: bytes, acks: int, transactional_id: str | None
    ) -> Future[Appended]:
        """Sends batches to the partition's leader. Calls for one partition keep their order."""
        answer: Future[Appended] = asyncio.get_running_loop().create_future()
        if self._in_flight + len(batches) > _IN_FLIGHT and self._in_flight:
            self._refuse(
                answer, TreecastError(Fault.TIMED_OUT, "the Kafka cluster is slower than the producers")
            )
            return answer
        self._in_flight += len(batches)
        answer.add_done_callback(lambda _: self._done(len(batches)))
        try:
            pool, lane = self._lane(name)
        except TreecastError as error:
            self._refuse(answer, error)
            return answer
        connection = pool.lane(lane[1])
        behind = self._behind.get(lane)
        if isinstance(connection, KafkaConnection) and behind is None:
            self._send(connection, name, batches, acks, transactional_id, answer)
        else:
            task = asyncio.create_task(
                self._send_later(behind, pool, lane[1], name, batches, acks, transactional_id, answer)
            )
            self._behind[lane] = task
            task.add_done_callback(lambda done: self._caught_up(lane, done))
        return answer

    def _lane(self, name: TopicPartition) -> tuple[Pool, tuple[int, int]]:
        found = self._cluster.leader(name.topic, name.partition)
        if found is None or found.leader < 0:
            self._look()
            raise TreecastError(Fault.LEADER_UNAVAILABLE, f"{name} has no leader in the Kafka cluster")
        return self._cluster.pool(found.leader), (found.leader, hash(name) % LANES)

    def _done(self, size: int) -> None:
        self._in_flight -= size

    def _caught_up(self, lane: tuple[int, int], done: asyncio.Task[None]) -> None:
        if self._behind.get(lane) is done:
            del self._behind[lane]

    async def _send_later(
        self,
        behind: asyncio.Task[None] | None,
        pool: Pool,
        lane: int,
        name: TopicPartition,
        batches: bytes,
        acks: int,
        transactional_id: str | None,
        answer: Future[Appended],
    ) -> None:
        """Sends once the connection is open and the calls before it were sent."""
        if behind is not None:
            await asyncio.wait([behind])
        try:
            connection = pool.lane(lane)
            if isinstance(connection, asyncio.Task):
                connection = await asyncio.shield(connection)
            self._send(connection, name, batches, acks, transactional_id, answer)
        except ConnectionLost as error:
            self._look()
            self._refuse(answer, TreecastError(Fault.LEADER_UNAVAILABLE, f"the leader of {name}: {error}"))

    def _send(
        self,
        connection: KafkaConnection,
        name: TopicPartition,
        batches: bytes,
        acks: int,
        transactional_id: str | None,
        answer: Future[Appended],
    ) -> None:
        """A producer that wants no answer (acks 0) is served like one that wants the leader's."""
        try:
            version = shared_version(PRODUCE, connection.versions, _PRODUCE_MOST)
        except CodecError as error:
            self._refuse(answer, TreecastError(Fault.UNSUPPORTED_VERSION, str(error)))
            return
        timeout_ms = int(PRODUCE_SECONDS * 1000)
        asked = connection.request(
            lambda number: encode_produce_request(
                number,
                version,
                connection.client_id,
                name.topic,
                name.partition,
                memoryview(batches),
                acks or 1,
                timeout_ms,
                transactional_id,
            )
        )
        asked.add_done_callback(lambda done: self._answered(done, version, name, answer))

    def _answered(
        self, done: Future[memoryview], version: int, name: TopicPartition, answer: Future[Appended]
    ) -> None:
        if answer.done():
            done.cancelled() or done.exception()
            return
        try:
            found = decode_produce_response(done.result(), version)
        except (ConnectionLost, CodecError) as error:
            self._look()
            self._refuse(answer, TreecastError(Fault.LEADER_UNAVAILABLE, f"the leader of {name}: {error}"))
            return
        if found.error_code:
            if found.error_code in _MOVED:
                self._look()
            refused = refusal(found.error_code, found.message)
            self._refuse(answer, TreecastError(refused.fault, refused.detail, found.record_errors))
            return
        self.produced += 1
        answer.set_result(Appended(found.base_offset, found.log_append_time, found.log_start_offset))

    def _refuse(self, answer: Future[Appended], error: TreecastError) -> None:
        self.refused[error.fault.name] = self.refused.get(error.fault.name, 0) + 1
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # the caller may have gone

    # --- offsets

    async def _ask(self, name: TopicPartition, key: int, values: Any, code: str) -> Row:
        """Asks the leader, and once again where the leader has moved to."""
        answer = await self._cluster.at_leader(name.topic, name.partition, key, values)
        if first_code(answer, code) in _MOVED:
            try:
                await self._cluster.refresh()
            except ConnectionLost as error:
                raise TreecastError(Fault.LEADER_UNAVAILABLE, f"the Kafka cluster: {error}") from error
            answer = await self._cluster.at_leader(name.topic, name.partition, key, values)
        found = first_code(answer, code)
        if found:
            raise refusal(found)
        return answer

    async def offset_for_time(
        self, name: TopicPartition, timestamp: int, isolation: Isolation
    ) -> OffsetAtTime:
        row = {"partition_index": name.partition, "current_leader_epoch": -1, "timestamp": timestamp}
        values = {
            "replica_id": -1,
            "isolation_level": int(isolation),
            "topics": [{"name": name.topic, "partitions": [row]}],
        }
        answer = await self._ask(name, LIST_OFFSETS, values, "topics.partitions.error_code")
        found = answer.topics[0].partitions[0]
        return OffsetAtTime(found.offset, found.timestamp, found.leader_epoch)

    async def end_of_epoch(self, name: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        row = {"partition": name.partition, "current_leader_epoch": -1, "leader_epoch": leader_epoch}
        values = {"replica_id": -1, "topics": [{"topic": name.topic, "partitions": [row]}]}
        answer = await self._ask(name, OFFSET_FOR_LEADER_EPOCH, values, "topics.partitions.error_code")
        found = answer.topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    async def delete_before(self, name: TopicPartition, offset: int) -> int:
        row = {"partition_index": name.partition, "offset": offset}
        values = {"topics": [{"name": name.topic, "partitions": [row]}], "timeout_ms": 10_000}
        answer = await self._ask(name, DELETE_RECORDS, values, "topics.partitions.error_code")
        start: int = answer.topics[0].partitions[0].low_watermark
        return start

    async def active_producers(self, name: TopicPartition) -> tuple[ActiveProducer, ...]:
        values = {"topics": [{"name": name.topic, "partition_indexes": [name.partition]}]}
        answer = await self._ask(name, DESCRIBE_PRODUCERS, values, "topics.partitions.error_code")
        return tuple(
            ActiveProducer(
                ProducerIdentity(one.producer_id, one.producer_epoch),
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                one.current_txn_start_offset,
            )
            for one in answer.topics[0].partitions[0].active_producers
        )
