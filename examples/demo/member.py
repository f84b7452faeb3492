"""One member of the demo's consumer group, as a separate process: confluent-kafka, nothing of Treecast.

It prints one line per batch, `read PARTITION:NUMBER,NUMBER,... ...`, with the keys of the records as numbers,
and `has PARTITION ...` after each rebalance. It commits after each printed batch, and ends when its standard
input does.
"""

from __future__ import annotations

import sys
import threading

from confluent_kafka import Consumer, KafkaException, TopicPartition


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    say("has " + " ".join(str(partition.partition) for partition in partitions))


def until_input_ends(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main() -> None:
    address, topic, group = sys.argv[1:4]
    ended = threading.Event()
    threading.Thread(target=until_input_ends, args=(ended,), daemon=True).start()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            "error_cb": lambda error: (
                None
            ),  # the broker is killed on purpose; librdkafka comes back by itself
        }
    )
    consumer.subscribe([topic], on_assign=assigned)
    while not ended.is_set():
        messages = [message for message in consumer.consume(1000, 0.1) if message.error() is None]
        if not messages:
            continue
        numbers: dict[int, list[str]] = {}
        for message in messages:
            numbers.setdefault(message.partition(), []).append(message.key().decode())
        say("read " + " ".join(f"{partition}:{','.join(keys)}" for partition, keys in numbers.items()))
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            pass  # the broker or the partition is away; somebody reads these records again
    consumer.close()


if __name__ == "__main__":
    main()
