"""`amq.topic` in memory, beside a hub: names, interest, and the conversion of properties."""

from __future__ import annotations

import pytest
from pamqp import commands
from tests.unit.amqp.face import Basic, MemoryHost
from tests.unit.recorded import Topics

from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    PubSubSettings,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.broker.queues import Run
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.wire.mqtt_headers import headers_of, properties_of
from treecast.shims.amqp.bridge import TopicBridge, topic_of, wish_of


class Listener(Subscriber):
    def __init__(self, hub: PubSub, filter: bytes) -> None:
        super().__init__(hub.routes.next_serial())
        self.got: list[Message] = []
        hub.subscribe(Subscription(self, filter, qos=2))

    def take(self, message: Message, target: Target) -> None:
        self.got.append(message)


@pytest.fixture
def hub() -> PubSub:
    return PubSub(PubSubSettings(), PubSubCounters())


@pytest.fixture
def bridge(host: MemoryHost, hub: PubSub) -> TopicBridge:
    return TopicBridge(hub, host.vhost, lambda: host.now)


def publish(hub: PubSub, topic: bytes, payload: bytes = b"x", **options: object) -> None:
    message = Message(topic, payload, **options)  # type: ignore[arg-type]
    hub.publish(message, hub.routes.targets(topic), None)


@pytest.mark.parametrize(
    ("key", "topic", "filter"),
    [
        (b"a.b.c", b"a/b/c", b"a/b/c"),
        (b"a.*.c", b"", b"a/+/c"),
        (b"a.#", b"", b"a/#"),
        (b"#", b"", b"#"),
        (b"a.#.b", b"", b"a/#"),
        (b"a-x2Eb.c", b"a.b/c", b"a.b/c"),
        (b".a.", b"/a/", b"/a/"),
        (b"$SYS.x", b"", b""),
        (b"a+b", b"", b""),
        (b"a/b", b"", b""),
        (b"\xff", b"", b""),
        (b"", b"", b""),
    ],
)
def test_names(key: bytes, topic: bytes, filter: bytes) -> None:
    if topic:
        assert topic_of(key) == topic
    wish = wish_of(key)
    assert (wish.filter if wish is not None else b"") == filter


def test_bindings_are_interest(host: MemoryHost, hub: PubSub, bridge: TopicBridge) -> None:
    client = host.client()
    client.declare("q")
    client.bind("amq.topic", "q", "a.*")
    client.bind("amq.topic", "q", "a.#.z")
    assert sorted([wish.filter for wish in hub.wishes]) == [b"a/#", b"a/+"]
    publish(hub, b"a/b", b"one")
    publish(hub, b"a/b/c", b"not bound")
    publish(hub, b"a/b/c/z", b"two")
    publish(hub, b"b/c", b"other")
    assert client.count() == 2
    client.send(Basic.Consume(queue="q", no_ack=True))
    first, second = client.got()[1:]
    assert (first.body, first.method.routing_key) == (b"one", "a.b")
    assert (second.body, second.method.routing_key) == (b"two", "a.b.c.z")
    client.ask(unbind("a.*"), host_answer())
    assert [wish.filter for wish in hub.wishes] == [b"a/#"]
    bridge.close()
    assert [wish.filter for wish in hub.wishes] == []


def unbind(key: str):  # type: ignore[no-untyped-def]
    from pamqp import commands

    return commands.Queue.Unbind(queue="q", exchange="amq.topic", routing_key=key)


def host_answer():  # type: ignore[no-untyped-def]
    from pamqp import commands

    return commands.Queue.UnbindOk


def test_a_publish_reaches_other_faces_and_its_own_queues_once(
    host: MemoryHost, hub: PubSub, bridge: TopicBridge
) -> None:
    listener = Listener(hub, b"a/#")
    client = host.client()
    client.declare("q")
    client.bind("amq.topic", "q", "a.b")
    properties = {"delivery_mode": 2, "content_type": "text/plain", "correlation_id": "c"}
    properties["expiration"] = "5000"
    client.publish("a.b", b"one", exchange="amq.topic", headers={"n": 1, "s": "t"}, **properties)
    client.publish("a.c", b"two", exchange="amq.topic")
    client.publish("a.d", b"elsewhere", exchange="amq.direct")
    assert [(one.topic, one.payload, one.qos) for one in listener.got] == [
        (b"a/b", b"one", 1),
        (b"a/c", b"two", 0),
    ]
    assert headers_of(listener.got[0].properties) == (
        ("mqtt.content-type", b"text/plain"),
        ("mqtt.correlation-data", b"c"),
        ("n", b"1"),
        ("s", b"t"),
    )
    assert listener.got[0].expires_at == host.vhost.wall + 5  # the hub's clock may be behind
    assert client.count() == 1


def test_what_nobody_wants_is_returned(host: MemoryHost, hub: PubSub, bridge: TopicBridge) -> None:
    client = host.client()
    client.publish("a.b", b"one", exchange="amq.topic", mandatory=True)
    (returned,) = client.messages()
    assert returned.body == b"one"
    Listener(hub, b"a/b")
    client.publish("a.b", b"two", exchange="amq.topic", mandatory=True)
    assert client.messages() == []


