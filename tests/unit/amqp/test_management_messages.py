"""Messages that management calls publish and get."""

from __future__ import annotations

import base64

import pytest
from tests.unit.amqp.management_site import Site, get, publish

from treecast.shims.amqp import management_messages


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_is_published_is_got_with_its_properties(site: Site) -> None:
    site.put("queues/%2F/q")
    asked = {
        "delivery_mode": 2,
        "content_type": "text/plain",
        "headers": {"a": 1, "b": ["x", True]},
        "timestamp": 1_700_000_000,
        "priority": 3,
        "message_id": "m",
    }
    assert publish(site, "hello", **asked) == (200, {"routed": True})
    assert publish(site, "hello", key="none") == (200, {"routed": False})
    (found,) = get(site, "ack_requeue_true")
    assert found["properties"] == asked
    assert (found["payload"], found["payload_bytes"], found["redelivered"]) == ("hello", 5, False)
    (again,) = get(site, "ack_requeue_false")
    assert again["redelivered"]
    assert again["message_count"] == 0
    assert get(site, "ack_requeue_false") == []


def test_a_payload_may_be_bytes_and_may_be_cut(site: Site) -> None:
    site.put("queues/%2F/q")
    publish(site, base64.b64encode(b"\xff\x00abc").decode(), encoding="base64")
    (found,) = get(site, "ack_requeue_true")
    assert (base64.b64decode(found["payload"]), found["payload_encoding"]) == (b"\xff\x00abc", "base64")
    (found,) = get(site, "ack_requeue_true", truncate=2, encoding="base64")
    assert (base64.b64decode(found["payload"]), found["payload_bytes"]) == (b"\xff\x00", 5)


@pytest.mark.parametrize("mode", ["ack_requeue_true", "ack_requeue_false", "reject_requeue_false"])
def test_a_call_gets_no_more_than_fits_into_memory(
    site: Site, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(management_messages, "_BYTES", 1000)
    site.put("queues/%2F/q")
    for number in range(9):
        publish(site, str(number) * 400)
    assert [one["payload"][0] for one in get(site, mode, count=100_000)] == ["0", "1", "2"]
    assert site.get("queues/%2F/q")["messages"] == (9 if mode == "ack_requeue_true" else 6)


def test_what_is_rejected_is_dead_lettered_and_order_is_kept(site: Site) -> None:
    site.put("queues/%2F/q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    site.put("queues/%2F/dead")
    for payload in ("1", "2", "3"):
        publish(site, payload)
    assert [one["payload"] for one in get(site, "reject_requeue_true")] == ["1", "2", "3"]
    assert [one["payload"] for one in get(site, "reject_requeue_false", count=2)] == ["1", "2"]
    assert site.get("queues/%2F/dead")["messages"] == 2
    assert site.get("queues/%2F/q")["messages_ready"] == 1


def test_a_consumer_gets_what_is_published_here(site: Site) -> None:
    client = site.client()
    client.declare()
    client.consume()
    publish(site, "hello")
    assert client.bodies() == [b"hello"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"payload": 1}, 400),
        ({"payload_encoding": "hex"}, 400),
        ({"payload_encoding": "base64", "payload": "!"}, 400),
        ({"properties": {"colour": "red"}}, 400),
        ({"properties": {"timestamp": "soon"}}, 400),
        ({"properties": {"delivery_mode": 7}}, 400),
        ({"properties": {"expiration": "soon"}}, 400),
        ({"properties": {"headers": [1]}}, 400),
        ({"properties": {"user_id": "other"}}, 400),
        ({"routing_key": "k" * 256}, 400),
        ({}, 200),
    ],
)
def test_a_message_that_cannot_be_is_refused(site: Site, change: dict[str, object], status: int) -> None:
    message = {"routing_key": "q", "payload": "x", "payload_encoding": "string", "properties": {}}
    assert site.call("POST", "exchanges/%2F/amq.default/publish", {**message, **change})[0] == status


def test_a_full_queue_refuses_here_as_well(site: Site) -> None:
    site.put("queues/%2F/q", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    assert publish(site, "x") == (
        400,
        {"error": "rejected", "reason": "Unable to publish message. Check queue limits."},
    )
