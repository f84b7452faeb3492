"""Management calls at one of two joined daemons, about queues, users and connections of both."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pika
import pytest
from tests.clients.amqp.conftest import two_hosts

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
ADMIN = "127.0.0.1:0"
PERSISTENT = pika.BasicProperties(delivery_mode=2)
Name = Callable[[str], str]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[DaemonProcess]]:
    with two_hosts(tmp_path_factory.mktemp("managed"), admin=ADMIN) as (first, second):
        yield [first, second]


def call(
    daemon: DaemonProcess, method: str, path: str, body: object = None, user: str = "guest:guest"
) -> tuple[int, Any]:
    """Returns (status, JSON)."""
    given = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://{daemon.admin}/api/{path}", data, given, method=method)
    try:
        with urlopen(request, timeout=PATIENCE_S) as answer:
            found = answer.read()
            return answer.status, json.loads(found) if found else None
    except HTTPError as error:
        found = error.read()
        return error.code, json.loads(found) if found else None


def get(daemon: DaemonProcess, path: str, user: str = "guest:guest") -> Any:
    status, found = call(daemon, "GET", path, None, user)
    assert status == 200, found
    return found


def connected(daemon: DaemonProcess, user: str = "guest", vhost: str = "/") -> pika.BlockingConnection:
    where, port = daemon.address("amqp")
    login = pika.PlainCredentials(user, "guest" if user == "guest" else f"{user}-word")
    return pika.BlockingConnection(pika.ConnectionParameters(where, port, vhost, login))


def filled(daemon: DaemonProcess, queue: str, count: int) -> None:
    """Declares a queue, whose home is then this daemon, and publishes messages to it."""
    connection = connected(daemon)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT, mandatory=True)
    connection.close()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def closed(connection: pika.BlockingConnection) -> None:
    """Returns when the daemon has closed the connection."""

    def ended() -> bool:
        with suppress(pika.exceptions.AMQPConnectionError):
            connection.process_data_events(0.02)
        return bool(connection.is_closed)

    until(ended)


def taking(daemon: DaemonProcess, queue: str, ackmode: str, count: int = 10) -> list[str]:
    body = {"ackmode": ackmode, "count": count, "encoding": "auto"}
    status, found = call(daemon, "POST", f"queues/%2F/{queue}/get", body)
    assert status == 200, found
    return [one["payload"] for one in found]


def test_a_queue_of_the_other_host_is_shown_with_its_numbers(hosts: list[DaemonProcess], name: Name) -> None:
    first, second = hosts
    here, there = name("here"), name("there")
    filled(first, here, 2)
    filled(second, there, 3)
    for daemon in hosts:
        rows = {row["name"]: row for row in get(daemon, "queues/%2F")}
        assert (rows[here]["messages"], rows[here]["node"]) == (2, "treecast@a")
        assert (rows[there]["messages"], rows[there]["node"]) == (3, "treecast@b")
        assert get(daemon, f"queues/%2F/{there}")["messages_ready"] == 3
        assert get(daemon, "overview")["queue_totals"]["messages"] >= 5
        (vhost,) = [row for row in get(daemon, "vhosts") if row["name"] == "/"]
        assert vhost["messages"] >= 5
        assert vhost["cluster_state"] == {"treecast@a": "running", "treecast@b": "running"}
        assert {row["name"] for row in get(daemon, "nodes")} == {"treecast@a", "treecast@b"}
        assert get(daemon, "nodes/treecast@b")["running"] is True
        found = get(daemon, f"queues/%2F?page=1&name={there}&columns=name,messages")
        assert found["items"] == [{"name": there, "messages": 3}]


def test_messages_are_got_purged_and_published_from_anywhere(hosts: list[DaemonProcess], name: Name) -> None:
    first, second = hosts
    queue = name("queue")
    filled(second, queue, 3)
    assert taking(first, queue, "ack_requeue_true") == ["0", "1", "2"]
    assert taking(first, queue, "ack_requeue_false", 1) == ["0"]
    assert get(first, f"queues/%2F/{queue}")["messages"] == 2
    message = {"routing_key": queue, "payload": "more", "payload_encoding": "string"}
    path = "exchanges/%2F/amq.default/publish"
    assert call(first, "POST", path, {**message, "properties": {}}) == (200, {"routed": True})
    until(lambda: get(second, f"queues/%2F/{queue}")["messages"] == 3)
    assert call(first, "DELETE", f"queues/%2F/{queue}/contents")[0] == 204
    assert get(second, f"queues/%2F/{queue}")["messages"] == 0
    assert call(first, "DELETE", f"queues/%2F/{queue}?if-empty=true")[0] == 204
    for daemon in hosts:
        assert call(daemon, "GET", f"queues/%2F/{queue}")[0] == 404


def test_a_queue_is_declared_at_the_host_that_is_named(hosts: list[DaemonProcess], name: Name) -> None:
    first, second = hosts
    queue, exchange = name("queue"), name("exchange")
    assert call(first, "PUT", f"queues/%2F/{queue}", {"node": "treecast@b"})[0] == 201
    assert get(first, f"queues/%2F/{queue}")["node"] == "treecast@b"
    assert call(first, "PUT", f"exchanges/%2F/{exchange}", {"type": "topic"})[0] == 201
    assert call(second, "POST", f"bindings/%2F/e/{exchange}/q/{queue}", {"routing_key": "a.#"})[0] == 201
    (binding,) = get(first, f"bindings/%2F/e/{exchange}/q/{queue}")
    assert binding["routing_key"] == "a.#"
    key = quote(binding["properties_key"], safe="")
    assert call(first, "DELETE", f"bindings/%2F/e/{exchange}/q/{queue}/{key}")[0] == 204
    assert get(second, f"bindings/%2F/e/{exchange}/q/{queue}") == []


def test_connections_channels_and_consumers_of_all_hosts(hosts: list[DaemonProcess], name: Name) -> None:
    first, second = hosts
    queue = name("queue")
    filled(second, queue, 1)
    connection = connected(first)
    channel = connection.channel()
    channel.basic_consume(queue, lambda *_: None, consumer_tag="far")
    for daemon in hosts:
        (row,) = [row for row in get(daemon, "consumers/%2F") if row["queue"]["name"] == queue]
        assert (row["consumer_tag"], row["channel_details"]["node"]) == ("far", "treecast@a")
        detail = get(daemon, f"queues/%2F/{queue}")
        assert detail["consumers"] == 1
        assert [one["consumer_tag"] for one in detail["consumer_details"]] == ["far"]
    (shown,) = [row for row in get(second, "connections") if row["node"] == "treecast@a"]
    path = f"connections/{quote(shown['name'], safe='')}"
    assert get(second, path)["user"] == "guest"
    (inside,) = get(second, f"{path}/channels")
    assert get(second, f"channels/{quote(inside['name'], safe='')}")["consumer_count"] == 1
    assert get(second, "overview")["object_totals"]["consumers"] >= 1
    assert call(second, "DELETE", path)[0] == 204
    closed(connection)
    until(lambda: call(second, "DELETE", path)[0] == 404)


def test_users_and_virtual_hosts_are_those_of_the_cluster(hosts: list[DaemonProcess], name: Name) -> None:
    first, second = hosts
    vhost, user = name("vhost"), name("user")
    assert call(first, "PUT", f"vhosts/{vhost}", {"description": "orders"})[0] == 201
    assert call(first, "PUT", f"users/{user}", {"password": f"{user}-word", "tags": "management"})[0] == 201
    permission = {"configure": "^a", "write": ".*", "read": ".*"}
    assert call(first, "PUT", f"permissions/{vhost}/{user}", permission)[0] == 201
    topic = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    assert call(first, "PUT", f"topic-permissions/{vhost}/{user}", topic)[0] == 201
    assert get(second, f"vhosts/{vhost}")["description"] == "orders"
    assert get(second, f"topic-permissions/{vhost}/{user}")[0]["write"] == "^a"
    connection = connected(second, user, vhost)
    connection.channel().queue_declare("a", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="403"):
        connection.channel().queue_declare("b", durable=True)
    assert [row["name"] for row in get(first, f"queues/{vhost}", f"{user}:{user}-word")] == ["a"]
    assert call(second, "DELETE", f"permissions/{vhost}/{user}")[0] == 204
    assert get(first, f"users/{user}/permissions") == []
    assert call(first, "DELETE", f"vhosts/{vhost}")[0] == 204
    closed(connection)
    assert call(second, "GET", f"vhosts/{vhost}")[0] == 404
    assert call(second, "DELETE", f"users/{user}")[0] == 204
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connected(first, user)
    assert call(first, "PUT", "cluster-name", {"name": "orders"})[0] == 204
    assert get(second, "cluster-name") == {"name": "orders"}


def test_rabbitmqadmin_at_the_other_host(hosts: list[DaemonProcess], name: Name, require_tool: Any) -> None:
    program = require_tool("rabbitmqadmin")
    where, _, port = hosts[0].admin.rpartition(":")
    queue = name("queue")

    def run(*arguments: str) -> str:
        command = [program, "-H", where, "-P", port, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    filled(hosts[1], queue, 2)
    assert f"{queue}\t2\ttreecast@b" in run("-f", "tsv", "list", "queues", "name", "messages", "node")
    assert "1" in run("get", f"queue={queue}", "count=2", "ackmode=ack_requeue_true")
    run("declare", "policy", f"name={queue}", f"pattern=^{queue}$", 'definition={"max-length": 1}')
    assert get(hosts[1], f"queues/%2F/{queue}")["effective_policy_definition"] == {"max-length": 1}
    run("publish", "exchange=amq.default", f"routing_key={queue}", "payload=x")
    run("purge", "queue", f"name={queue}")
    run("delete", "queue", f"name={queue}")
    assert call(hosts[1], "GET", f"queues/%2F/{queue}")[0] == 404


def test_what_is_shown_of_a_host_that_is_away(tmp_path: Path, name: Name) -> None:
    queue, user = name("queue"), name("user")
    with two_hosts(tmp_path, admin=ADMIN) as (first, second):
        second.pin_ports()
        filled(second, queue, 2)
        second.kill()
        until(lambda: get(first, "queues/%2F")[0]["state"] == "down")
        assert {row["name"]: row["running"] for row in get(first, "nodes")} == {
            "treecast@a": True,
            "treecast@b": False,
        }
        status, found = call(first, "DELETE", f"queues/%2F/{queue}/contents")
        assert (status, "is down or inaccessible" in found["reason"]) == (404, True)
        word = {"password": f"{user}-word", "tags": "administrator"}
        assert call(first, "PUT", f"users/{user}", word)[0] == 201
        assert call(first, "DELETE", "users/guest", None, f"{user}:{user}-word")[0] == 204
        second.restart()
        until(lambda: call(second, "GET", "overview", None, f"{user}:{user}-word")[0] == 200)
        until(lambda: call(second, "GET", "overview")[0] == 401)
        login = f"{user}:{user}-word"
        until(lambda: get(first, f"queues/%2F/{queue}", login).get("messages") == 2)


def test_users_added_beside_a_password_file_stay(tmp_path: Path, start_daemon: Any) -> None:
    passwords = tmp_path / "passwords"
    # `mosquitto_passwd -H sha512`: user "ann", password "word"
    hashed = "mQlxF4sXoeWX7fWgxbhjKZp8qNPwT8gYVsdHpWLDADqPqlNOkRq+cF4yCY/VMLc61SRYU4JGzF+L5NswLTUPLA=="
    passwords.write_text(f"ann:$6$c2FsdA==${hashed}\n")
    daemon = start_daemon("--amqp-password-file", str(passwords))
    assert call(daemon, "GET", "overview")[0] == 401  # no guest
    word = {"password": "bob-word", "tags": "monitoring"}
    assert call(daemon, "PUT", "users/bob", word, "ann:word")[0] == 201
    daemon.stop()
    daemon.start()
    assert get(daemon, "whoami", "bob:bob-word")["tags"] == ["monitoring"]
    assert call(daemon, "GET", "overview")[0] == 401


def test_the_default_queue_type_holds_at_every_host_and_after_a_kill(tmp_path: Path) -> None:
    with two_hosts(tmp_path, admin=ADMIN) as hosts:
        for daemon in hosts:
            daemon.pin_ports()
        first, second = hosts
        assert call(first, "PUT", "vhosts/shop", {"default_queue_type": "quorum"})[0] == 201
        until(lambda: bool(get(second, "vhosts/shop")["default_queue_type"] == "quorum"))
        for _ in range(2):
            for number, daemon in enumerate(hosts):
                connection = connected(daemon, vhost="shop")
                connection.channel().queue_declare(f"q{number}", durable=True)
                connection.close()
                assert get(daemon, f"queues/shop/q{number}")["type"] == "quorum"
            second.kill()
            second.restart()
            until(lambda: call(second, "GET", "queues/shop/q1")[0] == 200)