def test_what_others_say_is_shown(host: MemoryHost, hub: PubSub, bridge: TopicBridge) -> None:
    client = host.client()
    client.declare("q")
    client.bind("amq.topic", "q", "#")
    said = [("mqtt.content-type", b"t/p"), ("mqtt.correlation-data", b"c"), ("user", b"v")]
    said.append(("mqtt.user.mqtt.x", b"y"))
    publish(hub, b"a/b", properties=properties_of(said), qos=1)
    client.send(Basic.Get(queue="q", no_ack=True))
    (got,) = client.messages()
    assert got.properties.content_type == "t/p"
    assert got.properties.correlation_id == "c"
    assert got.headers == {"user": "v", "mqtt.user.mqtt.x": "y"}
    assert got.properties.delivery_mode == 2
    publish(hub, b"a/b", qos=0)
    client.send(Basic.Get(queue="q", no_ack=True))
    (got,) = client.messages()
    assert got.properties.delivery_mode is None


def test_an_expiry_goes_on_in_the_queue(host: MemoryHost, hub: PubSub, bridge: TopicBridge) -> None:
    client = host.client()
    client.declare("q")
    client.bind("amq.topic", "q", "#")
    publish(hub, b"a/b", expires_at=hub.clock.wall + 5)
    host.wait(4.9)
    assert client.count() == 1
    host.wait(0.2)
    assert client.count() == 0


@pytest.mark.parametrize("mode", [1, 2])
def test_what_cannot_be_recorded_is_not_confirmed(
    host: MemoryHost, hub: PubSub, bridge: TopicBridge, mode: int
) -> None:
    recorder = Topics(b"a/b")
    hub.routes.use_recorder(recorder)
    client = host.client()
    client.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("a.b", b"1", b"too large", b"2", b"3", exchange="amq.topic", delivery_mode=mode)
    confirms = [(type(one), one.delivery_tag, one.multiple) for one in client.got()]  # type: ignore[attr-defined]
    assert confirms == [(Basic.Ack, 1, False), (Basic.Nack, 2, False), (Basic.Ack, 4, True)]
    assert recorder.payloads == [b"1", b"2", b"3"]


def test_a_transaction_says_what_cannot_be_recorded(
    host: MemoryHost, hub: PubSub, bridge: TopicBridge
) -> None:
    hub.routes.use_recorder(Topics(b"a/b"))
    client = host.client()
    client.ask(commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish("a.b", b"too large", exchange="amq.topic")
    client.send(commands.Tx.Commit())
    assert client.closed() == (1, 406)


def test_each_of_several_keys_goes_its_own_way_once(
    host: MemoryHost, hub: PubSub, bridge: TopicBridge
) -> None:
    """By the key of a recorded topic, queues get a message when it is recorded; by other keys at once."""
    recorder = Topics(b"a/b", b"a/c")
    hub.routes.use_recorder(recorder)
    client = host.client()
    for key in ("a.b", "a.c", "a.d"):
        client.declare(key)
        client.bind("amq.topic", key, key)
    client.publish("a.b", b"x", exchange="amq.topic", headers={"CC": ["a.d"], "BCC": ["a.c"]})
    assert [client.count(key) for key in ("a.b", "a.c", "a.d")] == [0, 0, 1]
    assert sorted(topic for topic, _, _ in recorder.got) == [b"a/b", b"a/c"]


def test_what_a_message_would_reach(host: MemoryHost, hub: PubSub, bridge: TopicBridge) -> None:
    client = host.client()
    client.declare("q")
    client.bind("amq.topic", "q", "#")

    def reached(key: bytes, *copies: bytes) -> tuple[list[bytes], list[bytes]]:
        run = Run(b"amq.topic", key, b"", 1, 0, copies=copies)
        return [queue.name for queue in host.vhost.queues_for(run)], bridge.topics(run)

    assert reached(b"a.b", b"a.c", b"a+b") == ([b"q"], [b"a/b", b"a/c"])
    hub.routes.use_recorder(Topics(b"a/b"))
    assert reached(b"a.b") == ([], [b"a/b"])  # the queue gets it when it is recorded
    assert reached(b"a.b", b"a.c") == ([b"q"], [b"a/b", b"a/c"])
    assert [queue.name for queue in host.vhost.queues_for(Run(b"", b"q", b"", 1, 0))] == [b"q"]
    assert client.count() == 0


def test_channels_are_lanes(host: MemoryHost, hub: PubSub, bridge: TopicBridge) -> None:
    recorder = Topics(b"a/b")
    hub.routes.use_recorder(recorder)
    for client in (host.client(1, 2), host.client(1)):
        client.publish("a.b", b"1", exchange="amq.topic")
        client.publish("a.b", b"2", exchange="amq.topic", channel=1)
    first = host.client(1, 2)
    first.publish("a.b", b"3", exchange="amq.topic", channel=2)
    lanes = [lane for _, _, lane in recorder.got]
    assert lanes[0] == lanes[1] != lanes[2] == lanes[3] != lanes[4]
    assert recorder.lane == b""
