"""Definitions of a real broker, imported and exported; users, passwords and permissions."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands
from tests.unit.amqp.face import Basic, Channel, Client, Connection, MemoryHost, Queue, publish

from treecast.middleware.broker.queues import Destination, Overflow
from treecast.middleware.model.regex_syntax import InvalidRegex
from treecast.shims.amqp import users as passwords
from treecast.shims.amqp.management_definitions import (
    BadDefinitions,
    Import,
    Report,
    export,
    export_vhost,
)
from treecast.shims.amqp.users import SHA256, SHA512, Permission, TopicPermission, User, Users

# Exported by RabbitMQ 3.10.8 (GET /api/definitions), after its own management calls had filled it.
EXPORTED: dict[str, Any] = json.loads((Path(__file__).parent / "definitions-3.10.json").read_text())


class Migrated:
    """A host that has imported the definitions of the real broker."""

    def __init__(self, document: object = EXPORTED) -> None:
        self.users = Users()
        self.memory = MemoryHost(access=self.users)
        self.report: Report = Import(self.memory.amqp, self.users, self.memory.now).load(document)

    def client(self, user: str, password: str, vhost: str = "sales") -> Client | None:
        """Returns a client that is logged in, or None if it is refused."""
        client = Client(self.memory)
        client.log_in(user, password)
        (answer,) = client.got()
        if not isinstance(answer, Connection.Tune):
            return None
        opening = Connection.Open(vhost)
        client.send(Connection.TuneOk(answer.channel_max, answer.frame_max, 0), opening, channel=0)
        (answer,) = client.got()
        if not isinstance(answer, Connection.OpenOk):
            return None
        client.ask(Channel.Open(), Channel.OpenOk)
        return client


@pytest.fixture(scope="module")
def migrated() -> Migrated:
    return Migrated()


def test_all_that_is_known_comes_over(migrated: Migrated) -> None:
    imported = migrated.report.imported
    assert imported["users"] == 5
    assert imported["vhosts"] == 3
    assert imported["permissions"] == 6
    assert imported["topic_permissions"] == 1
    assert imported["policies"] == 2
    assert imported["exchanges"] == len(EXPORTED["exchanges"])
    assert imported["bindings"] == len(EXPORTED["bindings"])
    sales = migrated.memory.amqp.vhosts["sales"]
    assert sales.exchanges[b"orders"].alternate == b"unrouted"
    mail = sales.queues[b"shop.mail"].arguments
    assert (mail.max_length, mail.message_ttl, mail.max_priority) == (1000, 60000, 5)
    assert mail.overflow is Overflow.REJECT_PUBLISH
    orders = sales.queues[b"shop.orders"].arguments
    assert (orders.delivery_limit, orders.max_length, orders.message_ttl) == (
        5,
        50000,
        3600000,
    )  # lowered by the operator's policy
    assert sales.policies.operators["cap"].definition == {"max-length": 50000}
    assert migrated.memory.queues.cluster_name == "orders-cluster"


def test_what_is_not_known_is_named(migrated: Migrated) -> None:
    found = "\n".join(migrated.report.skipped)
    for words in (
        "users shop: its limits are not kept",
        "policies mirrored: ha-mode is not known here",
        "parameters sales federation-upstream up: parameters of federation-upstream",
        "parameters sales vhost-limits limits: parameters of vhost-limits",
        "global_parameters mqtt_default_vhosts",
        "queues sales shop.temp: Feature `transient_nonexcl_queues` is deprecated.",
    ):
        assert words in found
    assert migrated.memory.amqp.vhosts["sales"].policies.users["mirrored"].definition == {"expires": 86400000}


def test_users_log_in_with_the_passwords_that_they_had(migrated: Migrated) -> None:
    assert migrated.client("shop", "shop-password") is not None
    assert migrated.client("ana", "ana-password", "/") is not None
    assert migrated.client("shop", "another") is None
    assert migrated.client("shop", "shop-password", "/") is None  # it has no permission there
    assert migrated.client("nologin", "") is None
    assert migrated.client("nobody", "") is None
    assert migrated.users.tags("watch") == {"monitoring", "policymaker"}


def test_permissions_are_those_that_they_were(migrated: Migrated) -> None:
    for method, closes in (
        (Queue.Declare(queue="shop.new", durable=True), False),
        (Queue.Declare(queue="other", durable=True), True),
        (commands.Exchange.Declare(exchange="orders2", exchange_type="fanout", durable=True), True),
        (Basic.Consume(queue="unrouted"), True),
        (Basic.Get(queue="shop.orders"), False),
        (Queue.Bind(queue="shop.new", exchange="orders", routing_key="order.x"), True),  # may not read it
    ):
        client = migrated.client("shop", "shop-password")
        assert client is not None
        client.send(method)
        answer = client.got()[0]
        assert isinstance(answer, Channel.Close) == closes, method
        if isinstance(answer, Channel.Close):
            assert answer.reply_code == 403


@pytest.mark.parametrize(
    ("exchange", "key", "closes"),
    [
        ("orders", "order.7.new", False),
        ("orders", "invoice.7", True),
        ("shop.none", "order.7", True),
        ("", "shop.mail", True),
    ],
)
def test_publishing_asks_for_the_exchange_and_for_its_keys(
    migrated: Migrated, exchange: str, key: str, closes: bool
) -> None:
    client = migrated.client("shop", "shop-password")
    assert client is not None
    client.send_bytes(publish(key, b"x", exchange) * 2)
    answer = [one for one in client.got() if isinstance(one, Channel.Close)]
    assert bool(answer) == closes


def test_messages_go_where_they_went(migrated: Migrated) -> None:
    client = migrated.client("ana", "ana-password")
    assert client is not None
    sales = migrated.memory.amqp.vhosts["sales"]
    before = {name: queue.ready for name, queue in sales.queues.items()}
    client.publish("order.1.paid", b"paid", exchange="orders")
    client.publish("else", b"alternate", exchange="orders")
    client.publish("", b"mail", exchange="audit", headers={"kind": "mail", "level": 3})
    found = {name: queue.ready - before[name] for name, queue in sales.queues.items()}
    assert (found[b"shop.orders"], found[b"shop.mail"]) == (1, 2)
    assert found[b"unrouted"] == 0  # `audit` is bound to all of `orders`, so that nothing is unrouted


def test_what_was_imported_is_exported_and_can_be_imported_again(migrated: Migrated) -> None:
    one = export(migrated.memory.amqp, migrated.users)
    again = Migrated(json.loads(json.dumps(one)))
    assert again.report.skipped == []
    other = export(again.memory.amqp, again.users)
    assert other == one
    for part in ("users", "permissions", "topic_permissions", "exchanges", "bindings"):
        theirs = [dict(item) for item in EXPORTED[part]]
        for item in theirs:
            item.pop("limits", None)
        ours = [{key: value for key, value in item.items() if key != "limits"} for item in one[part]]  # type: ignore[attr-defined]
        key = lambda item: json.dumps(item, sort_keys=True)  # noqa: E731
        if part != "bindings":
            assert sorted(ours, key=key) == sorted(theirs, key=key), part


def test_importing_twice_changes_nothing(migrated: Migrated) -> None:
    before = export(migrated.memory.amqp, migrated.users)
    Import(migrated.memory.amqp, migrated.users, migrated.memory.now).load(EXPORTED)
    assert export(migrated.memory.amqp, migrated.users) == before


def test_the_shape_of_4_x_is_understood() -> None:
    """Follows RabbitMQ 4.3's sources: queues with their type, virtual hosts with metadata."""
    document = {
        "rabbitmq_version": "4.3.5",
        "rabbitmq_definition_format": "cluster",
        "original_cluster_name": "rabbit@a",
        "explanation": "Definitions of cluster 'rabbit@a'",
        "users": [
            {
                "name": "u",
                "password_hash": passwords.hashed(b"p", b"salt"),
                "hashing_algorithm": SHA256,
                "tags": ["administrator"],
                "limits": {},
            }
        ],
        "vhosts": [
            {
                "name": "v",
                "limits": [],
                "metadata": {"description": "V", "tags": ["a"], "default_queue_type": "quorum"},
            }
        ],
        "permissions": [{"user": "u", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [
            {
                "name": "q",
                "vhost": "v",
                "type": "quorum",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "quorum"},
            },
            {"name": "no type", "vhost": "v", "durable": True, "auto_delete": False, "arguments": {}},
            {"name": "classic", "vhost": "v", "type": "classic", "durable": True, "arguments": {}},
        ],
        "exchanges": [
            {
                "name": "x",
                "vhost": "v",
                "type": "x-consistent-hash",
                "durable": True,
                "auto_delete": False,
                "arguments": {},
            }
        ],
        "super_streams": [{"name": "s"}],
    }
    found = Migrated(document)
    assert found.client("u", "p", "v") is not None
    types = {name: queue.arguments.type.value for name, queue in found.memory.amqp.vhosts["v"].queues.items()}
    assert types == {b"q": "quorum", b"no type": "quorum", b"classic": "classic"}
    assert found.report.skipped == [
        "super_streams: this part is not known",
        "exchanges v x: unknown exchange type 'x-consistent-hash'",
    ]


def test_definitions_of_one_virtual_host_are_imported_into_one(migrated: Migrated) -> None:
    document = export_vhost(migrated.memory.amqp, "sales")
    other = Migrated({})
    with pytest.raises(BadDefinitions, match="one virtual host"):
        Import(other.memory.amqp, other.users, 0.0).load(document)
    report = Import(other.memory.amqp, other.users, 0.0, "/").load(document)
    assert report.skipped == []
    assert other.memory.vhost.queues.keys() == migrated.memory.amqp.vhosts["sales"].queues.keys()
    bound = other.memory.vhost.bindings.of(Destination(b"shop.orders", False))
    assert [(source, binding.key) for source, binding in bound] == [(b"orders", b"order.#")]


@pytest.mark.parametrize("document", [[], None, {"queues": {}}, {"queues": ["q"]}, {"users": 3}])
def test_what_is_not_definitions_is_refused(document: object) -> None:
    with pytest.raises(BadDefinitions):
        Migrated(document)


def test_a_bad_item_is_skipped_and_the_rest_goes_on() -> None:
    found = Migrated(
        {
            "users": [{"password_hash": "x"}, {"name": "u", "tags": "a, b"}],
            "permissions": [
                {"user": "u", "vhost": "/", "configure": "(", "write": "", "read": ""},
                {"user": "u", "vhost": "gone", "configure": "", "write": "", "read": ""},
            ],
            "queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": "many"}}],
            "policies": [{"name": "p", "vhost": "/", "definition": {"max-length": -1}}],
            "bindings": [{"source": "none", "vhost": "/", "destination": "q", "routing_key": ""}],
        }
    )
    assert found.report.imported == {"users": 1}
    assert len(found.report.skipped) == 6
    assert found.users.users["u"].tags == ("a", "b")


