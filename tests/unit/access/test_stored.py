"""AMQP's rights of users in the store: exchanges and queues by rules, topics by keys of `amq.topic`."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.access import (
    Content,
    Identities,
    Operation,
    Pattern,
    Permission,
    RabbitRights,
    ResourceKind,
    Rule,
    StoredRights,
    User,
    missing,
)
from treecast.middleware.model.principal import Principal
from treecast.middleware.model.rights import CONFIGURE, EXCHANGE, QUEUE, READ, TOPIC, WRITE, Need
from treecast.shims.amqp.users import Permission as Patterns
from treecast.shims.amqp.users import User as RabbitUser
from treecast.shims.amqp.users import Users

ALICE, ROOT, GUEST = Principal("alice"), Principal("root"), Principal("guest")


def allow(operation: Operation, kind: ResourceKind, name: str, pattern: Pattern = Pattern.LITERAL) -> Rule:
    return Rule("alice", Permission.ALLOW, operation, kind, pattern, name)


RULES = (
    allow(Operation.WRITE, ResourceKind.TOPIC, "orders.eu"),
    allow(Operation.READ, ResourceKind.TOPIC, "orders.", Pattern.PREFIXED),
    allow(Operation.CONFIGURE, ResourceKind.QUEUE, "alice.", Pattern.PREFIXED),
    allow(Operation.WRITE, ResourceKind.EXCHANGE, "amq.default"),
    allow(Operation.READ, ResourceKind.EXCHANGE, "t"),
)


@pytest.fixture
def rights() -> StoredRights:
    rabbit = Users()
    rabbit.put(RabbitUser("guest"))
    rabbit.permit("guest", "/", Patterns(".*", "^in$", ""))
    users = {name: User(name, admin=name == "root") for name in ("alice", "root")}
    return StoredRights(Identities(Content(users, RULES)), RabbitRights(rabbit))


NEEDS = {
    "its queue": (Need(CONFIGURE, QUEUE, b"alice.in"), True),
    "another queue": (Need(CONFIGURE, QUEUE, b"in"), False),
    "an exchange of a queue's name": (Need(CONFIGURE, EXCHANGE, b"alice.in"), False),
    "the exchange without a name": (Need(WRITE, EXCHANGE, b""), True),
    "the exchange of topics": (Need(WRITE, EXCHANGE, b"amq.topic"), True),
    "to delete the exchange of topics": (Need(CONFIGURE, EXCHANGE, b"amq.topic"), False),
    "a topic": (Need(WRITE, TOPIC, b"amq.topic", b"orders.eu"), True),
    "another topic": (Need(WRITE, TOPIC, b"amq.topic", b"orders.us"), False),
    "to bind a topic": (Need(READ, TOPIC, b"amq.topic", b"orders.us"), True),
    "to bind several": (Need(READ, TOPIC, b"amq.topic", b"orders.*.x"), True),
    "to bind too many": (Need(READ, TOPIC, b"amq.topic", b"orders.#"), False),
    "to bind all": (Need(READ, TOPIC, b"amq.topic", b"#"), False),
    "a key that is no topic": (Need(WRITE, TOPIC, b"amq.topic", b"a-xFF"), False),
    "a key of another exchange": (Need(READ, TOPIC, b"t", b"anything"), True),
}


@pytest.mark.parametrize(("need", "allowed"), NEEDS.values(), ids=NEEDS.keys())
def test_needs(rights: StoredRights, need: Need, allowed: bool) -> None:
    assert (missing(rights, ALICE, "/", [need]) is None) is allowed
    assert missing(rights, ALICE, "other", [need]) == need, "rules are about the virtual host /"
    for vhost in ("/", "other"):
        if need.key != b"a-xFF":
            assert missing(rights, ROOT, vhost, [need]) is None


def test_users_of_amqps_own_keep_their_patterns(rights: StoredRights) -> None:
    assert missing(rights, GUEST, "/", [Need(WRITE, EXCHANGE, b"in")]) is None
    assert missing(rights, GUEST, "/", [Need(WRITE, EXCHANGE, b"out")]) is not None
