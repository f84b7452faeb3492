"""A small blocking Kafka client with kafka-python's request schemas and batch builder, and pipelining."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

# Errors after which a client retries: the broker is not ready yet, or a transaction is being completed.
RETRIABLE = frozenset({5, 6, 7, 14, 15, 16, 51})
REPLY_SECONDS = 20.0


class Broken(Exception):
    """The connection ended: the request may or may not have been carried out."""


class Refused(Exception):
    """The broker refused the request. `code` is Kafka's error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


class Connection:
    """One connection with replies in the order of requests."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=REPLY_SECONDS)
        except OSError as error:
            raise Broken(str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = KafkaProtocol(client_id="crash-run")
        self._replies: list[Any] = []

    def send(self, request: Any) -> None:
        self._protocol.send_request(request)
        try:
            self._socket.sendall(self._protocol.send_bytes())
        except OSError as error:
            raise Broken(str(error)) from error

    def receive(self) -> Any:
        """Returns the next reply."""
        while not self._replies:
            try:
                data = self._socket.recv(1 << 18)
            except OSError as error:
                raise Broken(str(error)) from error
            if not data:
                raise Broken("closed")
            self._replies += [reply for _, reply in self._protocol.receive_bytes(data)]
        return self._replies.pop(0)

    def ask(self, request: Any) -> Any:
        self.send(request)
        return self.receive()

    def insist(self, what: str, request: Any, code_of: Any) -> Any:
        """Repeats the request while the error is retriable; raises Refused for other errors."""
        deadline = time.monotonic() + REPLY_SECONDS
        while True:
            reply = self.ask(request)
            code = code_of(reply)
            if code == 0:
                return reply
            if code not in RETRIABLE or time.monotonic() > deadline:
                raise Refused(what, code)
            time.sleep(0.01)

    def close(self) -> None:
        self._socket.close()


# --- record batches


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    compression: int = 0,
    *,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        batch_size=1 << 24,
    )
    now = int(time.time() * 1000)
    for number, (key, value) in enumerate(records):
        builder.append(number, now, key, value, [])
    return bytes(builder.build())


# --- requests


def produce(
    topic: str, partition: int, batch: bytes, acks: int = -1, transactional_id: str | None = None
) -> Any:
    topic_type = ProduceRequest.TopicProduceData
    data = topic_type.PartitionProduceData(version=9, index=partition, records=batch)
    return ProduceRequest(
        version=9,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[topic_type(version=9, name=topic, partition_data=[data])],
    )


def produced(reply: Any) -> tuple[int, int]:
    """Returns (error code, base offset)."""
    [topic] = reply.responses
    [partition] = topic.partition_responses
    return partition.error_code, partition.base_offset


def init_producer(transactional_id: str | None, timeout_ms: int = 60_000) -> Any:
    return InitProducerIdRequest(
        version=3,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )


def add_partitions(
    transactional_id: str, producer: tuple[int, int], topic: str, partitions: Sequence[int]
) -> Any:
    topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        version=3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[topic_type(version=3, name=topic, partitions=list(partitions))],
    )


def add_partitions_code(reply: Any) -> int:
    codes = [
        partition.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    return next((code for code in codes if code), 0)


def add_offsets(transactional_id: str, producer: tuple[int, int], group: str) -> Any:
    return AddOffsetsToTxnRequest(
        version=3,
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group,
    )


def txn_offset_commit(
    transactional_id: str, producer: tuple[int, int], group: str, topic: str, partition: int, offset: int
) -> Any:
    topic_type = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = topic_type.TxnOffsetCommitRequestPartition(
        version=3,
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata=f"m{offset}",
    )
    return TxnOffsetCommitRequest(
        version=3,
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic_type(version=3, name=topic, partitions=[part])],
    )


def end_txn(transactional_id: str, producer: tuple[int, int], committed: bool) -> Any:
    return EndTxnRequest(
        version=3,
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )


def top_code(reply: Any) -> int:
    return int(reply.error_code)


def only_partition_code(reply: Any) -> int:
    """Returns the error code of a reply with one topic and one partition."""
    return int(reply.topics[0].partitions[0].error_code)


def offset_commit(group: str, topic: str, partition: int, offset: int) -> Any:
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic_type.OffsetCommitRequestPartition(
        version=7,
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata=f"m{offset}",
    )
    return OffsetCommitRequest(
        version=7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic_type(version=7, name=topic, partitions=[part])],
    )


def offset_fetch(group: str, topic: str, partitions: Sequence[int]) -> Any:
    topic_type = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        version=6,
        group_id=group,
        topics=[topic_type(version=6, name=topic, partition_indexes=list(partitions))],
    )


def fetched_offsets(reply: Any) -> dict[int, tuple[int, str]]:
    """Returns partition -> (offset, metadata)."""
    return {
        part.partition_index: (part.committed_offset, part.metadata or "")
        for topic in reply.topics
        for part in topic.partitions
    }


def create_topic(name: str, partitions: int, config: Mapping[str, str]) -> Any:
    topic_type = CreateTopicsRequest.CreatableTopic
    configs = [
        topic_type.CreatableTopicConfig(version=5, name=key, value=value) for key, value in config.items()
    ]
    topic = topic_type(
        version=5, name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
    )
    return CreateTopicsRequest(version=5, topics=[topic], timeout_ms=10_000, validate_only=False)


def first_topic_code(reply: Any) -> int:
    return int(reply.topics[0].error_code)


def delete_topic(name: str) -> Any:
    return DeleteTopicsRequest(version=4, topic_names=[name], timeout_ms=10_000)


def first_response_code(reply: Any) -> int:
    return int(reply.responses[0].error_code)


def set_config(topic: str, key: str, value: str) -> Any:
    resource_type = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource_type.AlterableConfig(version=1, name=key, config_operation=0, value=value)
    resource = resource_type(version=1, resource_type=2, resource_name=topic, configs=[change])
    return IncrementalAlterConfigsRequest(version=1, resources=[resource], validate_only=False)


def retention_by_topic(connection: Connection, topics: Sequence[str]) -> dict[str, str]:
    """Returns retention.ms of each of the topics that exists."""
    resource_type = DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        resource_type(version=1, resource_type=2, resource_name=topic, configuration_keys=["retention.ms"])
        for topic in topics
    ]
    reply = connection.ask(DescribeConfigsRequest(version=1, resources=resources, include_synonyms=False))
    return {
        result.resource_name: result.configs[0].value for result in reply.results if result.error_code == 0
    }
