"""Quotas over Kafka: throttle times of every version, a connection that reads later, and the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.broker import Broker
from treecast.middleware.broker.access import ANY, Content, Quota, Rate, read_users, write_users
from treecast.middleware.broker.access.identities import Change
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.shims.kafka import errors
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.handlers import quotas
from treecast.shims.kafka.messages import in_versions
from treecast.shims.kafka.schema import descriptor, encode_response
from treecast.shims.kafka.server import KafkaFace
from treecast.shims.kafka.throttling import with_throttle_time


def limit(face: KafkaFace, **rates: float) -> None:
    named = {Rate[name.upper()]: number for name, number in rates.items()}
    face.identities.replace(Content(quotas=(Quota("", ANY, named),)))


def produced(batch: bytes) -> dict[str, Any]:
    topics = [{"name": "topic", "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics}


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_produce(version: int, face: KafkaFace, client: Any, make_batch: Callable[..., bytes]) -> None:
    batch = make_batch(b"v" * 1000)
    first = await client.call("Produce", version, **produced(batch))
    assert first.throttle_time_ms == 0
    limit(face, produce=600.0)
    second = await client.call("Produce", version, **produced(batch))
    assert 0 < second.throttle_time_ms < 5_000
    assert {one.error_code for topic in second.responses for one in topic.partition_responses} == {0}
    assert not client.transport.reading, "it is read again when the time is over"
    third = await client.call("Produce", version, **produced(make_batch(b"v")))
    assert third.throttle_time_ms >= 0
    limit(face, requests=1000.0)
    assert (await client.call("Produce", version, **produced(batch))).throttle_time_ms == 0


@pytest.mark.parametrize("api", v.APIS.values(), ids=lambda api: api.name)
def test_every_api_tells_the_time_to_wait(api: v.Api) -> None:
    """In each version whose answer has a throttle time, and in no other."""
    for version in range(api.first, api.last + 1):
        name = f"{api.name}Response"
        has = any(
            one["name"] == "ThrottleTimeMs" and in_versions(one["versions"], version)
            for one in descriptor(name)["fields"]
        )
        plain = encode_response(api.key, version, 7, {})
        told = with_throttle_time(api.key, version, [plain], 1234)
        if has and api.name != "ApiVersions":  # which is not told: its throttle time is behind a list
            assert told == [encode_response(api.key, version, 7, {"throttle_time_ms": 1234})], version
        else:
            assert told == [plain], version


async def test_requests_of_any_api(face: KafkaFace, client: Any) -> None:
    limit(face, requests=1.0)
    assert (await client.call("ListGroups", 4)).throttle_time_ms == 0
    assert 0 < (await client.call("ListGroups", 4)).throttle_time_ms <= 30_000
    assert not client.transport.reading


@pytest.mark.parametrize("version", [4, 7, 11, 12])
async def test_fetch(
    version: int, face: KafkaFace, client: Any, broker: Broker, make_batch: Callable[..., bytes]
) -> None:
    broker.cluster.partition("topic", 0).append(memoryview(bytearray(make_batch(b"v" * 1000))), -1, None)
    limit(face, fetch=100.0)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    answer = await client.call(
        "Fetch",
        version,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[{"topic": "topic", "partitions": [partition]}],
    )
    assert 0 < answer.throttle_time_ms < 30_000
    assert answer.responses[0].partitions[0].error_code == 0


async def test_the_calls(face: KafkaFace, client: Any) -> None:
    """As kafka-configs does it: set, shown, removed; what is wrong has its reason."""
    face.identities.store = lambda change: read_users(write_users(change(face.identities.content)))
    alice = [{"entity_type": "user", "entity_name": "alice"}]
    default = [
        {"entity_type": "user", "entity_name": None},
        {"entity_type": "client-id", "entity_name": "app"},
    ]

    async def alter(entity: list[dict[str, Any]], key: str, value: float, *, remove: bool = False) -> Any:
        ops = [{"key": key, "value": value, "remove": remove}]
        answer = await client.call(
            "AlterClientQuotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False
        )
        return answer.entries[0]

    async def shown(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
        asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        answer = await client.call("DescribeClientQuotas", 1, components=asked, strict=strict)
        return [
            (
                [(part.entity_type, part.entity_name) for part in one.entity],
                {value.key: value.value for value in one.values},
            )
            for one in answer.entries or ()
        ]

    assert (await alter(alice, "producer_byte_rate", 1000.0)).error_code == 0
    assert (await alter(alice, "consumer_byte_rate", 2000.5)).error_code == 0
    assert (await alter(default, "request_rate", 10.0)).error_code == 0
    of_alice = ([("user", "alice")], {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.5})
    of_default = ([("user", None), ("client-id", "app")], {"request_rate": 10.0})
    assert await shown() == [of_alice, of_default]
    assert await shown(("user", 0, "alice")) == [of_alice]
    assert await shown(("user", 1, None)) == [of_default]
    assert await shown(("user", 2, None), strict=True) == [of_alice]
    assert await shown(("client-id", 0, "app")) == [of_default]
    for key, value in (("request_percentage", 5.0), ("producer_byte_rate", 0.0)):
        refused = await alter(alice, key, value)
        assert refused.error_code == errors.INVALID_REQUEST
        assert refused.error_message
    machine = [{"entity_type": "ip", "entity_name": "10.0.0.7"}]
    for entity, key in (
        (machine, "request_rate"),
        (alice, "connection_creation_rate"),
        (machine + alice, "request_rate"),
    ):
        assert (await alter(entity, key, 1.0)).error_code == errors.INVALID_REQUEST
    assert (await alter(machine, "connection_creation_rate", 20.0)).error_code == 0
    assert await shown(("ip", 0, "10.0.0.7")) == [([("ip", "10.0.0.7")], {"connection_creation_rate": 20.0})]
    came = [face.identities.quotas.may_connect("10.0.0.7", 0.0) for _ in range(30)]
    assert came == [True] * 20 + [False] * 10
    assert (await alter(machine, "connection_creation_rate", 0.0, remove=True)).error_code == 0
    assert (await alter(alice, "producer_byte_rate", 0.0, remove=True)).error_code == 0
    assert (await alter(default, "request_rate", 0.0, remove=True)).error_code == 0
    assert await shown() == [([("user", "alice")], {"consumer_byte_rate": 2000.5})]


def entry(user: str, value: float = 1.0, *, remove: bool = False) -> dict[str, Any]:
    ops = [{"key": "request_rate", "value": value, "remove": remove}]
    return {"entity": [{"entity_type": "user", "entity_name": user}], "ops": ops}


async def test_the_entries_of_a_request_are_one_change(
    face: KafkaFace, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change writes the whole file, and waits for the disk."""
    stored = []

    def store(change: Change) -> Content:
        stored.append(change(face.identities.content))
        return stored[-1]

    face.identities.store = store

    async def alter(*entries: dict[str, Any], only: bool = False) -> list[int]:
        answer = await client.call("AlterClientQuotas", 1, entries=list(entries), validate_only=only)
        return [one.error_code for one in answer.entries]

    many = [entry(f"u{number}") for number in range(1001)]
    assert await alter(*many) == [errors.INVALID_REQUEST] * 1001
    assert await alter(*many[1:], only=True) == [0] * 1000
    assert not stored
    assert await alter(*many[3:], entry("u1", -1.0), entry("u3", 7.0)) == [0] * 998 + [
        errors.INVALID_REQUEST,
        0,
    ]
    assert [len(one.quotas) for one in stored] == [998]
    assert Quota("u3", "", {Rate.REQUESTS: 7.0}) in stored[0].quotas
    monkeypatch.setattr(quotas, "_MOST_QUOTAS", 999)
    new = (entry("one"), entry("two"), entry("u7", 3.0), entry("nobody", remove=True))
    assert await alter(*new) == [0, errors.INVALID_REQUEST, 0, 0]
    assert len(stored[1].quotas) == 999


async def test_a_disk_that_refuses_is_the_answer_of_each_sound_entry(face: KafkaFace, client: Any) -> None:
    def store(change: Change) -> Content:
        raise TreecastError(Fault.STORAGE, "the file of users: no space")

    face.identities.store = store
    given = [entry("u1"), entry("u2", -1.0)]
    answer = await client.call("AlterClientQuotas", 1, entries=given, validate_only=False)
    assert [one.error_message for one in answer.entries] == [
        "the file of users: no space",
        "request_rate is above 0",
    ]
