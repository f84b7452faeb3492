"""One topic shared by MQTT and Kafka: the cells of docs/faces/matrix.md with real clients, on one host and
two."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.clients.mqtt.paho_client import Newer

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.daemon.process import DaemonProcess

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
IMPLEMENTATION_ERROR = 0x83  # reason of a PUBACK

Connect = Callable[..., Newer]


@pytest.fixture
def connect(clients: list[Any]) -> Connect:
    def client(daemon: DaemonProcess, name: str, *, lasting: bool = False) -> Newer:
        made = Newer(daemon, name, lasting=lasting)
        clients.append(made)
        return made

    return client


def create(hosts: Sequence[DaemonProcess], topic: str, partitions: int = 2, *leaders: str) -> None:
    """Creates a topic; returns when both hosts know it."""
    with DaemonClient(hosts[0].control) as client:
        client.create_topic(topic, partitions, leaders=leaders)
    until_known(hosts[1], topic, partitions)


def until_known(daemon: DaemonProcess, topic: str, partitions: int) -> None:
    end = time.monotonic() + PATIENCE_S
    with DaemonClient(daemon.control) as client:
        while (topic, partitions) not in {(known.name, known.partitions) for known in client.list_topics()}:
            assert time.monotonic() < end
            time.sleep(0.02)


def produce(daemon: DaemonProcess, topic: str, *records: dict[str, Any]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": daemon.kafka, "linger.ms": 1})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(PATIENCE_S) == 0


def consume(daemon: DaemonProcess, topic: str, count: int, partitions: int = 2) -> list[Any]:
    """Returns `count` records, and checks that no more have arrived by then."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": daemon.kafka, "group.id": "unused", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(partitions)])
    found: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count}"
        found += [one for one in consumer.consume(100, 0.2) if one.error() is None]
    ends = [
        consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, n)) for n in range(partitions)
    ]
    consumer.close()
    assert sum(high - low for low, high in ends) == count
    return found


@pytest.mark.parametrize(("publisher", "reader"), [(0, 0), (0, 1), (1, 0)])
def test_a_publish_is_recorded_and_handed_out_once(
    hosts: list[DaemonProcess], connect: Connect, publisher: int, reader: int
) -> None:
    topic = f"once-{publisher}-{reader}.x"
    create(hosts, topic)
    name = topic.replace(".", "/")
    subscribers = [connect(host, f"s{topic}{n}") for n, host in enumerate(hosts)]
    for subscriber in subscribers:
        subscriber.subscribe(name)
        subscriber.subscribe("end")
    client = connect(hosts[publisher], f"p{topic}")
    for number in range(30):
        client.publish(name, b"%d" % number, number % 3)
    payloads = [b"%d" % number for number in range(30)]
    for subscriber in subscribers:
        assert sorted(subscriber.payloads(30)) == sorted(payloads)
    assert sorted(one.value() for one in consume(hosts[reader], topic, 30)) == sorted(payloads)
    client.publish("end", b"end")
    for subscriber in subscribers:
        assert subscriber.payloads(1) == [b"end"]


@pytest.mark.parametrize("producer", [0, 1])
def test_a_record_is_published_to_subscribers_of_all_hosts_once(
    hosts: list[DaemonProcess], connect: Connect, producer: int
) -> None:
    topic = f"records{producer}.x"
    create(hosts, topic)
    subscribers = [connect(host, f"r{producer}{n}") for n, host in enumerate(hosts)]
    for subscriber in subscribers:
        subscriber.subscribe(f"records{producer}/+")
        subscriber.subscribe("end")
    produce(hosts[producer], topic, *({"value": b"%d" % n, "partition": n % 2} for n in range(50)))
    for subscriber in subscribers:
        assert sorted(subscriber.payloads(50)) == sorted(b"%d" % n for n in range(50))
    subscribers[0].publish("end", b"end")
    for subscriber in subscribers:
        assert subscriber.payloads(1) == [b"end"]
    consume(hosts[0], topic, 50)  # subscribers' hosts wrote nothing back


