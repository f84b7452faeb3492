"""Publishes to topics that refuse them: what the client is told, and what is left of them."""

from __future__ import annotations

import pytest
from tests.unit.mqtt.face import Client, MemoryHost, ended
from tests.unit.recorded import LARGE, Topics

from treecast.middleware.model.errors import Fault
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Ack, Publish

TOPIC = b"t"
TOO_LARGE = b"x" * LARGE


@pytest.fixture
def topics(durable: MemoryHost) -> Topics:
    found = Topics(TOPIC)
    durable.hub.routes.use_recorder(found)
    return found


def send(client: Client, payload: bytes, qos: int, packet_id: int, *, again: bool = False) -> None:
    client.send(Publish(TOPIC, payload, qos, False, again, packet_id))


def lasting(host: MemoryHost, version: int) -> Client:
    return host.connected("p", version, clean=False, **({"session_expiry": 1000} if version == V5 else {}))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.BATCH_TOO_LARGE, codec.QUOTA_EXCEEDED),
        (Fault.LEADER_UNAVAILABLE, codec.QUOTA_EXCEEDED),
        (Fault.INVALID_RECORD, codec.IMPLEMENTATION_ERROR),
    ],
)
@pytest.mark.parametrize("qos", [1, 2])
def test_version_5_is_told_why(
    durable: MemoryHost, topics: Topics, fault: Fault, reason: int, qos: int
) -> None:
    """Its packet id is free again at once, and the connection goes on."""
    client = lasting(durable, V5)
    kind = codec.PUBACK if qos == 1 else codec.PUBREC
    topics.fault = fault
    send(client, b"1", qos, 9)
    (answer,) = client.got()
    assert isinstance(answer, Ack)
    assert (answer.kind, answer.packet_id, answer.reason) == (kind, 9, reason)
    assert answer.properties.reason_string
    topics.fault = None
    durable.crash()  # the journal has given the id back, too
    durable.hub.routes.use_recorder(topics)
    client = lasting(durable, V5)
    send(client, b"2", qos, 9)
    client >> Ack(kind, 9)
    assert topics.payloads == [b"2"]


def test_in_a_row_only_what_is_refused_is_answered_so(durable: MemoryHost, topics: Topics) -> None:
    client = durable.connected("p")
    rows = [(b"1", 1), (TOO_LARGE, 2), (b"3", 3)]
    client.send(*[Publish(TOPIC, payload, 1, False, False, number) for payload, number in rows])
    answers = [(one.packet_id, one.reason) for one in client.got() if isinstance(one, Ack)]
    assert answers == [(1, 0), (2, codec.QUOTA_EXCEEDED), (3, 0)]
    assert topics.payloads == [b"1", b"3"]


@pytest.mark.parametrize("version", [V5, V311])
def test_what_is_refused_is_not_retained(durable: MemoryHost, topics: Topics, version: int) -> None:
    client = durable.connected("p", version)
    client.publish("t", b"1", 1, retain=True)
    client.publish("t", TOO_LARGE, 1, retain=True)
    client.got()
    retained = durable.hub.retained.get(TOPIC)
    assert retained is not None
    assert retained.payload == b"1"


@pytest.mark.parametrize("qos", [1, 2])
def test_version_311_is_not_told_what_is_never_taken(durable: MemoryHost, topics: Topics, qos: int) -> None:
    """As by Mosquitto. A client that was disconnected would repeat it, and nothing else."""
    client = lasting(durable, V311)
    send(client, TOO_LARGE, qos, 9)
    client >> Ack(codec.PUBACK if qos == 1 else codec.PUBREC, 9)
    if qos == 2:
        client.ack(codec.PUBREL, 9)
        client >> Ack(codec.PUBCOMP, 9)
    send(client, b"2", 1, 10)
    client >> Ack(codec.PUBACK, 10)
    assert topics.payloads == [b"2"]


@pytest.mark.parametrize("qos", [1, 2])
def test_version_311_repeats_what_may_be_taken_later(durable: MemoryHost, topics: Topics, qos: int) -> None:
    """Nothing is acknowledged that is not kept: the connection ends, and the packet id is free."""
    client = lasting(durable, V311)
    send(client, b"1", qos, 8)
    topics.fault = Fault.LEADER_UNAVAILABLE
    send(client, b"2", qos, 9)
    send(client, b"3", qos, 10)
    kind = codec.PUBACK if qos == 1 else codec.PUBREC
    client >> Ack(kind, 8)
    assert ended(client) is None
    client.drop()
    topics.fault = None
    durable.crash()
    durable.hub.routes.use_recorder(topics)
    client = lasting(durable, V311)
    send(client, b"2", qos, 9, again=True)
    client >> Ack(kind, 9)
    assert topics.payloads == [b"1", b"2"]


def test_qos_0_is_dropped(durable: MemoryHost, topics: Topics) -> None:
    client = durable.connected("p")
    client.publish("t", TOO_LARGE)
    client.publish("t", b"2")
    client >> []
    assert topics.payloads == [b"2"]
