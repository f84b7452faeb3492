"""A connection: bad input, order, back-pressure, idle time, closing; other clients are not affected."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace

from treecast.middleware.broker import Broker, PartitionRead
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.handlers import HANDLERS
from treecast.shims.kafka.server import KafkaFace


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, client_id: bytes | None = b"c") -> bytes:
    text = (
        struct.pack(">h", -1)
        if client_id is None
        else struct.pack(f">h{len(client_id)}s", len(client_id), client_id)
    )
    return struct.pack(">hhi", key, version, 1) + text


BAD_INPUT = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "the client speaks HTTP"),
    (struct.pack(">i", -7), "a negative request size"),
    (struct.pack(">i", 2**31 - 1), "a request larger than is allowed"),
    (framed(header(v.HEARTBEAT, 0) + b"\0"), "malformed request"),
    (framed(header(v.PRODUCE, 9) + b"\xff" * 50), "malformed request"),
    (framed(header(v.FETCH, 12) + b"\xff" * 50), "malformed request"),
    (framed(struct.pack(">hhih", v.METADATA, 1, 1, 500)), "malformed request"),
]


@pytest.mark.parametrize(("data", "reason"), BAD_INPUT)
async def test_bad_input_closes_its_own_connection(
    data: bytes, reason: str, connect: Callable[[], Any], face: KafkaFace
) -> None:
    bad, good = connect(), connect()
    bad.feed(data)
    assert bad.transport.closed
    assert not bad.transport.sent
    assert face.counters.protocol_errors == {reason: 1}
    assert (await good.call("Metadata", 1, topics=[])).brokers


NEVER_OFFERED = [
    (framed(header(9999, 0)), "unknown API key 9999"),
    (framed(header(v.FETCH, 3) + b"\0" * 40), "Fetch version 3; 4 to 17 are served"),
    (framed(header(v.FETCH, 18) + b"\0" * 40), "Fetch version 18; 4 to 17 are served"),
    (framed(header(v.FETCH, -1) + b"\0" * 40), "Fetch version -1; 4 to 17 are served"),
]


@pytest.mark.parametrize(("data", "reason"), NEVER_OFFERED)
async def test_what_was_never_offered_is_refused_late_and_nothing_after_it_is_served(
    data: bytes, reason: str, connect: Callable[[], Any], face: KafkaFace
) -> None:
    face.settings = replace(face.settings, refuse_after_ms=50)
    one, gone = connect(), connect()
    for client in (one, gone):
        client.feed(data + client.request("Metadata", 1, topics=[]))
        assert not client.transport.closed
    gone.connection.connection_lost(None)
    while not one.transport.closed:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    assert not one.transport.sent
    assert face.counters.protocol_errors == {reason: 1}


async def test_what_was_asked_before_bad_input_is_answered(client: Any) -> None:
    client.feed(client.request("Metadata", 1, topics=[]) + struct.pack(">i", -7))
    assert client.transport.closed
    assert (await client.receive("Metadata", 1)).brokers


@pytest.mark.parametrize("seed", range(20))
async def test_arbitrary_requests_are_answered_or_close(
    seed: int, connect: Callable[[], Any], face: KafkaFace
) -> None:
    """Random bodies behind every header never cause an internal error."""
    random = Random(seed)
    for key in v.APIS:
        one = connect()
        version = random.randint(0, 13)
        body = random.choice([random.randbytes(random.randint(0, 80)), b"\0" * random.randint(0, 60)])
        one.feed(framed(header(key, version) + body))
        for _ in range(3):
            await asyncio.sleep(0)
        one.transport.close()
    await asyncio.sleep(0)
    assert "internal error" not in face.counters.protocol_errors


async def test_a_null_client_id_is_legal(client: Any) -> None:
    client.send("Metadata", 1, client_id=None, topics=[])
    assert (await client.receive("Metadata", 1)).brokers


async def test_an_unknown_version_of_api_versions(client: Any) -> None:
    """Error 35 in a v0 body with a v0 header, whatever follows the request's header (KIP-511)."""
    client.feed(framed(header(v.API_VERSIONS, 99) + b"\0" + b"anything"))
    expected = struct.pack(">ihihhh", 1, 35, 1, v.API_VERSIONS, 0, 4)
    assert await client.frame() == expected
    assert not client.transport.closed


async def test_byte_at_a_time(client: Any) -> None:
    data = client.request("Metadata", 1, topics=[]) + client.request("Metadata", 9, topics=[])
    for byte in data:
        client.feed(bytes([byte]))
    assert (await client.receive("Metadata", 1)).brokers
    assert (await client.receive("Metadata", 9)).brokers


