"""One host for twenty minutes under load, while topics, groups, queues and sessions come and go.

    python -m tests.fault.soak --seconds 1200

Three real clients go round: each makes something with a name of its own, uses it, and takes it away.
Resident memory, descriptors and the files of the data directory are looked at between; they must be flat over
the second half of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import paho.mqtt.client as mqtt
import pika
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from treecast.middleware.daemon.process import DaemonProcess, split_address

from .strangers.run import MIB, Use, use

PATIENCE_S: Final = 30.0
ALIVE: Final = 20  # of each kind at a time: the oldest goes when another comes
MEMORY: Final = 16 * MIB  # that the second half may add: the allocator's holes, not what was deleted
FILES: Final = 8
_KIB: Final = bytes(1024)


def kafka_round(daemon: DaemonProcess, number: int) -> None:
    """A topic with a group that has read and committed all of it; both are deleted later."""
    admin, name = AdminClient({"bootstrap.servers": daemon.kafka}), f"soak-{number}"
    _done(admin.create_topics([NewTopic(name, 3)]))
    producer = Producer({"bootstrap.servers": daemon.kafka, "enable.idempotence": True})
    for _ in range(300):
        producer.produce(name, _KIB)
    producer.flush(PATIENCE_S)
    consumer = Consumer(
        {"bootstrap.servers": daemon.kafka, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    left, deadline = 300, time.monotonic() + PATIENCE_S
    while left and time.monotonic() < deadline:
        left -= len(consumer.consume(left, 1.0))
    consumer.commit(asynchronous=False)
    consumer.close()
    if left:
        raise RuntimeError(f"{left} records of {name} did not come")
    if number >= ALIVE:
        old = f"soak-{number - ALIVE}"
        _done(admin.delete_consumer_groups([old]))
        _done(admin.delete_topics([old]))


def _done(futures: dict[str, Any]) -> None:
    for one in futures.values():
        one.result(PATIENCE_S)


def amqp_round(daemon: DaemonProcess, number: int) -> None:
    """A durable queue and an exchange with a binding; half of the messages go with the queue."""
    host, port = split_address(daemon.ready["amqp"])
    with pika.BlockingConnection(pika.ConnectionParameters(host, port, heartbeat=0)) as connection:
        channel, name = connection.channel(), f"soak-{number}"
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        channel.exchange_declare(name, "topic", durable=True)
        channel.queue_bind(name, name, "a.#")
        for _ in range(100):
            channel.basic_publish(name, "a.b", _KIB, pika.BasicProperties(delivery_mode=2))
        for _ in range(50):
            method, _, _ = channel.basic_get(name)
            channel.basic_ack(method.delivery_tag)
        if number >= ALIVE:
            channel.queue_delete(f"soak-{number - ALIVE}")
            channel.exchange_delete(f"soak-{number - ALIVE}")


def mqtt_round(daemon: DaemonProcess, number: int) -> None:
    """A session that is away while messages come for it, which takes them and ends."""
    topic = f"soak/{number}"
    away = _connected(daemon, topic, keep=True)
    away.subscribe(topic, 1)
    _left(away)
    sender = _connected(daemon, "sender", keep=False)
    for _ in range(50):
        sender.publish(topic, _KIB, 1).wait_for_publish(PATIENCE_S)
    sender.publish(topic, _KIB if number % 2 else b"", 1, retain=True).wait_for_publish(PATIENCE_S)
    if number >= ALIVE:
        sender.publish(f"soak/{number - ALIVE}", b"", 1, retain=True).wait_for_publish(PATIENCE_S)
        _left(_connected(daemon, f"soak/{number - ALIVE}", keep=False))  # a clean start ends the session
    _left(sender)


def _connected(daemon: DaemonProcess, client: str, *, keep: bool) -> mqtt.Client:
    host, port = split_address(daemon.ready["mqtt"])
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client, clean_session=not keep)
    ready = threading.Event()
    made.on_connect = lambda *_: ready.set()
    made.connect(host, port, 60)
    made.loop_start()
    if not ready.wait(PATIENCE_S):
        raise RuntimeError(f"no CONNACK for {client}")
    return made


def _left(client: mqtt.Client) -> None:
    client.disconnect()
    client.loop_stop()


ROUNDS: Final[dict[str, Callable[[DaemonProcess, int], None]]] = {
    "kafka": kafka_round,
    "amqp": amqp_round,
    "mqtt": mqtt_round,
}


class Rounds(threading.Thread):
    """One client that goes round until it is told to end."""

    def __init__(self, face: str, daemon: DaemonProcess) -> None:
        super().__init__(daemon=True)
        self._face, self._daemon = face, daemon
        self.ending = threading.Event()
        self.count = 0
        self.problem = ""

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                ROUNDS[self._face](self._daemon, self.count)
                self.count += 1
        except Exception as error:
            self.problem = f"{self._face}, round {self.count}: {type(error).__name__}: {error}"


def sizes(daemon: DaemonProcess) -> tuple[Use, int]:
    """Returns what the process uses, and the files in its data directory."""
    # os.walk passes over directories that go meanwhile; Path.rglob does not
    return use(daemon.pid), sum(len(files) for _, _, files in os.walk(daemon.data))


def judged(seen: list[tuple[Use, int]]) -> list[str]:
    """Compares the third quarter with the last one."""
    quarter = max(len(seen) // 4, 1)
    third, last = seen[-2 * quarter : -quarter], seen[-quarter:]
    found = []
    for what, of, room, unit in (
        ("memory", lambda one: one[0].resident, MEMORY, MIB),
        ("descriptors", lambda one: one[0].files, FILES, 1),
        ("files", lambda one: one[1], FILES, 1),
    ):
        before, after = median(map(of, third)), median(map(of, last))
        if after > before + room:
            found.append(f"{what} grew from {before / unit:.0f} to {after / unit:.0f}")
    return found


def soak(seconds: float, python: str, every: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="treecast-soak-") as folder:
        flags = ["--fabric", "127.0.0.1:0"]
        daemon = DaemonProcess(Path(folder) / "data", flags, python=python)
        try:
            daemon.start()
            rounds = [Rounds(face, daemon) for face in ROUNDS]
            for one in rounds:
                one.start()
            seen, until = [], time.monotonic() + seconds
            while time.monotonic() < until and not any(one.problem for one in rounds):
                time.sleep(every)
                seen.append(sizes(daemon))
            for one in rounds:
                one.ending.set()
            for one in rounds:
                one.join(PATIENCE_S)
            problems = [one.problem for one in rounds if one.problem] + judged(seen)
            if "Traceback" in daemon.log():
                problems.append("the daemon logged an error of its own")
        finally:
            if daemon.running:
                daemon.stop()
            daemon.clean_up()
    return {
        "seconds": seconds,
        "rounds": dict(zip(ROUNDS, (one.count for one in rounds), strict=True)),
        "memory_mib": [one.resident // MIB for one, _ in seen],
        "descriptors": [one.files for one, _ in seen],
        "files": [files for _, files in seen],
        "problems": problems,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemon")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = soak(options.seconds, options.python, max(options.seconds / 240, 0.5))
    if options.json:
        print(json.dumps(found))
        return 1 if found["problems"] else 0
    table = Table(title=f"rounds: {found['rounds']}")
    for column in ("of the run", "memory (MiB)", "descriptors", "files"):
        table.add_column(column, justify="right")
    step = max(len(found["files"]) // 12, 1)
    for at in range(0, len(found["files"]), step):
        row = (found[name][at] for name in ("memory_mib", "descriptors", "files"))
        table.add_row(f"{at / len(found['files']):.0%}", *map(str, row))
    console = Console()
    console.print(table)
    console.print("; ".join(found["problems"]) or "flat")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
