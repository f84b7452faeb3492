"""Subscriptions with a filter on the messages: the user property `x-treecast-filter` of SUBSCRIBE."""

from __future__ import annotations

import pytest
from tests.unit.mqtt.face import Client, MemoryHost

from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.schemas.check import check_filter
from treecast.middleware.filters.schemas.reader import SchemaReader
from treecast.middleware.model.topic_schema import SchemaVersion, TopicSchema, read_fields
from treecast.middleware.model.wishes import ContentFilter, RecordSchema
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec_packets import FilterRequest, Publish, Suback, Subscribe
from treecast.shims.mqtt.codec_properties import Properties
from treecast.shims.mqtt.subscribing import FILTER


def subscribed(client: Client, content: str, *topics: str, qos: int = 1, no_local: bool = False) -> Suback:
    requests = tuple(FilterRequest(topic.encode(), qos, no_local) for topic in topics)
    client.send(Subscribe(client.next_id(), requests, Properties(user=((FILTER, content),))))
    found = [one for one in client.got() if isinstance(one, Suback)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_gets_the_messages_that_pass(host: MemoryHost, qos: int) -> None:
    client, all_of_them = host.connected("c"), host.connected("d")
    assert subscribed(client, "price > 50 and headers.unit == EUR", "stock/+", qos=qos).reasons == bytes(
        [qos]
    )
    all_of_them.subscribe("stock/+", qos=qos)
    publisher = host.connected("p")
    for price, unit in ((60, "EUR"), (40, "EUR"), (70, "USD"), (80, "EUR")):
        publisher.publish("stock/a", b'{"price": %d}' % price, qos, user=(("unit", unit),))
    publisher.publish("stock/a", b"no object", qos)
    publisher.publish("news", b'{"price": 99}', qos, user=(("unit", "EUR"),))
    assert client.payloads() == [b'{"price": 60}', b'{"price": 80}']
    assert len(all_of_them.payloads()) == 5


@pytest.mark.parametrize("qos", [0, 1])
def test_a_run_is_looked_at_message_by_message(host: MemoryHost, qos: int) -> None:
    """Publishes that arrive in one chunk are one run for subscribers without a filter."""
    client, publisher = host.connected("c"), host.connected("p")
    subscribed(client, "n >= 3", "t")
    publisher.send(
        *[Publish(b"t", b'{"n": %d}' % n, qos, packet_id=publisher.next_id() if qos else 0) for n in range(6)]
    )
    assert client.payloads() == [b'{"n": %d}' % n for n in (3, 4, 5)]


def test_of_overlapping_subscriptions_those_count_that_a_message_passes(host: MemoryHost) -> None:
    client, publisher = host.connected("c"), host.connected("p")
    client.subscribe("t/#", qos=0, identifier=1)
    requests = (FilterRequest(b"t/a", 1),)
    client.send(
        Subscribe(client.next_id(), requests, Properties(user=((FILTER, "n > 1"),), subscription_ids=(2,)))
    )
    client.got()
    publisher.publish("t/a", b'{"n": 1}', 1)
    publisher.publish("t/a", b'{"n": 2}', 1)
    found = [(one.payload, one.qos, one.properties.subscription_ids) for one in client.publishes()]
    assert found == [(b'{"n": 1}', 0, (1,)), (b'{"n": 2}', 1, (1, 2))]


def test_another_subscription_to_the_topics_replaces_the_filter(host: MemoryHost) -> None:
    client, publisher = host.connected("c"), host.connected("p")
    subscribed(client, "n > 1", "t")
    client.subscribe("t")
    publisher.publish("t", b'{"n": 1}')
    assert client.payloads() == [b'{"n": 1}']
    assert [wish.content for wish in host.hub.wishes] == [None]


def test_retained_messages_are_filtered_too(host: MemoryHost) -> None:
    publisher = host.connected("p")
    for n in range(3):
        publisher.publish(f"t/{n}", b'{"n": %d}' % n, retain=True)
    client = host.connected("c")
    client.send(
        Subscribe(client.next_id(), (FilterRequest(b"t/#", 1),), Properties(user=((FILTER, "n == 1"),)))
    )
    assert [one.payload for one in client.got() if isinstance(one, Publish)] == [b'{"n": 1}']


def test_a_filter_is_there_after_a_kill(durable: MemoryHost) -> None:
    client = durable.connected("s", clean=False, session_expiry=1000)
    subscribed(client, "n > 1", "t")
    client.drop()
    durable.crash()
    publisher = durable.connected("p")
    for n in range(4):
        publisher.publish("t", b'{"n": %d}' % n, 1)
    again = durable.client()
    again.connect("s", clean=False, session_expiry=1000)
    assert again.payloads() == [b'{"n": 2}', b'{"n": 3}']


def test_a_filter_that_was_taken_back_stays_so_after_a_kill(durable: MemoryHost) -> None:
    client = durable.connected("s", clean=False, session_expiry=1000)
    subscribed(client, "n > 1", "t")
    client.subscribe("t", qos=1)
    client.drop()
    durable.crash()
    durable.connected("p").publish("t", b'{"n": 1}', 1)
    again = durable.client()
    again.connect("s", clean=False, session_expiry=1000)
    assert again.payloads() == [b'{"n": 1}']


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("price >", "a number or a string is wanted, but the filter ends"),
        ("avg(price) > 60", "avg(price) needs state"),
        ("a == " + "9" * 5000, "a filter of a subscription has at most 4,096 characters: shorten it"),
    ],
)
def test_a_bad_filter_refuses_the_subscriptions_and_says_why(
    host: MemoryHost, content: str, reason: str
) -> None:
    client = host.connected("c")
    answer = subscribed(client, content, "a", "b")
    assert answer.reasons == bytes([codec.IMPLEMENTATION_ERROR] * 2)
    assert answer.properties.reason_string is not None
    assert answer.properties.reason_string.startswith(reason)
    assert host.hub.wishes == []