def test_passwords_in_the_clear_are_those_of_their_users_and_rights_of_nobody_are_skipped() -> None:
    right = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    known = passwords.hashed(b"p", b"salt")
    found = Migrated(
        {
            "users": [
                {"name": "plain", "password": "word", "tags": "management"},
                {"name": "both", "password": "word", "password_hash": known, "tags": ""},
                {"name": "empty", "password": "", "tags": ""},
                {"name": "none", "tags": ""},
                {"name": "wrong", "password": 7, "tags": ""},
            ],
            "permissions": [{"user": name, **right} for name in ("plain", "both", "ghost")],
            "topic_permissions": [{"user": "ghost", "exchange": "amq.topic", **right}],
        }
    )
    assert found.client("plain", "word", "/") is not None
    for name, password in (("plain", ""), ("both", "p"), ("both", "word"), ("empty", ""), ("none", "")):
        assert found.client(name, password, "/") is None
    assert found.users.users["plain"].password_hash != found.users.users["empty"].password_hash
    assert found.report.skipped == [
        "users both: it has both a password and the hash of one",
        "users wrong: it cannot be read (TypeError('password'))",
        "permissions / both: there is no user 'both'",
        "permissions / ghost: there is no user 'ghost'",
        "topic_permissions / ghost amq.topic: there is no user 'ghost'",
    ]
    exported = export(found.memory.amqp, found.users)
    assert [one["user"] for one in exported["permissions"]] == ["plain"]  # type: ignore[index,union-attr]