class Gate:
    """A handler that waits until the gate is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.started = 0

    async def run(self, *_: Any) -> dict[str, int]:
        self.started += 1
        await self.opened.wait()
        return {"error_code": 0}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    handler = type(HANDLERS[v.LEAVE_GROUP])(gate.run, HANDLERS[v.LEAVE_GROUP].refuse)
    monkeypatch.setattr("treecast.shims.kafka.dispatch.HANDLERS", HANDLERS | {v.LEAVE_GROUP: handler})
    return gate


async def test_a_request_that_waits_holds_up_its_connection_only(
    connect: Callable[[], Any], gate: Gate
) -> None:
    one, two = connect(), connect()
    one.feed(
        one.request("LeaveGroup", 0, group_id="g", member_id="m")
        + one.request("LeaveGroup", 0, group_id="g", member_id="m")
        + one.request("Metadata", 1, topics=[])
    )
    await one.nothing()
    assert gate.started == 1
    assert not one.transport.reading
    assert (await two.call("Metadata", 1, topics=[])).brokers
    gate.opened.set()
    assert (await one.receive("LeaveGroup", 0)).error_code == 0
    assert (await one.receive("LeaveGroup", 0)).error_code == 0
    assert (await one.receive("Metadata", 1)).brokers
    assert one.transport.reading
    assert gate.started == 2


async def test_what_waits_is_copied_out_of_the_shared_buffer(connect: Callable[[], Any], gate: Gate) -> None:
    one, two = connect(), connect()
    one.feed(
        one.request("LeaveGroup", 0, group_id="g", member_id="m")
        + one.request("FindCoordinator", 0, key="k" * 300)
        + one.request("Metadata", 1, topics=[])[:9]
    )
    two.feed(framed(b"\xff" * 5000))
    gate.opened.set()
    assert (await one.receive("LeaveGroup", 0)).error_code == 0
    assert (await one.receive("FindCoordinator", 0)).node_id == 7


async def test_a_client_that_does_not_read_is_not_served(client: Any, broker: Broker) -> None:
    transport = client.transport
    transport.stuck = True
    one = client.request("Metadata", 1, topics=None)
    for _ in range(1000):
        if not transport.reading:
            break
        client.feed(one)
    assert not transport.reading
    full = len(transport.sent)
    assert full < transport.high + 2000
    client.connection.buffer_updated(0)  # data that was already in the kernel
    assert len(transport.sent) == full
    transport.stuck = False
    transport.sent.clear()
    client.connection.resume_writing()
    assert transport.reading


async def test_a_client_that_does_not_read_is_idle_in_the_end(client: Any, face: KafkaFace) -> None:
    client.transport.stuck = True
    while client.transport.reading:
        client.send("Metadata", 1, topics=None)
    client.connection._waiting.append(
        client.connection._session.receive(framed(header(3, 1)), face.loop.time())[0]
    )
    assert not client.connection.is_idle(face.loop.time(), 600.0)
    assert client.connection.is_idle(face.loop.time() + 601.0, 600.0)


async def test_fetches_are_short_while_much_waits_for_clients_that_do_not_read(
    connect: Callable[[], Any], face: KafkaFace
) -> None:
    whole = face.dispatcher.fetch_max_bytes
    stuck = connect()
    face.hold(face.settings.unread_bytes)
    stuck.transport.stuck = True
    while stuck.transport.reading:
        stuck.send("Metadata", 1, topics=None)
    assert face.dispatcher.fetch_max_bytes < whole
    stuck.transport.close()
    await asyncio.sleep(0)
    assert face.dispatcher.fetch_max_bytes == whole


class Unsendable:
    """A chunk that raises when a response uses it."""

    def __len__(self) -> int:
        raise RuntimeError("broken on purpose")


class SpoilingLeader:
    """Has no data at first, `empty` times, and then a chunk that cannot be sent."""

    here = True

    def __init__(self, empty: int) -> None:
        self._empty = empty

    def read(self, *_: Any, **__: Any) -> PartitionRead:
        self._empty -= 1
        if self._empty >= 0:
            return PartitionRead([], 0, 0, 0, 0)
        return PartitionRead([cast(bytes, Unsendable())], 1, 1, 1, 0)

    def check_leader_epoch(self, *_: Any) -> None: ...

    def watch(self, *_: Any) -> None: ...

    def unwatch(self, *_: Any) -> None: ...


async def test_who_sends_much_is_read_from_once_in_a_turn(client: Any) -> None:
    """libuv would read on, and other clients would wait for all that this one has sent."""
    client.connection._time = lambda: 1.0  # within a turn, uvloop's clock stands still
    frame = client.request("Produce", 7, transactional_id=None, acks=1, timeout_ms=1000, topic_data=[])
    while client.transport.reading:
        client.feed(frame * 1000)
    assert client.connection._session.wants_data
    assert not client.transport.reading
    await asyncio.sleep(0)
    assert client.transport.reading


@pytest.mark.parametrize("empty", [0, 1])
async def test_our_own_errors_close_only_their_connection(
    empty: int,
    connect: Callable[[], Any],
    face: KafkaFace,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No response can be encoded: at once, or after a wait."""
    leader = SpoilingLeader(empty)
    monkeypatch.setattr(broker.cluster, "partition", lambda topic, index: leader)
    bad, good = connect(), connect()
    topics = [
        {"topic": "topic", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}]}
    ]
    bad.send("Fetch", 11, max_wait_ms=3, min_bytes=1, max_bytes=9, session_epoch=-1, topics=topics)
    await asyncio.wait_for(bad.transport.arrived.wait(), 20)
    assert bad.transport.closed
    assert face.counters.protocol_errors == {"internal error": 1}
    assert (await good.call("Metadata", 1, topics=[])).brokers


