"""Log-ins and rights of the Kafka face: each API without and with the right that it needs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.unit.kafka.test_every_api import codes_in, fields_of

from treecast.middleware.broker import Broker, NewTopic
from treecast.middleware.broker.access import (
    CLUSTER,
    Content,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    Rule,
    User,
)
from treecast.middleware.model.scram import SHA256, SHA512, verifier
from treecast.shims.kafka import errors
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.handlers import HANDLERS
from treecast.shims.kafka.log_in import SERVED, State
from treecast.shims.kafka.rights import CODES, EACH, KNOWN, NEEDED
from treecast.shims.kafka.server import KafkaFace

BOB = User("bob", {one: verifier(one, b"secret", b"salt", 4096) for one in (SHA256, SHA512)})
ROOT = User("root", BOB.verifiers, admin=True)
FORBIDDEN = {
    errors.TOPIC_AUTHORIZATION_FAILED,
    errors.GROUP_AUTHORIZATION_FAILED,
    errors.CLUSTER_AUTHORIZATION_FAILED,
    errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def close(face: KafkaFace, *rules: Rule) -> None:
    """From now on clients log in, and bob may do what the rules allow."""
    face.identities.replace(Content({"bob": BOB, "root": ROOT}, rules))


async def log_in(client: Any, user: str = "bob", password: bytes = b"secret") -> int:
    """Returns the error code of a log-in by PLAIN."""
    answer = await client.call("SaslHandshake", 1, mechanism="PLAIN")
    assert answer.error_code == 0
    proof = b"\0" + user.encode() + b"\0" + password
    return (await client.call("SaslAuthenticate", 2, auth_bytes=proof)).error_code


@pytest.fixture
def connected(face: KafkaFace, connect: Callable[[], Any]) -> Callable[..., Any]:
    """Returns `connected(*rules, user=)`, which makes a client that has logged in."""

    async def make(*rules: Rule, user: str = "bob") -> Any:
        close(face, *rules)
        client = connect()
        assert await log_in(client, user) == 0
        return client

    return make


# --- the table


def test_every_api_has_its_right() -> None:
    assert set(NEEDED) == set(v.APIS)
    assert set(KNOWN) == {right.kind for rights in NEEDED.values() for right in rights}
    assert {right.operation for rights in NEEDED.values() for right in rights} <= set(CODES)


def test_every_operation_has_kafkas_code() -> None:
    assert set(CODES) == set(Operation) - {Operation.CONFIGURE}
    assert set(SERVED) == set(State)


NO_ID = UUID(int=0)
ALONE = ("ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster")  # tell nothing of others'
FILTERED = ("ListGroups", "ListTransactions")  # show what may be seen


@pytest.mark.parametrize(
    "api", [api for api in v.APIS.values() if api.name not in (*ALONE, *FILTERED)], ids=lambda api: api.name
)
async def test_without_any_right(
    api: v.Api, connected: Callable[..., Any], broker: Broker, make_batch: Callable[..., bytes]
) -> None:
    """Each API refuses in its own shape, wherever it has an error code, and changes nothing."""
    client = await connected()
    before = dict(broker.cluster.definitions.topics())
    topic_id = before["topic"].topic_id
    for version in range(api.first, api.last + 1):
        fields = fields_of(api.name, version, make_batch(b"value"), topic_id)
        codes = codes_in((await client.call(api.name, version, **fields)).to_dict())
        assert codes - {0}, version
        assert codes - {0} <= FORBIDDEN, version
    assert dict(broker.cluster.definitions.topics()) == before
    assert broker.cluster.partition("topic", 0).size == 0


@pytest.mark.parametrize("api", v.APIS.values(), ids=lambda api: api.name)
async def test_with_the_rights_of_the_table(
    api: v.Api, connected: Callable[..., Any], broker: Broker, make_batch: Callable[..., bytes]
) -> None:
    """The rights that the table names are enough."""
    rules = [
        Rule("bob", Permission.ALLOW, right.operation, right.kind, Pattern.LITERAL, "*")
        for right in NEEDED[api.key]
    ]
    client = await connected(*rules)
    if api.name.startswith("Sasl"):
        return
    await broker.cluster.definitions.create_topic(NewTopic(f"old-{api.last}"))
    topic_id = broker.cluster.definitions.topics()["topic"].topic_id
    fields = fields_of(api.name, api.last, make_batch(b"value"), topic_id)
    codes = codes_in((await client.call(api.name, api.last, **fields)).to_dict())
    assert not codes & FORBIDDEN


@pytest.mark.parametrize(
    ("key", "right"),
    [(key, right) for key, rights in NEEDED.items() for right in rights if right.field != EACH],
    ids=str,
)
async def test_each_right_of_the_whole_request_is_needed(
    key: int, right: Any, connected: Callable[..., Any], make_batch: Callable[..., bytes], broker: Broker
) -> None:
    others = [
        Rule("bob", Permission.ALLOW, one.operation, one.kind, Pattern.LITERAL, "*")
        for one in NEEDED[key]
        if one != right
    ]
    client = await connected(*others)
    api = v.APIS[key]
    topic_id = broker.cluster.definitions.topics()["topic"].topic_id
    fields = fields_of(api.name, api.last, make_batch(b"value"), topic_id)
    if api.name == "InitProducerId":
        fields["transactional_id"] = "x"
    codes = codes_in((await client.call(api.name, api.last, **fields)).to_dict())
    assert codes - {0} <= FORBIDDEN
    assert codes & FORBIDDEN


async def test_lists_show_what_may_be_seen(connected: Callable[..., Any]) -> None:
    see = Rule("bob", Permission.ALLOW, Operation.DESCRIBE, ResourceKind.GROUP, Pattern.PREFIXED, "g-")
    use = Rule("bob", Permission.ALLOW, None, ResourceKind.TOPIC, Pattern.LITERAL, "topic")
    root = await connected(see, use, user="root")
    for group in ("g-1", "h-1"):
        await root.call(
            "OffsetCommit",
            2,
            group_id=group,
            topics=[{"name": "topic", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
        )
    bob = await connected(see, use)
    assert [row.group_id for row in (await bob.call("ListGroups", 4, states_filter=[])).groups] == ["g-1"]
    answer = await bob.call("Metadata", 8, topics=None, include_topic_authorized_operations=True)
    assert [row.name for row in answer.topics] == ["topic"]
    assert answer.topics[0].authorized_operations == {3, 4, 5, 6, 7, 8, 10, 11}


# --- log-ins


async def test_nothing_is_served_before_the_log_in(face: KafkaFace, connect: Callable[[], Any]) -> None:
    for api in v.APIS.values():
        if api.key in HANDLERS and api.key not in SERVED[State.NEW] | SERVED[State.CHOSEN]:
            close(face)
            client = connect()
            client.send(api.name, api.last, **fields_of(api.name, api.last, b"", NO_ID))
            await client.nothing()
            assert client.connection._muted, api.name


@pytest.mark.parametrize(
    ("user", "password"), [("bob", b"wrong"), ("nobody", b"secret"), ("", b""), ("bob", b"")]
)
async def test_a_wrong_log_in(face: KafkaFace, client: Any, user: str, password: bytes) -> None:
    close(face)
    client = type(client)(face)
    assert await log_in(client, user, password) == errors.SASL_AUTHENTICATION_FAILED
    assert client.connection.log_in.state is State.FAILED
    client.send("Metadata", 1, topics=None)
    await client.nothing()


@pytest.mark.parametrize("mechanism", ["PLAIN", SHA256])
async def test_a_user_of_this_machine_only(
    mechanism: str, face: KafkaFace, connect: Callable[[], Any]
) -> None:
    """From elsewhere its password does not fit, as for an unknown user; an open connection ends."""
    close(face)
    before = connect()
    before.connection.log_in.origin = "10.0.0.7"
    assert await log_in(before) == 0
    local = msgspec.structs.replace(BOB, local=True)
    face.identities.replace(Content({"bob": local, "root": ROOT}))
    assert before.transport.closed
    for origin, passes in (("10.0.0.7", False), ("", True)):
        client = connect()
        client.connection.log_in.origin = origin
        if mechanism == "PLAIN":
            assert (await log_in(client) == 0) is passes
            continue
        assert (await client.call("SaslHandshake", 1, mechanism=mechanism)).error_code == 0
        first = await client.call("SaslAuthenticate", 2, auth_bytes=b"n,,n=bob,r=abc")
        salt = first.auth_bytes.split(b",")[1]
        assert (salt == b"s=" + base64.b64encode(b"salt")) is passes


async def test_an_unknown_mechanism(face: KafkaFace, connect: Callable[[], Any]) -> None:
    close(face)
    answer = await connect().call("SaslHandshake", 1, mechanism="GSSAPI")
    assert answer.error_code == errors.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


async def test_large_requests_wait_for_the_log_in(face: KafkaFace, connect: Callable[[], Any]) -> None:
    close(face)
    client = connect()
    client.feed((face.settings.max_log_in_bytes + 1).to_bytes(4, "big"))
    await asyncio.sleep(0)
    assert client.transport.closed
    other = connect()
    assert await log_in(other) == 0
    other.feed((face.settings.max_log_in_bytes + 1).to_bytes(4, "big") + b"x" * 100)
    await asyncio.sleep(0)
    assert not other.transport.closed


async def test_another_user_on_the_same_connection(connected: Callable[..., Any]) -> None:
    """A log-in may be repeated (KIP-368), as the same user."""
    client = await connected()
    assert await log_in(client) == 0
    assert await log_in(client, "root") == errors.SASL_AUTHENTICATION_FAILED


# --- changes


async def test_a_right_that_is_taken_away_counts_for_a_fetch_that_waits(
    face: KafkaFace, connected: Callable[..., Any], make_batch: Callable[..., bytes]
) -> None:
    rules = [
        Rule("bob", Permission.ALLOW, Operation.READ, ResourceKind.TOPIC, Pattern.LITERAL, "topic"),
    ]
    reader = await connected(*rules)
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    reader.send(
        "Fetch",
        11,
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[{"topic": "topic", "partitions": wanted}],
    )
    await reader.nothing()
    root = await connected(user="root")
    await root.call(
        "Produce",
        7,
        acks=1,
        timeout_ms=1000,
        topic_data=[{"name": "topic", "partition_data": [{"index": 0, "records": make_batch(b"secret")}]}],
    )
    answer = await reader.receive("Fetch", 11)
    row = answer.responses[0].partitions[0]
    assert row.error_code == errors.TOPIC_AUTHORIZATION_FAILED
    assert not row.records


async def test_connections_of_a_deleted_user_and_of_nobody_end(
    face: KafkaFace, client: Any, connected: Callable[..., Any]
) -> None:
    bob = await connected()
    await asyncio.sleep(0)
    assert client.transport.closed, "it had not logged in"
    face.identities.replace(Content({"root": ROOT}))
    assert bob.transport.closed


async def test_a_transactional_id_is_checked_in_each_produce(
    connected: Callable[..., Any], make_batch: Callable[..., bytes]
) -> None:
    client = await connected(
        Rule("bob", Permission.ALLOW, Operation.WRITE, ResourceKind.TOPIC, Pattern.LITERAL, "*")
    )
    answer = await client.call(
        "Produce",
        7,
        transactional_id="x",
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": "topic", "partition_data": [{"index": 0, "records": make_batch(b"v")}]}],
    )
    assert codes_in(answer.to_dict()) == {errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


async def test_rules_by_calls_without_a_store(connected: Callable[..., Any]) -> None:
    """A face without a file of users says so; the rules that are there are shown."""
    rule = Rule("bob", Permission.DENY, None, ResourceKind.CLUSTER, Pattern.LITERAL, CLUSTER)
    root = await connected(rule, user="root")
    asked = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    asked |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    (row,) = (await root.call("DescribeAcls", 1, **asked)).resources
    assert (row.resource_type, row.resource_name, row.pattern_type) == (4, CLUSTER, 3)
    assert [one.principal for one in row.acls] == ["User:bob"]
    creation = {
        "resource_type": 2,
        "resource_name": "topic",
        "principal": "User:bob",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    answer = await root.call("CreateAcls", 1, creations=[creation])
    assert answer.results[0].error_code == errors.INVALID_REQUEST


async def test_the_filters_of_a_request_are_bounded(connected: Callable[..., Any]) -> None:
    """Each looks at all rules."""
    root = await connected(user="root")
    one = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
    answer = await root.call("DeleteAcls", 1, filters=[one] * 1001)
    assert {row.error_code for row in answer.filter_results} == {errors.INVALID_REQUEST}
