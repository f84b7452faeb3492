"""Rights of MQTT clients: publishes, subscriptions, wills, and what a change ends."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.mqtt.face import Client, MemoryHost, ended

from treecast.middleware.broker.access import (
    Content,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    Rule,
    User,
)
from treecast.middleware.model.scram import SHA256, verifier
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Ack, Publish, Will
from treecast.shims.mqtt.reviewing import review

USERS = {
    name: User(name, {SHA256: verifier(SHA256, name.encode(), b"salt", 4096)}) for name in ("anna", "ben")
}
ROOT = User("root", {SHA256: verifier(SHA256, b"root", b"salt", 4096)}, admin=True)
WRITE, READ = Operation.WRITE, Operation.READ


def rule(
    operation: Operation, name: str, *, prefixed: bool = False, deny: bool = False, user: str = "anna"
) -> Rule:
    permission = Permission.DENY if deny else Permission.ALLOW
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    return Rule(user, permission, operation, ResourceKind.TOPIC, pattern, name)


RULES = (
    rule(WRITE, "orders.", prefixed=True),
    rule(READ, "orders.", prefixed=True),
    rule(READ, "orders"),
    rule(READ, "bills.eu"),
)


def close(host: MemoryHost, *rules: Rule, users: dict[str, User] | None = None) -> None:
    host.sessions.identities.replace(Content((users or USERS) | {"root": ROOT}, rules))
    review(host.sessions, host.now)


@pytest.fixture
def host() -> MemoryHost:
    host = MemoryHost()
    close(host, *RULES)
    return host


def refused(client: Client, version: int = V5) -> int:
    answer = client.connect("c")
    return answer.reason


# --- log-ins


def test_log_ins(host: MemoryHost) -> None:
    assert host.client().connect("c", user="anna").reason == 0
    assert host.client().connect("c").reason == codec.BAD_CREDENTIALS
    assert host.client().connect("c", user="nobody").reason == codec.BAD_CREDENTIALS
    assert host.client(V311).connect("c").reason == 4


def test_a_user_of_this_machine_only(host: MemoryHost) -> None:
    """From elsewhere its password does not fit; its open connection ends when it becomes one."""
    anna = msgspec.structs.replace(USERS["anna"], local=True)
    elsewhere = host.client()
    elsewhere.session.connection.address = elsewhere.session.output.address = "10.0.0.7"
    assert elsewhere.connect("e", user="anna").reason == 0
    close(host, *RULES, users={**USERS, "anna": anna})
    last = ended(elsewhere)
    assert last is not None
    assert last.reason == codec.NOT_AUTHORIZED
    assert host.client().connect("c", user="anna").reason == 0
    again = host.client()
    again.session.connection.address = "10.0.0.7"
    assert again.connect("e", user="anna").reason == codec.BAD_CREDENTIALS


# --- publishes


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_a_publish_without_the_right(host: MemoryHost, version: int, qos: int, retain: bool) -> None:
    """5.0 says so; before, there is no way to: the message is acknowledged and dropped, as by Mosquitto."""
    reader = host.connected(user="root")
    reader.subscribe("#", qos=2)
    client = host.connected(version=version, user="anna")
    packet_id = client.publish("bills/eu", b"x", qos, retain)
    assert reader.publishes() == []
    assert host.counters.forbidden == 1
    answers = client.got()
    if qos == 0:
        assert answers == []
    else:
        kind = codec.PUBACK if qos == 1 else codec.PUBREC
        (answer,) = answers
        assert isinstance(answer, Ack)
        assert (answer.kind, answer.packet_id) == (kind, packet_id)
        assert answer.reason == (codec.NOT_AUTHORIZED if version == V5 else 0)
    if qos == 2:
        client.ack(codec.PUBREL, packet_id)
        client.got()
    client.publish("orders/eu", b"y", qos)
    assert [one.payload for one in reader.got() if isinstance(one, Publish)] == [b"y"]
    assert [*host.hub.retained.match(b"#", host.hub.clock.wall)] == []


@pytest.mark.parametrize("qos", [0, 1])
def test_a_run_is_cut_where_a_right_is_missing(host: MemoryHost, qos: int) -> None:
    """Publishes of one chunk: those that are allowed arrive, in order."""
    reader = host.connected(user="root")
    reader.subscribe("#", qos=qos)
    client = host.connected(user="anna")
    topics = ["orders/a", "orders/a", "bills/eu", "orders/b", "bills/eu", "bills/us", "orders/a"]
    client.send(
        *(
            Publish(topic.encode(), b"%d" % number, qos, False, False, number if qos else 0)
            for number, topic in enumerate(topics, 1)
        )
    )
    assert reader.payloads() == [b"1", b"2", b"4", b"7"]
    assert host.counters.forbidden == 3
    reasons = {one.packet_id: one.reason for one in client.got() if isinstance(one, Ack)}
    assert {number for number, reason in reasons.items() if reason} == ({3, 5, 6} if qos else set())


def test_an_alias_stands_for_its_topic(host: MemoryHost) -> None:
    client = host.connected(user="anna")
    client.publish("bills/eu", b"x", 1, topic_alias=1)
    client.publish("", b"x", 1, topic_alias=1)
    assert [one.reason for one in client.got() if isinstance(one, Ack)] == [codec.NOT_AUTHORIZED] * 2


# --- subscriptions


@pytest.mark.parametrize(
    ("filter", "granted"),
    [
        ("orders/eu", True),
        ("orders/+/x", True),
        ("orders/#", True),
        ("bills/eu", True),
        ("bills/us", False),
        ("bills/+", False),
        ("bills/eu/#", False),
        ("+/eu", False),
        ("#", False),
        ("$share/g/orders/#", True),
        ("$share/g/bills/us", False),
    ],
)
def test_subscriptions(host: MemoryHost, filter: str, granted: bool) -> None:
    reasons = host.connected(user="anna").subscribe(filter)
    assert reasons == bytes([0 if granted else codec.NOT_AUTHORIZED])
    old = host.connected(version=V311, user="anna")
    assert old.subscribe(filter) == bytes([0 if granted else 0x80])


def test_deny_cuts_a_filter(host: MemoryHost) -> None:
    close(host, *RULES, rule(READ, "orders.secret", deny=True))
    client = host.connected(user="anna")
    assert client.subscribe("orders/#", "orders/eu", "orders/secret") == bytes([0x87, 0, 0x87])


# --- wills


def test_a_will_needs_the_right_at_the_log_in_and_when_it_is_sent(host: MemoryHost) -> None:
    refused = host.client().connect("c", user="anna", will=Will(b"bills/eu", b"gone", 0, False))
    assert refused.reason == codec.NOT_AUTHORIZED
    reader = host.connected(user="root")
    reader.subscribe("#")
    for allowed in (True, False):
        client = host.connected("c", user="anna", will=Will(b"orders/eu", b"gone", 0, False))
        if not allowed:
            close(host)
        client.drop()
        assert reader.payloads() == ([b"gone"] if allowed else [])


# --- changes


def test_a_right_to_read_that_is_taken_away(host: MemoryHost) -> None:
    client = host.connected("c", user="anna", clean=False, session_expiry=1000)
    other = host.connected("d", user="anna")
    client.subscribe("orders/#", "bills/eu")
    other.subscribe("bills/eu")
    close(host, *RULES[1:])
    assert not client.session.output.closing, "the right to write is asked for at each publish"
    close(host, RULES[3])
    gone = ended(client)
    assert gone is not None
    assert gone.reason == codec.NOT_AUTHORIZED
    assert not other.session.output.closing
    again = host.client()
    assert again.connect("c", user="anna", clean=False, session_expiry=1000).session_present
    root = host.connected(user="root")
    root.publish("orders/eu", b"x")
    root.publish("bills/eu", b"y")
    assert again.payloads() == [b"y"]


def test_a_right_from_one_address(tmp_path: Path) -> None:
    """It is kept while the client is away, whose address nobody knows, and decided when it is back."""
    host = MemoryHost(data=tmp_path / "pubsub")
    away = Rule("anna", Permission.ALLOW, READ, ResourceKind.TOPIC, Pattern.LITERAL, "orders", "10.0.0.7")
    close(host, away)
    client = host.client()
    client.session.connection.address = "10.0.0.7"
    client.connect("c", user="anna", clean=False, session_expiry=1000)
    assert client.subscribe("orders") == b"\0"
    assert host.connected("d", user="anna").subscribe("orders") == bytes([codec.NOT_AUTHORIZED])
    client.drop()
    close(host, away, rule(READ, "bills"))
    again = host.client()
    again.session.connection.address = "10.0.0.7"
    again.connect("c", user="anna", clean=False, session_expiry=1000)
    host.connected(user="root").publish("orders", b"x")
    assert again.payloads() == [b"x"]
    again.drop()
    elsewhere = host.connected("c", user="anna", clean=False, session_expiry=1000)
    host.connected(user="root").publish("orders", b"y")
    assert elsewhere.payloads() == []


def test_a_session_away_loses_what_may_not_be_read(tmp_path: Path) -> None:
    host = MemoryHost(data=tmp_path / "pubsub")
    close(host, *RULES)
    client = host.connected("c", user="anna", clean=False, session_expiry=1000)
    client.subscribe("orders/#", "bills/eu", qos=1)
    client.drop()
    close(host, RULES[3])
    root = host.connected(user="root")
    root.publish("orders/eu", b"x", 1)
    root.publish("bills/eu", b"y", 1)
    root.got()
    identities = host.sessions.identities.content
    host.crash()
    host.sessions.identities.replace(identities)
    again = host.client()
    again.connect("c", user="anna", clean=False, session_expiry=1000)
    assert again.payloads() == [b"y"]


def test_users_who_are_gone_and_clients_of_nobody(host: MemoryHost) -> None:
    client = host.connected("c", user="ben")
    close(host, users={"anna": USERS["anna"]})
    gone = ended(client)
    assert gone is not None
    assert gone.reason == codec.NOT_AUTHORIZED
    fresh = MemoryHost()
    nobody = fresh.connected("c")
    close(fresh)
    assert ended(nobody) is not None


def test_the_session_of_nobody_goes_to_a_user_with_what_it_may_read() -> None:
    host = MemoryHost()
    before = host.connected("c", clean=False, session_expiry=1000)
    before.subscribe("orders/#", "bills/us")
    close(host, *RULES)
    client = host.client()
    assert client.connect("c", user="anna", clean=False, session_expiry=1000).session_present
    root = host.connected(user="root")
    root.publish("bills/us", b"x")
    root.publish("orders/eu", b"y")
    assert client.payloads() == [b"y"]