async def test_many_requests_in_one_chunk_stay_bounded(client: Any, face: KafkaFace) -> None:
    """The requests of a chunk are handled in parts, no faster than the client reads."""
    client.transport.stuck = True
    data = b"".join(client.request("ApiVersions", 0) for _ in range(5000))
    client.feed(data[:200_000])
    assert len(client.transport.sent) < client.transport.high + 600_000
    assert not client.transport.reading


async def test_idle_connections_are_closed_and_busy_ones_are_not(
    connect: Callable[[], Any], gate: Gate, face: KafkaFace
) -> None:
    idle, busy = connect(), connect()
    busy.send("LeaveGroup", 0, group_id="g", member_id="m")
    later = face.loop.time() + face.settings.connections_max_idle_ms / 1000
    assert idle.connection.is_idle(later, 600.0)
    assert not idle.connection.is_idle(later - 5, 600.0)
    assert not busy.connection.is_idle(later, 600.0)
    gate.opened.set()
    await busy.receive("LeaveGroup", 0)


async def test_connections_and_bytes_are_counted(client: Any, face: KafkaFace) -> None:
    request = client.request("Metadata", 1, topics=[])
    client.feed(request)
    answer = await client.frame()
    counters = face.counters
    assert (counters.bytes_in, counters.bytes_out) == (len(request), len(answer) + 4)
    assert counters.requests == {"Metadata": 1}
    assert (counters.connections_opened, counters.connections_closed) == (1, 0)
    client.transport.close()
    await asyncio.sleep(0)
    assert counters.connections_closed == 1


async def test_closing_answers_what_is_in_flight(
    connect: Callable[[], Any], gate: Gate, face: KafkaFace
) -> None:
    poll, waiting, idle = connect(), connect(), connect()
    topics = [
        {"topic": "topic", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}]}
    ]
    poll.send("Fetch", 11, max_wait_ms=60_000, min_bytes=1, max_bytes=9, session_epoch=-1, topics=topics)
    waiting.send("LeaveGroup", 0, group_id="g", member_id="m")
    closing = asyncio.ensure_future(face.close(20))
    assert (await poll.receive("Fetch", 11)).responses[0].partitions[0].error_code == 0
    await asyncio.sleep(0)
    assert idle.transport.closed
    assert not waiting.transport.closed
    gate.opened.set()
    assert (await waiting.receive("LeaveGroup", 0)).error_code == 0
    await closing
    assert waiting.transport.closed


async def test_closing_sends_group_members_to_look_again(
    client: Any, face: KafkaFace, connect: Callable[[], Any]
) -> None:
    join = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    first = await client.call("JoinGroup", 3, **join)
    other = connect()
    other.send("JoinGroup", 3, **join)  # waits for the first member to join again
    await other.nothing()
    closing = asyncio.ensure_future(face.close(20))
    assert (await other.receive("JoinGroup", 3)).error_code == 16
    await closing
    assert first.error_code == 0


async def test_closing_does_not_wait_forever(client: Any, gate: Gate, face: KafkaFace) -> None:
    client.send("LeaveGroup", 0, group_id="g", member_id="m")
    await face.close(0.01)
    assert client.transport.closed
    await face.close(0.01)
    gate.opened.set()
