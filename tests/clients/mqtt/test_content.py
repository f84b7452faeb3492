"""paho clients that subscribe with a filter on the messages, at one of two hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.clients.mqtt.paho_client import PATIENCE_S, Newer

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

FILTER = "price > 50 and headers.unit == EUR"
SENT = [(40, "EUR"), (60, "EUR"), (70, "USD"), (80, "EUR"), (99, "END")]


@pytest.fixture
def both(hosts: list[DaemonProcess]) -> Iterator[tuple[Newer, Newer]]:
    """A client at each host."""
    made = Newer(hosts[0], "content-here"), Newer(hosts[1], "content-there")
    yield made
    for client in made:
        client.close()


def subscribe(client: Newer, topic: str, text: str) -> list[int]:
    """Returns the reason codes."""
    given = Properties(PacketTypes.SUBSCRIBE)
    given.UserProperty = ("x-treecast-filter", text)
    client.paho.subscribe(topic, options=SubscribeOptions(1), properties=given)
    return [reason.value for reason in client.subscribed.get(timeout=PATIENCE_S)]


def publish(client: Newer, topic: str) -> None:
    for price, unit in SENT:
        given = Properties(PacketTypes.PUBLISH)
        given.UserProperty = ("unit", unit)
        client.publish(topic, b'{"price": %d}' % price, properties=given)


@pytest.mark.parametrize("publisher", [0, 1])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_subscriber_gets_exactly_the_messages_that_pass(
    hosts: list[DaemonProcess], both: tuple[Newer, Newer], publisher: int, recorded: bool
) -> None:
    """The partitions of a topic that Kafka has too feed its subscribers."""
    topic = f"content-{publisher}-{int(recorded)}"
    if recorded:
        with DaemonClient(hosts[0].control) as client:
            client.create_topic(topic, 1)
    assert subscribe(both[0], topic, f"({FILTER}) or headers.unit == END") == [1]
    publish(both[publisher], topic)
    found = both[0].payloads(3)
    assert found == [b'{"price": %d}' % price for price in (60, 80, 99)]


def test_a_bad_filter_is_refused(both: tuple[Newer, Newer]) -> None:
    assert subscribe(both[0], "content-bad", "price >") == [0x83]
