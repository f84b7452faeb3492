"""The steps of the SNAPS paper, section II-C, with real daemons, clients and a coordinator of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from kafka import KafkaProducer

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.api.v1 import daemon_pb2
from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 300.0  # until a test gives up; nothing is asserted about it
FACES = (
    "--amqp",
    "127.0.0.1:0",
    "--mqtt",
    "127.0.0.1:0",
    "--kafka",
    "127.0.0.1:0",
    "--fabric",
    "127.0.0.1:0",
)
OFF = ("--admin", "off", "--stare", "off")


def until(what: Callable[[], object]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Coordinator:
    """`treecast coordinator` as a process of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        command = [sys.executable, "-m", "treecast.middleware.cli", "coordinator", "--data", str(data)]
        self._log = (data.parent / "coordinator.log").open("ab")
        self.process = subprocess.Popen(
            [*command, "--control", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready "), ready
        self.address = ready.split("control=")[1].split()[0]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@contextmanager
def cluster(root: Path) -> Iterator[tuple[Coordinator, DaemonProcess, DaemonProcess]]:
    """A coordinator, and the brokers B and B' of the paper."""
    coordinator = Coordinator(root / "coordinator")
    joins = ["--join", coordinator.address, "--join-token", f"@{coordinator.data / 'join-token'}"]
    daemons = [DaemonProcess(root / name, [*FACES, *OFF, "--name", name, *joins]) for name in ("b1", "b2")]
    try:
        for daemon in daemons:
            daemon.start()
        yield coordinator, daemons[0], daemons[1]
    finally:
        for daemon in daemons:
            if daemon.running:
                daemon.stop()
            print(daemon.clean_up())
        coordinator.stop()


def events(daemon: DaemonProcess) -> list[pb.ClusterEvent]:
    with DaemonClient(daemon.ready["control"]) as client:
        return list(client.list_events().events)


def ways(daemon: DaemonProcess, **message: str) -> list[daemon_pb2.MessageWay]:
    """Returns what `treecast explain` shows."""
    with DaemonClient(daemon.ready["control"]) as client:
        return list(client.explain(daemon_pb2.ExplainRequest(**message)).ways)


def listed(daemon: DaemonProcess, *more: str) -> list[dict[str, Any]]:
    """Returns what `treecast events` shows."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "events", "--json", *more]
    command += ["--control", daemon.ready["control"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@contextmanager
def followed(daemon: DaemonProcess, *more: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Starts `treecast events --follow`; yields what reads its next event. Ends it afterwards."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "events", "--follow", "--json", *more]
    command += ["--control", daemon.ready["control"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        shown = process.stdout
        assert shown is not None
        given_up = Timer(PATIENCE_S, process.kill)
        given_up.start()
        try:
            yield lambda: json.loads(shown.readline())
        finally:
            given_up.cancel()
            process.terminate()


def recorded(daemon: DaemonProcess, **fields: str) -> bool:
    """Whether there is an event with these fields."""
    return any(all(getattr(one, key) == value for key, value in fields.items()) for one in events(daemon))


def connected(daemon: DaemonProcess, name: str) -> pika.BlockingConnection:
    where, port = daemon.address("amqp")
    properties = {"connection_name": name}
    given = pika.ConnectionParameters(where, port, client_properties=properties, heartbeat=0)
    return pika.BlockingConnection(given)


def test_the_seven_steps(tmp_path: Path) -> None:
    with cluster(tmp_path) as (coordinator, b1, b2):
        # 1, 2: P reaches its broker B, and creates the exchange E there.
        publisher = connected(b1, "P")
        sending = publisher.channel()
        sending.confirm_delivery()
        sending.exchange_declare("E", "topic", durable=True)
        # 2a: both events are known to C. The coordinator is asked through the other host.
        until(lambda: recorded(b2, kind="joined", host="b1", face="amqp", who="P"))
        until(lambda: recorded(b2, kind="created", host="b1", what="%2F/E"))
        # 2b, 3: E exists at B', which S reaches.
        subscriber = connected(b2, "S")
        receiving = subscriber.channel()
        receiving.exchange_declare("E", passive=True)
        # 4: S binds its queue to the topic T at B'. 4a: both events are known to C.
        receiving.queue_declare("Q", durable=True)
        receiving.queue_bind("Q", "E", "t.#")
        until(lambda: recorded(b1, kind="joined", host="b2", face="amqp", who="S"))
        bound = until(lambda: listed(b1, "--kind", "bound", "--host", "b2"))
        assert [one["what"].split("/")[:5] for one in bound] == [["%2F", "E", "queue", "Q", "t.%23"]]
        # 5b: B has the address of the only host that wants it, and needs C no more.
        (way,) = until(lambda: ways(b1, exchange="E", key="t.1"))
        assert (list(way.hosts), way.carrier, way.why) == (["b2"], "channel", "queues: Q")
        assert way.address == b2.ready["fabric"]
        assert ways(b1, exchange="E", key="other") == []
        # 4b, 5: B knows the binding, so that P's message is routed there, without a question to C.
        coordinator.stop()
        sending.basic_publish("E", "t.1", b"hello", pika.BasicProperties(delivery_mode=2), mandatory=True)
        with pytest.raises(pika.exceptions.UnroutableError):
            sending.basic_publish("E", "other", b"nobody", mandatory=True)
        # 6, 7: B' has the message in the queue of S, who receives it.
        got = until(lambda: [body for _, _, body in [receiving.basic_get("Q", auto_ack=True)] if body])
        assert got == [b"hello"]
        for connection in (publisher, subscriber):
            connection.close()


def test_events_of_all_faces(tmp_path: Path) -> None:
    with cluster(tmp_path) as (_, b1, b2):
        where, port = b2.address("mqtt")
        subscriber = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="meter-1")
        subscriber.connect(where, port)
        subscriber.loop_start()
        try:
            with followed(b1, "--host", "b2", "--kind", "host joined", "--kind", "subscribed") as following:
                assert following()["kind"] == "host joined"  # it was before
                subscriber.subscribe("meters/+/power", 1)
                assert following()["what"] == "meters/+/power"
            until(lambda: recorded(b1, kind="joined", host="b2", face="mqtt", who="meter-1"))
            until(lambda: recorded(b1, kind="subscribed", host="b2", what="meters/+/power"))
        finally:
            subscriber.disconnect()
            subscriber.loop_stop()
        until(lambda: recorded(b1, kind="left", host="b2", face="mqtt", who="meter-1"))
        producer = KafkaProducer(bootstrap_servers=b1.ready["kafka"], client_id="till-7")
        producer.send("sales", b"x").get(PATIENCE_S)
        producer.close()
        until(lambda: recorded(b2, kind="left", host="b1", face="kafka", who="till-7"))
        until(lambda: recorded(b2, kind="created", what="topic sales"))
        found = events(b1)
        assert [one.number for one in found] == list(range(1, len(found) + 1))
        assert [one.host for one in found if one.kind == "host joined"] == ["b1", "b2"]