def test_two_filters_and_shared_subscriptions_with_one_are_refused(host: MemoryHost) -> None:
    client = host.connected("c")
    both = Properties(user=((FILTER, "a == 1"), (FILTER, "b == 1")))
    client.send(Subscribe(client.next_id(), (FilterRequest(b"t", 0),), both))
    (answer,) = client.got()
    assert isinstance(answer, Suback)
    assert answer.reasons == bytes([codec.IMPLEMENTATION_ERROR])
    assert subscribed(client, "a == 1", "$share/g/t", "t").reasons == bytes([codec.IMPLEMENTATION_ERROR, 1])


class _Orders:
    """The topic `orders` has a schema."""

    def __init__(self) -> None:
        self.reader = SchemaReader(TopicSchema("fixed", (SchemaVersion(read_fields("price:u16")),)))
        self.counted: list[str] = []

    def of(self, topic: str) -> RecordSchema | None:
        return self.reader if topic == "orders" else None

    def unmet(self, topic: str) -> None:
        self.counted.append(topic)

    def check(self, levels: tuple[str, ...], content: ContentFilter) -> None:
        assert isinstance(content, StatelessFilter)
        if levels == ("orders",):
            check_filter(content.tree, self.reader.schema)


def test_fields_are_those_that_the_topic_declares(host: MemoryHost) -> None:
    client, publisher, schemas = host.connected("c"), host.connected("p"), _Orders()
    host.hub.schemas = schemas
    subscribed(client, "price > 300", "#")
    for topic, payload in (("orders", b"\1\0"), ("orders", b"\2\0"), ("orders", b'{"price": 301}')):
        publisher.publish(topic, payload, 1)
    publisher.publish("bills", b'{"price": 301}', 1)
    assert client.payloads() == [b"\2\0", b'{"price": 301}']
    assert schemas.counted == ["orders"]


def test_a_filter_that_does_not_fit_the_topics_schema_is_refused(host: MemoryHost) -> None:
    client = host.connected("c")
    host.hub.schemas = _Orders()
    refused = subscribed(client, "prize > 300", "orders")
    assert refused.reasons == bytes([codec.IMPLEMENTATION_ERROR])
    assert "no field prize" in str(refused.properties.reason_string)
    assert subscribed(client, "prize > 300", "bills", "#").reasons == b"\1\1"
