"""A group moves between a Kafka cluster and two hosts under load, again and again; the counts have to close.

    python -m tests.clients.agents.kafka.moves --count 100 --seed 1 --kill 10

`--kill N`: the agent is killed and started at every N-th move. It needs Kafka's jars, and prints one line for
each move. Exit code 1: a record was lost, or came twice.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from tests.clients.agents.kafka.site import PATIENCE, KafkaAgent, Node, Reader
from tests.pair import pair

TOPIC, GROUP = "followed", "g"
_FACES_OFF = [word for face in ("amqp", "mqtt", "stare", "admin") for word in (f"--{face}", "off")]


class Load(threading.Thread):
    """Produces numbers at the cluster until it is stopped; `sent` counts those that it has taken."""

    def __init__(self, bootstrap: str, per_second: int) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaProducer(bootstrap_servers=bootstrap)
        self._pause = 1 / per_second
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._over.wait(self._pause):
            self._producer.send(TOPIC, b"%d" % self.sent, partition=self.sent % 2)
            self.sent += 1

    def stop(self) -> int:
        self._over.set()
        self.join()
        self._producer.flush(PATIENCE)
        self._producer.close()
        return self.sent


def move(bootstrap: str, count: int) -> list[tuple[int, int, bytes]]:
    """Reads at least `count` records as the group's only member, and commits."""
    reader = Reader(bootstrap, TOPIC, group_id=GROUP, enable_auto_commit=False)
    with reader as consumer:
        found = reader.read(count)
        consumer.commit()
    return found


def run(root: Path, count: int, seed: int, kill: int) -> bool:
    rng, node, found = random.Random(seed), Node(root), list[tuple[int, int, bytes]]()
    node.start()
    try:
        KafkaAdminClient(bootstrap_servers=node.bootstrap).create_topics([NewTopic(TOPIC, 2, 1)])
        with pair(root, [*_FACES_OFF, "--kafka", "127.0.0.1:0"], show=lambda log: None) as hosts:
            first = hosts[0]
            token, topics = first.data / "join-token", f'topics = ["{TOPIC}"]'
            agent = KafkaAgent("site", root / "agent", node.bootstrap, first.ready["control"], token, topics)
            agent.start().until(lambda status: TOPIC in status["topics"], "it is not followed")
            load = Load(node.bootstrap, 200)
            load.start()
            places = {"cluster": node.bootstrap} | {host.ready["name"]: host.ready["kafka"] for host in hosts}
            for number in range(1, count + 1):
                if kill and number % kill == 0:
                    agent.kill()
                    agent.start()
                name, begun = rng.choice(sorted(places)), time.monotonic()
                found += move(places[name], 20)
                print(
                    f"{number} {name} {len(found)} of {load.sent}, {time.monotonic() - begun:.1f} s",
                    flush=True,
                )
            sent = load.stop()
            if len(found) < sent:
                found += move(first.ready["kafka"], sent - len(found))
            status = agent.status()
            agent.stop()
    finally:
        node.stop()
    numbers = sorted(int(value) for _, _, value in found)
    closed = numbers == list(range(sent))
    print(f"{count} moves, {sent} produced, {len(found)} read: {'closed' if closed else 'NOT CLOSED'}")
    copied, fetched = status["copied_bytes"], status["fetched_bytes"]
    print(f"copied {copied} bytes, fetched {fetched}; troubles: {status['troubles']}")
    return closed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moves-") as root:
        return 0 if run(Path(root), given.count, given.seed, given.kill) else 1


if __name__ == "__main__":
    sys.exit(main())