# --- passwords


def test_a_hash_of_the_real_broker_fits_its_password_only() -> None:
    (shop,) = [one for one in EXPORTED["users"] if one["name"] == "shop"]
    assert passwords.fits(b"shop-password", shop["password_hash"], SHA256)
    assert not passwords.fits(b"shop-passwore", shop["password_hash"], SHA256)
    assert not passwords.fits(b"shop-password", shop["password_hash"], SHA512)


def test_other_hashes() -> None:
    longer = base64.b64encode(b"salt" + hashlib.sha512(b"salt" + b"p").digest()).decode()
    assert passwords.fits(b"p", longer, SHA512)
    assert passwords.fits(b"p", passwords.hashed(b"p", b"1234"), SHA256)
    for broken in ("", "c2FsdA==", "no base64!", "é"):
        assert not passwords.fits(b"", broken, SHA256)
    assert not passwords.fits(b"p", longer, "rabbit_password_hashing_md5")


def test_an_empty_pattern_permits_nothing_and_topics_know_the_user() -> None:
    users = Users()
    users.put(User("u"))
    users.permit("u", "/", Permission("", "^amq\\.default$", ".*"))
    assert not users.may("u", "/", "configure", b"q")
    assert users.may("u", "/", "write", b"")
    assert not users.may("u", "/", "write", b"q")
    users.permit_topics("u", "/", "t", TopicPermission("^{username}\\.", "^{vhost}$"))
    assert users.may_use_topic("u", "/", "write", b"t", b"u.1")
    assert not users.may_use_topic("u", "/", "write", b"t", b"v.1")
    assert users.may_use_topic("u", "/", "read", b"t", b"/")
    assert users.may_use_topic("u", "/", "write", b"other", b"v.1")
    users.permit("u", "/", Permission("^(?!amq\\.)", "(a|aa)+$x", ""))
    assert users.may("u", "/", "configure", b"q")
    assert not users.may("u", "/", "configure", b"amq.q")
    assert not users.may("u", "/", "write", b"a" * 255)
    with pytest.raises(InvalidRegex):
        users.permit("u", "/", Permission("(a)\\1", "", ""))
    assert users.delete("u")
    assert not users.permissions
    assert not users.topics
