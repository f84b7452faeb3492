"""`KafkaTransactions`: transactional ids whose coordinator is in the Kafka cluster.

Implements `relay.homes.calls.TransactionCalls`. A transaction is the cluster's as a whole: it may span topics
that the cluster leads, and no topics that hosts lead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treecast.middleware.broker.values import InitProducer, PartitionErrors, TransactionListing
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.shims.kafka import errors
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.messages import Row

from .cluster import TRANSACTION, KafkaCluster, refusal


class KafkaTransactions:
    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    async def _ask(self, id: str, key: int, values: Mapping[str, Any], code: str = "error_code") -> Row:
        return await self._cluster.at_coordinator(TRANSACTION, id, key, values, code=code)

    async def init_producer(self, request: InitProducer) -> ProducerIdentity:
        values = {
            "transactional_id": request.transactional_id,
            "transaction_timeout_ms": request.transaction_timeout_ms,
            "producer_id": request.known.producer_id,
            "producer_epoch": request.known.epoch,
        }
        answer = await self._ask(request.transactional_id or "", v.INIT_PRODUCER_ID, values)
        _check(answer)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> PartitionErrors:
        topics: dict[str, list[int]] = {}
        for one in partitions:
            topics.setdefault(one.topic, []).append(one.partition)
        values = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": [
                {"name": name, "partitions": numbers} for name, numbers in topics.items()
            ],
        }
        code = "results_by_topic_v3_and_below.results_by_partition.partition_error_code"
        answer = await self._ask(transactional_id, v.ADD_PARTITIONS_TO_TXN, values, code)
        return {
            TopicPartition(topic.name, row.partition_index): refusal(row.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
            if row.partition_error_code
        }

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        values = {**_named(transactional_id, producer), "group_id": group_id}
        _check(await self._ask(transactional_id, v.ADD_OFFSETS_TO_TXN, values))

    async def end(self, transactional_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        values = {**_named(transactional_id, producer), "committed": committed}
        _check(await self._ask(transactional_id, v.END_TXN, values))

    async def end_parts(
        self,
        whole: str,
        batch: int,
        parts: Mapping[str, ProducerIdentity],
        *,
        committed: bool,
        content: str = "",
    ) -> None:
        raise TreecastError(
            Fault.NOT_SUPPORTED,
            f"{whole} is the Kafka cluster's: a batch staged in parts needs ids that kafka.transactional_ids"
            " leaves out",
        )

    async def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> None:
        raise TreecastError(
            Fault.NOT_IN_TRANSACTION,
            f"the transaction is the Kafka cluster's, and {partition.topic} is not its topic",
        )

    async def verify_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        raise TreecastError(
            Fault.NOT_IN_TRANSACTION,
            f"the transaction is the Kafka cluster's, and {group_id} is not its group",
        )

    async def list_transactions(self, ids: Sequence[str] | None) -> list[TransactionListing]:
        """Returns the transactions of all brokers that answer, or those of `ids` in detail."""
        if ids is not None:
            found = [await self._described(one) for one in ids]
            return [one for one in found if one is not None]
        listed: list[TransactionListing] = []
        for node in list(self._cluster.found.brokers):
            answer = await self._cluster.at_node(node, v.LIST_TRANSACTIONS, {"duration_filter": -1})
            listed += [
                TransactionListing(
                    one.transactional_id, one.transaction_state, ProducerIdentity(one.producer_id, 0)
                )
                for one in answer.transaction_states
            ]
        return listed

    async def _described(self, id: str) -> TransactionListing | None:
        answer = await self._ask(
            id, v.DESCRIBE_TRANSACTIONS, {"transactional_ids": [id]}, "transaction_states.error_code"
        )
        one = answer.transaction_states[0]
        if one.error_code == errors.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        _check(one)
        return TransactionListing(
            id,
            one.transaction_state,
            ProducerIdentity(one.producer_id, one.producer_epoch),
            one.transaction_timeout_ms,
            one.transaction_start_time_ms,
            tuple(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions),
        )


def _named(transactional_id: str, producer: ProducerIdentity) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def _check(answer: Row) -> None:
    if answer.error_code:
        raise refusal(answer.error_code)
