"""Copies one topic into another, exactly once, as a member of the new group protocol (KIP-848).

    python copier.py BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID

Uses confluent-kafka. Each output value is its source record's position, PARTITION:OFFSET. Prints "copied N"
after each transaction, and exits with code 3 when it is fenced.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

FENCED = 3
MOST = 50  # records per transaction
TRANSACTION_TIMEOUT_MS = 5_000
# After "rebootstrap", the default, librdkafka 2.16 sends TxnOffsetCommit to a broker handle that it gave up:
# its cache of coordinators still holds the handle, and the producer waits forever.
SAME_BROKERS = {"metadata.recovery.strategy": "none"}


class Copier:
    def __init__(self, bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
        self._target = target
        self._taken: list[tuple[int, int]] = []  # (partition, offset)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                **SAME_BROKERS,
            }
        )
        self._producer.init_transactions(60)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                **SAME_BROKERS,
            }
        )
        self._consumer.subscribe(
            [source], on_assign=self._begin, on_revoke=self._give_up, on_lost=self._give_up
        )
        self._source = source

    def _begin(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Starts at the group's committed offsets, once pending transactions are decided.

        If the assignment changes during the query, librdkafka 2.16 takes UNSTABLE_OFFSET_COMMIT for a missing
        offset, and starts at 0.
        """
        consumer.incremental_assign(self._committed(places))

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Returns the group's committed offsets, or the beginning; waits for open transactions."""
        while True:
            found = self._consumer.committed(places, 60)
            errors = [place.error for place in found if place.error is not None]
            if not errors:
                return [TopicPartition(one.topic, one.partition, max(one.offset, 0)) for one in found]
            if any(error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT for error in errors):
                raise KafkaException(errors[0])  # it has left the group: the offset is unknown, not 0
            time.sleep(0.1)  # until the transaction is decided

    def _give_up(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        """Drops records of revoked partitions that are not copied yet, as their new owner copies them."""
        partitions = {place.partition for place in gone}
        self._taken = [place for place in self._taken if place[0] not in partitions]

    def step(self) -> None:
        """Copies the records that arrive within a moment, in one transaction."""
        message = self._consumer.poll(0.2)
        while message is not None:
            if message.error() is None:
                self._taken.append((message.partition(), message.offset()))
            message = self._consumer.poll(0.005) if len(self._taken) < MOST else None
        taken, self._taken = self._taken, []
        if taken:
            self._copy(taken)

    def _copy(self, taken: list[tuple[int, int]]) -> None:
        self._producer.begin_transaction()
        try:
            for partition, offset in taken:
                self._producer.produce(self._target, f"{partition}:{offset}", partition=partition)
            ends = {partition: offset + 1 for partition, offset in taken}
            offsets = [TopicPartition(self._source, partition, end) for partition, end in ends.items()]
            self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), 60)
            self._producer.commit_transaction(60)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print("aborted", error.args[0].name(), flush=True)
            self._producer.abort_transaction(60)
            self._rewind()
        else:
            print("copied", len(taken), flush=True)

    def _rewind(self) -> None:
        """Returns to the group's committed offsets."""
        for place in self._committed(self._consumer.assignment()):
            try:
                self._consumer.seek(place)
            except KafkaException:
                print("given up", place.partition, flush=True)  # during the look-up


def main() -> int:
    copier = Copier(*sys.argv[1:])
    try:
        while True:
            copier.step()
    except KafkaException as error:
        print("ended", error.args[0].name(), error.args[0].str(), flush=True)
        return FENCED


if __name__ == "__main__":
    sys.exit(main())