def test_what_becomes_of_a_records_key_headers_and_value(
    hosts: list[DaemonProcess], connect: Connect
) -> None:
    create(hosts, "cells.k", 1)
    client = connect(hosts[0], "cells")
    client.subscribe("cells/k")
    headers = [("plain", b"text"), ("mqtt.content-type", b"text/plain"), ("bytes", b"\xff")]
    produce(hosts[0], "cells.k", {"key": b"key", "value": b"v", "headers": headers}, {"value": None})
    first, second = client.next(), client.next()
    assert (first.topic, first.payload, first.qos, first.retain) == ("cells/k", b"v", 1, False)
    assert first.properties.UserProperty == [("plain", "text")]  # the key and non-text headers are left out
    assert first.properties.ContentType == "text/plain"
    assert second.payload == b""


def test_what_becomes_of_qos_properties_expiry_and_retain(
    hosts: list[DaemonProcess], connect: Connect
) -> None:
    create(hosts, "cells.m", 1)
    client, other = connect(hosts[0], "publisher"), connect(hosts[1], "other")
    other.subscribe("cells/m")
    given = Properties(PacketTypes.PUBLISH)
    given.UserProperty = [("a", "1"), ("a", "2")]
    given.ContentType, given.ResponseTopic = "text/plain", "reply/to"
    given.CorrelationData, given.PayloadFormatIndicator = b"\x01\x02", 1
    given.MessageExpiryInterval = 1000
    client.publish("cells/m", b"v", 2, retain=True, properties=given)
    (record,) = consume(hosts[1], "cells.m", 1, 1)
    headers = dict(record.headers())
    assert (record.key(), record.value()) == (None, b"v")
    assert [value for name, value in record.headers() if name == "a"] == [b"1", b"2"]
    assert (headers["mqtt.qos"], headers["mqtt.client"]) == (b"2", b"1/publisher")
    assert headers["mqtt.response-topic"] == b"reply/to"
    assert headers["mqtt.payload-format"] == b"\x01"
    assert int(headers["mqtt.expires"]) > time.time() * 1000
    message = other.next()
    assert (message.qos, message.payload) == (2, b"v")
    assert message.properties.UserProperty == [("a", "1"), ("a", "2")]
    assert message.properties.CorrelationData == b"\x01\x02"
    assert 900 < message.properties.MessageExpiryInterval <= 1000
    later = connect(hosts[1], "later")
    later.subscribe("cells/m")
    kept = later.next()
    assert (kept.payload, kept.retain) == (b"v", True)
    client.publish("cells/m", b"", 1, retain=True)


def test_an_empty_payload_is_no_tombstone_and_the_timestamp_is_that_of_the_publish(
    hosts: list[DaemonProcess], connect: Connect
) -> None:
    create(hosts, "cells.e", 1)
    before = time.time() * 1000
    connect(hosts[1], "empty").publish("cells/e", b"")
    (record,) = consume(hosts[0], "cells.e", 1, 1)
    assert record.value() == b""
    _, stamp = record.timestamp()
    assert before - 1 <= stamp <= time.time() * 1000


def refused(log: str) -> bool:
    """Whether a line says that a message of cells.c-0 cannot be recorded."""
    words = ("message cannot be recorded", "INVALID_RECORD", "cells.c-0")
    return any(all(word in line for word in words) for line in log.splitlines())


def test_a_compacted_topic_refuses_what_has_no_key(hosts: list[DaemonProcess], connect: Connect) -> None:
    with DaemonClient(hosts[0].control) as control:
        control.create_topic("cells.c", 1, {"cleanup.policy": "compact"}, leaders=("a",))
    publisher = connect(hosts[0], "keyless")
    assert publisher.publish("cells/c", b"keyless") == IMPLEMENTATION_ERROR
    end = time.monotonic() + PATIENCE_S
    while not refused(hosts[0].log()):
        assert time.monotonic() < end
        time.sleep(0.05)
    produce(hosts[0], "cells.c", {"key": b"k", "value": b"v"})
    (record,) = consume(hosts[0], "cells.c", 1, 1)
    assert record.value() == b"v"


