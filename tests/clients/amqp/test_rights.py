"""Rights that are taken away while clients are connected, at the host of the change and at another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pika
import pytest
from tests.clients.amqp.conftest import two_hosts
from tests.clients.amqp.test_management_hosts import ADMIN, call, closed, connected, filled, until

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

Name = Callable[[str], str]
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
NONE = {"configure": "", "write": "", "read": ""}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[DaemonProcess]]:
    with two_hosts(tmp_path_factory.mktemp("rights"), admin=ADMIN) as (first, second):
        yield [first, second]


def user(daemon: DaemonProcess, name: str, permission: dict[str, str], tags: str = "") -> None:
    assert call(daemon, "PUT", f"users/{name}", {"password": f"{name}-word", "tags": tags})[0] in (201, 204)
    assert call(daemon, "PUT", f"permissions/%2F/{name}", permission)[0] in (201, 204)


def refused(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str) -> bool:
    """Publishes. Returns whether the channel was closed for want of a right."""
    try:
        channel.basic_publish("", queue, b"x")
        channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        return bool(error.reply_code == 403)
    return False


@pytest.mark.parametrize("at", [0, 1])
def test_an_open_channel_loses_a_right(hosts: list[DaemonProcess], name: Name, at: int) -> None:
    """`at`: the host of the clients; the change is made at the first."""
    queue, ann, ben = name("queue"), name("ann"), name("ben")
    filled(hosts[0], queue, 0)
    for one in (ann, ben):
        user(hosts[0], one, ALL)
    channels = [connected(hosts[at], one).channel() for one in (ann, ben)]
    assert [refused(channel, queue) for channel in channels] == [False, False]
    user(hosts[0], ann, NONE)
    assert call(hosts[0], "DELETE", f"permissions/%2F/{ben}")[0] == 204
    assert [refused(channel, queue) for channel in channels] == [True, True]
    assert all(channel.connection.is_open for channel in channels)


@pytest.mark.parametrize("at", [0, 1])
def test_a_deleted_user_gets_no_more(hosts: list[DaemonProcess], name: Name, at: int) -> None:
    queue, ann = name("queue"), name("ann")
    filled(hosts[0], queue, 1)
    user(hosts[0], ann, ALL)
    connection, got = connected(hosts[at], ann), []
    connection.channel().basic_consume(queue, lambda *given: got.append(given[3]), auto_ack=True)

    def received() -> bool:
        connection.process_data_events(0.02)
        return bool(got)

    until(received)
    assert call(hosts[0], "DELETE", f"users/{ann}")[0] == 204
    message = {"routing_key": queue, "payload": "secret", "payload_encoding": "string", "properties": {}}
    assert call(hosts[0], "POST", "exchanges/%2F/amq.default/publish", message)[0] == 200
    closed(connection)
    assert got == [b"0"]
    until(lambda: call(hosts[0], "GET", f"queues/%2F/{queue}")[1]["messages"] == 1)


@pytest.mark.parametrize("at", [0, 1])
def test_who_may_no_longer_read_is_cut_off(hosts: list[DaemonProcess], name: Name, at: int) -> None:
    queue, ann = name("queue"), name("ann")
    filled(hosts[0], queue, 0)
    user(hosts[0], ann, ALL)
    connection = connected(hosts[at], ann)
    channel, got = connection.channel(), []
    channel.basic_consume(queue, lambda *given: got.append(given[3]), auto_ack=True)
    user(hosts[0], ann, {**ALL, "read": "^other$"})
    deadline = time.monotonic() + 60
    while channel.is_open and time.monotonic() < deadline:
        connection.process_data_events(0.02)
    filled(hosts[0], queue, 1)
    assert channel.is_closed
    assert connection.is_open
    assert got == []
    until(lambda: call(hosts[0], "GET", f"queues/%2F/{queue}")[1]["messages"] == 1)


@pytest.mark.parametrize("at", [0, 1])
def test_management_calls_smuggle_nothing(hosts: list[DaemonProcess], name: Name, at: int) -> None:
    """A user with rights on its own names gets neither at the messages nor at the queues of others."""
    queue, mine, ann = name("queue"), name("mine"), name("ann")
    filled(hosts[0], queue, 1)
    user(hosts[0], ann, dict.fromkeys(ALL, f"^{mine}"), "management")
    login = f"{ann}:{ann}-word"
    for arguments in (
        {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 1},
        {"x-dead-letter-exchange": ""},
    ):
        body = {"arguments": arguments, "node": "treecast@a"}
        assert call(hosts[at], "PUT", f"queues/%2F/{mine}", body, login)[0] == 401
    body = {"type": "fanout", "arguments": {"alternate-exchange": "amq.fanout"}}
    assert call(hosts[at], "PUT", f"exchanges/%2F/{mine}", body, login)[0] == 401
    assert call(hosts[at], "PUT", f"exchanges/%2F/{mine}", {"type": "topic"}, login)[0] == 201
    assert call(hosts[at], "PUT", f"queues/%2F/{mine}", {}, login)[0] == 201
    for source, target in ((mine, queue), ("amq.topic", mine)):
        path = f"bindings/%2F/e/{source}/q/{target}"
        assert call(hosts[at], "POST", path, {"routing_key": "#"}, login)[0] == 401
    topic = {"exchange": mine, "write": "^a", "read": "^a"}
    assert call(hosts[0], "PUT", f"topic-permissions/%2F/{ann}", topic)[0] == 201
    path = f"bindings/%2F/e/{mine}/q/{mine}"
    assert call(hosts[at], "POST", path, {"routing_key": "#"}, login)[0] == 401
    assert call(hosts[at], "POST", path, {"routing_key": "a.#"}, login)[0] == 201
    for call_, path in (("DELETE", f"queues/%2F/{queue}/contents"), ("DELETE", f"queues/%2F/{queue}")):
        assert call(hosts[at], call_, path, None, login)[0] == 401
    assert call(hosts[at], "GET", "overview", None, login)[1]["object_totals"]["connections"] == 0
