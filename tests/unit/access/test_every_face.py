"""Random users and rules: what each face decides equals one plain reading of the rules, before and after they
change.

The reference is that of `test_rules`: each rule in turn, in Kafka's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.access.test_rules import reference

from treecast.middleware.broker import Leaders, PartitionLeader
from treecast.middleware.broker.access import (
    CLUSTER,
    Content,
    Identities,
    Operation,
    Pattern,
    Permission,
    RabbitRights,
    Resource,
    ResourceKind,
    Rule,
    StoredRights,
    User,
)
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.principal import HERE, Principal
from treecast.shims.amqp.users import Users
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.log_in import LogIn
from treecast.shims.kafka.rights import check_whole
from treecast.shims.mqtt.rights import TopicRights, may_read, may_write

NAMES = ("ann", "ben", "root")
ADDRESSES = ("", "10.0.0.7")
TOPICS = ("a", "b", "a.a", "a.b", "b.a", "a.a.a")
READ, WRITE, CONFIGURE = Operation.READ, Operation.WRITE, Operation.CONFIGURE
TOPIC, GROUP, QUEUE, EXCHANGE = (
    ResourceKind.TOPIC,
    ResourceKind.GROUP,
    ResourceKind.QUEUE,
    ResourceKind.EXCHANGE,
)
RULES = st.lists(
    st.builds(
        Rule,
        user=st.sampled_from([*NAMES, "*"]),
        permission=st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        operation=st.sampled_from([None, *Operation]),
        kind=st.sampled_from([TOPIC, TOPIC, GROUP, QUEUE, EXCHANGE, ResourceKind.CLUSTER]),
        pattern=st.sampled_from(Pattern),
        name=st.sampled_from([*TOPICS, "*", "a.", CLUSTER]),
        address=st.sampled_from(["*", "*", HERE, "10.0.0.7"]),
    ),
    max_size=10,
)
USERS = st.fixed_dictionaries(
    {},
    optional={
        name: st.builds(User, name=st.just(name), admin=st.booleans(), local=st.booleans()) for name in NAMES
    },
)


class Everywhere:
    """Implements `Leaders`: each partition is led here."""

    def partition(self, topic: str, index: int) -> PartitionLeader:
        return cast(PartitionLeader, None)


LEADERS = cast(Leaders, Everywhere())


class Client:
    """One client, connected by each face at once, from before rules changed. `principal`: who it is."""

    def __init__(self, identities: Identities, user: str, origin: str) -> None:
        self.identities = identities
        self.principal = Principal(user, address=origin or HERE)
        self.kafka = LogIn(identities, origin)
        self.kafka.granted.become(self.principal)
        self.mqtt = TopicRights(identities)
        self.mqtt.belong(user, origin)
        self.amqp = StoredRights(identities, RabbitRights(Users()))

    # --- by each face: whether it may

    def kafka_produce(self, topic: str) -> bool:
        return _passes(lambda: self.kafka.writable(LEADERS).partition(topic, 0))

    def kafka_fetch(self, topic: str) -> bool:
        return _passes(lambda: self.kafka.readable(LEADERS).partition(topic, 0))

    def kafka_join(self, group: str) -> bool:
        asked = SimpleNamespace(group_id=group)
        return _passes(lambda: check_whole(self.kafka.granted, v.JOIN_GROUP, asked))

    def kafka_alter_cluster(self) -> bool:
        return _passes(lambda: check_whole(self.kafka.granted, v.CREATE_ACLS, SimpleNamespace()))

    def mqtt_publish(self, topic: str) -> bool:
        return self.mqtt.may_publish(topic.replace(".", "/").encode())

    def mqtt_subscribe(self, topic: str) -> bool:
        return may_read(self.mqtt.granted, topic.replace(".", "/").encode())

    def amqp_use(self, operation: Operation, kind: ResourceKind, name: str, exchange: str = "") -> bool:
        return self.amqp.decide(self.principal, operation, Resource(kind, name, "/", exchange)).allowed


def _passes(asked: Any) -> bool:
    try:
        asked()
    except TreecastError:
        return False
    return True


def plain(
    users: Mapping[str, User],
    rules: list[Rule],
    principal: Principal,
    operation: Operation,
    kind: ResourceKind,
    name: str,
) -> bool:
    """The reference: users first, then rules."""
    user = users.get(principal.name)
    if user is not None and user.local and principal.address != HERE:
        return False
    if user is not None and user.admin:
        return True
    return reference(rules, principal, operation, kind, name)


def check(client: Client, users: Mapping[str, User], rules: list[Rule]) -> None:
    def wanted(operation: Operation, kind: ResourceKind, name: str) -> bool:
        return plain(users, rules, client.principal, operation, kind, name)

    assert client.kafka_alter_cluster() is wanted(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER)
    known = client.principal.name in users
    for topic in TOPICS:
        write, read = wanted(WRITE, TOPIC, topic), wanted(READ, TOPIC, topic)
        assert client.kafka_produce(topic) is write
        assert client.mqtt_publish(topic) is write
        assert client.kafka_fetch(topic) is read
        assert client.mqtt_subscribe(topic) is read
        assert client.kafka_join(topic) is wanted(READ, GROUP, topic)
        if not known:
            continue  # others than the store's users are RabbitMQ's own, by whose patterns AMQP decides
        assert client.amqp_use(WRITE, ResourceKind.ROUTING_KEY, topic, "amq.topic") is write
        assert client.amqp_use(READ, ResourceKind.ROUTING_KEY, topic, "amq.topic") is read
        for operation in (READ, WRITE, CONFIGURE):
            for kind in (QUEUE, EXCHANGE):
                assert client.amqp_use(operation, kind, topic) is wanted(operation, kind, topic)


@settings(max_examples=150, deadline=None)
@given(USERS, RULES, USERS, RULES, st.sampled_from(NAMES), st.sampled_from(ADDRESSES))
def test_each_face_decides_as_the_reference(
    before: dict[str, User],
    rules_before: list[Rule],
    after: dict[str, User],
    rules_after: list[Rule],
    user: str,
    origin: str,
) -> None:
    """On a connection that was there before the change, too: what it has kept counts no more."""
    keeper = {"keeper": User("keeper")}  # without any user nothing is asked
    identities = Identities(Content(before | keeper, tuple(rules_before)))
    client = Client(identities, user, origin)
    check(client, before, rules_before)
    identities.replace(Content(after | keeper, tuple(rules_after)))
    check(client, after, rules_after)
    check(Client(identities, user, origin), after, rules_after)


@settings(max_examples=150, deadline=None)
@given(USERS, RULES, st.sampled_from(NAMES), st.sampled_from(TOPICS))
def test_a_will_is_sent_by_the_rules_of_then(
    users: dict[str, User], rules: list[Rule], user: str, topic: str
) -> None:
    """Nobody knows from where: what is allowed from some address stays, what is denied from one is not."""
    identities = Identities(Content(users | {"keeper": User("keeper")}, tuple(rules)))
    away = Principal(user, address="?")
    known = users.get(user)
    kept = [
        msgspec.structs.replace(one, address="*") if one.permission is Permission.ALLOW else one
        for one in rules
    ]
    wanted = (known is not None and known.admin) or reference(kept, away, WRITE, TOPIC, topic)
    assert may_write(identities, user, topic.replace(".", "/").encode()) is wanted