def test_subscribers_get_what_a_transaction_commits_and_nothing_that_it_aborts(
    hosts: list[DaemonProcess], connect: Connect
) -> None:
    create(hosts, "cells.t", 1, "a")
    subscribers = [connect(host, f"t{n}") for n, host in enumerate(hosts)]
    for subscriber in subscribers:
        subscriber.subscribe("cells/t")
    producer = confluent_kafka.Producer({"bootstrap.servers": hosts[1].kafka, "transactional.id": "cells"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("cells.t", b"aborted")
    producer.flush(PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("cells.t", b"committed")
    producer.commit_transaction(PATIENCE_S)
    for subscriber in subscribers:
        assert subscriber.payloads(1) == [b"committed"]


def test_no_local_holds_where_the_topic_is_recorded(hosts: list[DaemonProcess], connect: Connect) -> None:
    create(hosts, "nolocal.x", 1)
    one, two = connect(hosts[0], "one"), connect(hosts[0], "two")
    one.subscribe("nolocal/x", noLocal=True)
    two.subscribe("nolocal/x")
    one.publish("nolocal/x", b"of one")
    two.publish("nolocal/x", b"of two")
    assert two.payloads(2) == [b"of one", b"of two"]
    assert one.payloads(1) == [b"of two"]


def test_topics_that_kafka_does_not_have_are_not_recorded(
    hosts: list[DaemonProcess], connect: Connect
) -> None:
    client = connect(hosts[0], "not")
    client.subscribe("not/recorded")
    client.publish("not/recorded", b"1")
    assert client.payloads(1) == [b"1"]
    with DaemonClient(hosts[0].control) as control:
        assert "not.recorded" not in {topic.name for topic in control.list_topics()}
        control.create_topic("not.recorded", 1)
        client.publish("not/recorded", b"2")
        assert client.payloads(1) == [b"2"]
        (record,) = consume(hosts[0], "not.recorded", 1, 1)
        assert record.value() == b"2"
        control.delete_topic("not.recorded")
    client.publish("not/recorded", b"3")
    assert client.payloads(1) == [b"3"]


def test_who_subscribed_before_a_topic_or_its_partitions_were_made_gets_their_first_records(
    hosts: list[DaemonProcess], connect: Connect
) -> None:
    clients = [connect(daemon, f"before-{n}") for n, daemon in enumerate(hosts)]
    for client in clients:
        client.subscribe("before/+", 1)
    create(hosts, "before.x", 1, "b")
    produce(hosts[1], "before.x", *({"value": b"%d" % n} for n in range(20)))
    for client in clients:
        assert client.payloads(20) == [b"%d" % n for n in range(20)]
    with DaemonClient(hosts[0].control) as control:
        control.create_partitions("before.x", 2)
    until_known(hosts[1], "before.x", 2)
    produce(hosts[1], "before.x", *({"value": b"%d" % n, "partition": 1} for n in range(20)))
    for client in clients:
        assert client.payloads(20) == [b"%d" % n for n in range(20)]


def test_a_session_that_lasts_gets_records_of_the_time_when_its_daemon_was_killed(
    hosts: list[DaemonProcess], connect: Connect, tmp_path: Path
) -> None:
    create(hosts, "lasting.x", 1, "a")
    client = connect(hosts[1], "lasting", lasting=True)
    client.subscribe("lasting/x", 1)
    produce(hosts[0], "lasting.x", {"value": b"0"})
    assert client.payloads(1) == [b"0"]
    client.close()
    hosts[1].pin_ports()
    hosts[1].kill()
    produce(hosts[0], "lasting.x", *({"value": b"%d" % n} for n in range(1, 20)))
    hosts[1].start()
    again = connect(hosts[1], "lasting", lasting=True)
    got = [again.next()]
    while got[-1].payload != b"19":
        got.append(again.next())
    fresh = [one.payload for one in got if one.payload != b"0"]  # record 0 may not have been acknowledged
    assert fresh == [b"%d" % n for n in range(1, 20)]


def test_what_was_acknowledged_while_the_leader_was_away_is_recorded_once(
    hosts: list[DaemonProcess], connect: Connect
) -> None:
    """The publisher's daemon spools them, is killed, and delivers them to the leader when both are back."""
    create(hosts, "spooled.x", 1, "b")
    client = connect(hosts[0], "spooling")
    client.publish("spooled/x", b"0", 2)
    consume(hosts[0], "spooled.x", 1, 1)
    for host in hosts:
        host.pin_ports()
    hosts[1].kill()
    for number in range(1, 20):
        client.publish("spooled/x", b"%d" % number, 1 + number % 2)
    hosts[0].kill()
    hosts[0].start()
    hosts[1].start()
    payloads = [one.value() for one in consume(hosts[0], "spooled.x", 20, 1)]
    assert payloads == [b"%d" % number for number in range(20)]
