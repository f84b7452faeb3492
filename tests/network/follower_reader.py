"""Groups that read a followed topic, each a member by itself, in one process.

    python -m tests.network.follower_reader BOOTSTRAP TOPIC GROUPS COUNT

GROUPS: names with commas between. Each group reads until it has COUNT records, commits, and leaves. For each
a line of JSON is printed: its name, and the values that it has read, which are numbers.
"""

from __future__ import annotations

import json
import sys
import threading

from kafka import KafkaConsumer

_OUTPUT = threading.Lock()


def read(bootstrap: str, topic: str, group: str, count: int) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: list[int] = []
    while not consumer.partitions_for_topic(topic):
        pass  # kafka-python forgets the answer to a join that came before the topic's metadata
    while len(found) < count:
        for records in consumer.poll(timeout_ms=5000).values():
            found += [int(one.value.partition(b":")[0]) for one in records]
    consumer.commit()
    consumer.close()
    with _OUTPUT:
        print(json.dumps({"group": group, "numbers": found}), flush=True)


def main() -> None:
    bootstrap, topic, groups, count = sys.argv[1:]
    threads = [
        threading.Thread(target=read, args=(bootstrap, topic, group, int(count)))
        for group in groups.split(",")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
