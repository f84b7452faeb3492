"""Both ends of MQTT joined in memory: the agent's session and the face's. Their bytes are cut anywhere."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.agents.common.status import AgentCounters
from treecast.agents.mosquitto.session import Accepted, ClientSession, Ended, Granted, LogIn
from treecast.agents.mosquitto.session_table import ALLOWED
from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    PubSubSettings,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.model.counters import PubSubCounters
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311, MqttError
from treecast.shims.mqtt.codec_packets import Ack, Connack, Disconnect, Suback, encode
from treecast.shims.mqtt.codec_properties import Properties
from treecast.shims.mqtt.session import Session
from treecast.shims.mqtt.session_output import UNPLUGGED, Outputs
from treecast.shims.mqtt.session_publishing import MqttCounting
from treecast.shims.mqtt.session_table import CLOSED, NEW, OPEN
from treecast.shims.mqtt.sessions import Sessions
from treecast.shims.mqtt.settings import MqttSettings

VERSIONS = pytest.mark.parametrize("version", [V5, V311])


class Taker(Subscriber):
    def __init__(self, hub: PubSub, filter: bytes) -> None:
        super().__init__(hub.routes.next_serial())
        self.got: list[tuple[bytes, bytes, int, bool]] = []
        hub.subscribe(Subscription(self, filter, 2, False, True))

    def take(self, message: Message, target: Target) -> None:
        self.got.append((message.topic, message.payload, message.qos, message.retain))


def new_hub() -> PubSub:
    return PubSub(PubSubSettings(), PubSubCounters())


class Joined:
    """An agent's session (`near`) and a server's (`far`), and a hub behind each."""

    def __init__(self, version: int, seed: int = 0, keep_alive: int = 10) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.far_hub, self.front, self.own = new_hub(), new_hub(), new_hub()
        self.taken = Taker(self.front, b"#")
        self.counters = AgentCounters()
        self.near_outputs, self.far_outputs = Outputs(lambda: None), Outputs(lambda: None)
        far = Sessions(self.far_hub, MqttSettings(), self.rng)
        self.far = Session(far, self.far_outputs, MqttCounting(), 0.0)
        self.near = ClientSession(
            LogIn("agent", version, keep_alive=keep_alive),
            Sessions(self.own, MqttSettings(), self.rng),
            Sessions(self.front, MqttSettings(), self.rng),
            self.near_outputs,
            UNPLUGGED,
            0.0,
            self.counters,
        )
        self.near.begin()

    def run(self) -> list[object]:
        """Carries bytes until neither end has any more. Returns the events of the agent."""
        events: list[object] = []
        while True:
            out = b"".join(chunk for one in self.near_outputs.take() for chunk in one.take())
            for piece in self.pieces(out):
                self.far.receive(piece, self.now)
            back = b"".join(chunk for one in self.far_outputs.take() for chunk in one.take())
            for piece in self.pieces(back):
                events += self.near.receive(piece, self.now)
            if not out and not back:
                return events

    def pieces(self, data: bytes) -> list[bytes]:
        cuts = sorted(self.rng.randrange(len(data) + 1) for _ in range(self.rng.randrange(4))) if data else []
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


@VERSIONS
def test_log_in_and_subscription(version: int) -> None:
    joined = Joined(version)
    assert joined.run() == [Accepted(False)]
    joined.near.subscribe({b"a/#": 1, b"b": 2}, again=False)
    assert joined.run() == [Granted([])]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([V5, V311]),
    st.integers(0, 1000),
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.binary(max_size=200)), max_size=30),
)
def test_messages_cross_both_ways_however_the_bytes_are_cut(
    version: int, seed: int, messages: list[tuple[int, bool, bytes]]
) -> None:
    joined = Joined(version, seed)
    joined.run()
    joined.near.subscribe({b"to/#": 2}, again=False)
    joined.run()
    there = Taker(joined.far_hub, b"from/#")
    state = joined.near.connection.state
    assert state is not None
    for number, (qos, retain, payload) in enumerate(messages):
        hub, topic = joined.far_hub, b"to/%d" % number
        hub.publish(Message(topic, payload, qos, retain), hub.routes.targets(topic), None)
        state.hand_over(Message(b"from/%d" % number, payload, qos, retain), qos, retain, ())
    joined.run()
    expected = [(payload, qos, retain) for qos, retain, payload in messages]
    for prefix, taker in ((b"to", joined.taken), (b"from", there)):
        got = {topic: rest for topic, *rest in taker.got}
        assert len(taker.got) == len(messages)
        assert [tuple(got[b"%s/%d" % (prefix, n)]) for n in range(len(messages))] == expected
    assert state.unsettled() == []


@VERSIONS
def test_what_is_held_gets_no_acknowledgement_and_comes_in_order_later(version: int) -> None:
    joined = Joined(version)
    joined.run()
    joined.near.subscribe({b"to/#": 1}, again=False)
    joined.run()
    joined.near.hold(True, 0.0)
    for number in range(5):
        joined.far_hub.publish(
            Message(b"to/x", b"%d" % number, number % 2), joined.far_hub.routes.targets(b"to/x"), None
        )
    joined.run()
    assert joined.taken.got == []
    assert joined.counters.refused_here == {"it has QoS 0, and other sites do not take more": 3}
    far = joined.far.connection.state
    assert far is not None
    assert len(far.unsettled()) == 2
    joined.near.hold(False, 0.0)
    joined.run()
    assert [payload for _, payload, _, _ in joined.taken.got] == [b"1", b"3"]
    assert far.unsettled() == []


def test_refusals_are_counted_and_named() -> None:
    joined = Joined(V5)
    joined.run()
    state = joined.near.connection.state
    assert state is not None
    for qos, kind in ((1, codec.PUBACK), (2, codec.PUBREC)):
        state.hand_over(Message(b"t", b"", qos), qos, False, ())
        packet_id = state.unsettled()[0].packet_id
        joined.near.receive(encode(Ack(kind, packet_id, codec.NOT_AUTHORIZED), V5), 0.0)
        assert state.unsettled() == []
    assert joined.counters.refused_there == {"the broker refuses it: reason 0x87": 2}


@pytest.mark.parametrize(
    ("version", "answer", "text"),
    [
        (V5, Connack(False, codec.BAD_CREDENTIALS), "user name or password"),
        (V5, Connack(False, codec.QUOTA_EXCEEDED, Properties(reason_string="too many")), "too many"),
        (V311, Connack(False, 5), "refuses the agent's user"),
        (V311, Connack(False, 99), "0x63"),
    ],
)
def test_a_broker_that_refuses_says_why(version: int, answer: Connack, text: str) -> None:
    joined = Joined(version)
    (event,) = joined.near.receive(encode(answer, version), 0.0)
    assert isinstance(event, Ended)
    assert text in event.text
    assert joined.near.output.phase == CLOSED


def test_filters_that_are_refused_are_named() -> None:
    joined = Joined(V5)
    joined.run()
    joined.near.subscribe({b"a": 1, b"b": 1}, again=False)
    (event,) = joined.near.receive(encode(Suback(codec.SUBACK, 0xFFFF, b"\x01\x87"), V5), 0.0)
    assert event == Granted([b"b"])


def test_being_taken_over_is_another_agent() -> None:
    joined = Joined(V5)
    joined.run()
    (event,) = joined.near.receive(encode(Disconnect(codec.TAKEN_OVER), V5), 0.0)
    assert isinstance(event, Ended)
    assert "another agent" in event.text


def test_a_silent_broker_is_left() -> None:
    joined = Joined(V5)
    ended = joined.near.tick(31.0)
    assert ended is not None
    joined = Joined(V5)
    joined.run()
    for joined.now in (5.0, 10.0, 15.0):
        assert joined.near.tick(joined.now) is None
        joined.run()
    assert joined.near.heard == 15.0
    assert joined.near.tick(25.0) is None
    assert joined.near.tick(31.0) is not None


def test_every_packet_is_listed_or_refused() -> None:
    assert set(ALLOWED) == {NEW, OPEN, CLOSED}
    for kind in range(16):
        if kind not in ALLOWED[NEW]:
            joined = Joined(V5)
            with pytest.raises(MqttError):
                joined.near.receive(bytes([kind << 4, 0]), 0.0)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_a_protocol_error_at_most(data: bytes) -> None:
    joined = Joined(V5)
    joined.run()
    try:
        joined.near.receive(data, 0.0)
    except MqttError:
        return
