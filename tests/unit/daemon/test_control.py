"""The control service through a real gRPC client, over TCP and over a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from treecast.middleware.api.daemon_client import SERVICE, DaemonClient
from treecast.middleware.api.discovery import Address, Endpoint
from treecast.middleware.api.rpc import Unreachable, methods, status_code
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.broker import GROUPS, CommittedOffset, MemberIdentity
from treecast.middleware.broker.pubsub import PubSub, PubSubSettings, Subscriber, Subscription
from treecast.middleware.broker.queues import MemoryStore, MessageQueue, Recorder, VirtualHost
from treecast.middleware.daemon.control import ControlServer, DaemonService
from treecast.middleware.daemon.explain import Explanation
from treecast.middleware.daemon.listeners import StartError, bound_address, listen
from treecast.middleware.daemon.status import Subject
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

Call = Callable[..., Any]


class OneQueue:
    """Exchanges that have one queue; `amq.topic` is bridged."""

    def routed(
        self, vhost: str, exchange: str, key: str, headers: Mapping[str, str]
    ) -> tuple[list[MessageQueue], list[bytes]]:
        vhost = VirtualHost("/", MemoryStore(), Recorder())
        return [vhost.queue_definitions.declare(b"q")], [b"a/b"] if exchange else []


def named(subscriber: Subscriber, name: str) -> Subscriber:
    subscriber.name = name
    return subscriber


@pytest.fixture
async def server(subject: Subject, tmp_path: Path) -> AsyncIterator[ControlServer]:
    made = ControlServer(subject.cluster.cluster_id, Address("127.0.0.1", 0), tmp_path / "control.sock")
    made.show(subject)
    await made.start()
    yield made
    await made.close(0)


@pytest.fixture
def client(server: ControlServer) -> Iterator[DaemonClient]:
    with DaemonClient(str(server.address), timeout=20) as made:
        yield made


@pytest.fixture
def ask(client: DaemonClient) -> Call:
    """Calls a blocking method of the client in a thread, as this loop serves it."""
    return lambda name, *args, **kw: asyncio.to_thread(getattr(client, name), *args, **kw)


async def commit(subject: Subject, group: str, offsets: dict[TopicPartition, int]) -> None:
    wanted = {partition: CommittedOffset(offset, metadata="m") for partition, offset in offsets.items()}
    home = subject.cluster.home(GROUPS, group)
    assert not await home.commit_offsets(group, MemberIdentity(), wanted)


async def test_status(subject: Subject, ask: Call) -> None:
    found = await ask("status")
    assert (found.name, found.cluster_id, found.fsync) == ("h1", subject.cluster.cluster_id, "interval")
    assert (found.totals.topics, found.totals.partitions, found.totals.records_in) == (1, 2, 3)
    assert found.totals.records_stored == 3
    assert found.totals.bytes_stored > 0
    (face,) = found.faces
    assert (face.address, face.unix_socket) == ("127.0.0.1:9092", "/run/treecast/kafka.sock")
    assert (face.traffic.connections, face.traffic.requests) == (2, 15)
    assert found.resources.resident_bytes > 2**20
    assert found.resources.open_files > 2


async def test_topics_are_listed_and_described(ask: Call) -> None:
    (listed,) = await ask("list_topics")
    assert (listed.name, listed.partitions, listed.records) == ("orders", 2, 3)
    found = await ask("describe_topic", "orders")
    assert found.topic == listed
    assert [(p.index, p.start_offset, p.end_offset, p.stable_offset) for p in found.partitions] == [
        (0, 0, 3, 3),
        (1, 0, 0, 0),
    ]
    config = {entry.name: (entry.value, entry.overridden) for entry in found.config}
    assert config["cleanup.policy"] == ("delete", True)
    assert config["retention.ms"] == ("5000", False)
    assert config["segment.bytes"] == ("1073741824", False)


async def test_a_topics_life(subject: Subject, ask: Call) -> None:
    made = await ask("create_topic", "t", 3, {"retention.ms": "1000"})
    assert (made.partitions, dict(made.overrides)) == (3, {"retention.ms": "1000"})
    assert (await ask("create_topic", "u")).partitions == 1
    grown = await ask("create_partitions", "t", 4)
    assert grown.partitions == 4
    changed = await ask("alter_topic", "t", {"segment.bytes": "2000"}, ["retention.ms"])
    assert dict(changed.overrides) == {"segment.bytes": "2000"}
    assert (await ask("delete_topic", "t")).name == "t"
    assert sorted(subject.cluster.definitions.topics()) == ["orders", "u"]


async def test_groups_with_their_lag(subject: Subject, ask: Call) -> None:
    await commit(subject, "g", {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 0})
    (listed,) = await ask("list_groups")
    assert (listed.group_id, listed.state, listed.members) == ("g", "Empty", 0)
    found = await ask("describe_group", "g")
    assert [(o.partition, o.committed, o.end_offset, o.lag, o.metadata) for o in found.offsets] == [
        (0, 1, 3, 2, "m"),
        (1, 0, 0, 0, "m"),
    ]
    await ask("delete_group", "g")
    assert list(await ask("list_groups")) == []


async def test_ways_of_a_message_of_a_host_alone(subject: Subject, ask: Call) -> None:
    with pytest.raises(TreecastError) as refused:
        await ask("explain", pb.ExplainRequest(topic="orders"))
    assert refused.value.fault is Fault.NOT_SUPPORTED  # it is still starting
    hub = PubSub(PubSubSettings(), PubSubCounters())
    hub.subscribe(Subscription(named(Subscriber(1), "meter"), b"a/#"))
    hub.subscribe(Subscription(named(Subscriber(2), "amq.topic"), b"a/b"))
    subject.explanation = Explanation(subject.cluster, hub, OneQueue(), None, "host {}".format)

    async def ways(**request: Any) -> list[tuple[str, list[str], str, str]]:
        found = await ask("explain", pb.ExplainRequest(**request))
        assert found.host == "host 1"
        assert list(found.hosts) == (["host 1"] if found.ways else [])
        return [(way.sender, list(way.hosts), way.carrier, way.why) for way in found.ways]

    here = ("host 1", ["host 1"], "local")
    assert await ways(topic="orders") == [(*here, "leads all partitions of orders")]
    assert await ways(mqtt="a/b") == [(*here, "subscribers: meter, amq.topic")]
    assert await ways(mqtt="b") == []
    queue = (*here, "queues: q")
    assert await ways(exchange="", key="q") == [queue]
    assert await ways(exchange="amq.topic", key="a.b") == [queue, (*here, "subscribers: meter")]


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        ({}, Fault.INVALID_REQUEST),
        ({"topic": "missing"}, Fault.UNKNOWN_TOPIC),
        ({"mqtt": "a/+"}, Fault.INVALID_TOPIC),
        ({"mqtt": "a\0"}, Fault.INVALID_TOPIC),
        ({"exchange": "e"}, Fault.NOT_SUPPORTED),
    ],
)
async def test_ways_of_what_cannot_be_published(
    subject: Subject, ask: Call, request_: dict[str, Any], fault: Fault
) -> None:
    hub = PubSub(PubSubSettings(), PubSubCounters())
    subject.explanation = Explanation(subject.cluster, hub, None, None, str)
    with pytest.raises(TreecastError) as refused:
        await ask("explain", pb.ExplainRequest(**request_))
    assert refused.value.fault is fault


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        ({"earliest": True}, 0),
        ({"latest": True}, 3),
        ({"offset": 2}, 2),
        ({"offset": 99}, 3),
        ({"shift": -1}, 1),
        ({"shift": -9}, 0),
        ({"timestamp": 1_700_000_000_001}, 1),
        ({"timestamp": 1_800_000_000_000}, 3),
    ],
)
async def test_where_a_group_is_reset_to(
    subject: Subject, ask: Call, target: dict[str, Any], offset: int
) -> None:
    await commit(subject, "g", {TopicPartition("orders", 0): 2})
    tried = await ask("reset_group", pb.ResetGroupRequest(group_id="g", dry_run=True, **target))
    assert [o.committed for o in tried.after] == [offset]
    assert [o.committed for o in (await ask("describe_group", "g")).offsets] == [2]
    done = await ask("reset_group", pb.ResetGroupRequest(group_id="g", **target))
    assert ([o.committed for o in done.before], [o.committed for o in done.after]) == ([2], [offset])
    assert [o.committed for o in (await ask("describe_group", "g")).offsets] == [offset]


async def test_a_reset_makes_a_group_for_a_topic(ask: Call) -> None:
    done = await ask("reset_group", pb.ResetGroupRequest(group_id="new", topic="orders", latest=True))
    assert [(o.topic, o.partition, o.committed) for o in done.after] == [("orders", 0, 3), ("orders", 1, 0)]


@pytest.mark.parametrize(
    ("name", "arguments", "fault"),
    [
        ("describe_topic", ("missing",), Fault.UNKNOWN_TOPIC),
        ("delete_topic", ("missing",), Fault.UNKNOWN_TOPIC),
        ("create_topic", ("orders",), Fault.TOPIC_EXISTS),
        ("create_topic", ("a/b",), Fault.INVALID_TOPIC),
        ("create_topic", ("t", 1, {"nope": "1"}), Fault.INVALID_CONFIG),
        ("create_partitions", ("orders", 1), Fault.INVALID_PARTITIONS),
        ("alter_topic", ("orders", {"retention.ms": "x"}), Fault.INVALID_CONFIG),
        ("describe_group", ("missing",), Fault.GROUP_NOT_FOUND),
        ("delete_group", ("missing",), Fault.GROUP_NOT_FOUND),
        ("reset_group", (pb.ResetGroupRequest(group_id="g", topic="orders"),), Fault.INVALID_REQUEST),
        ("reset_group", (pb.ResetGroupRequest(group_id="g", latest=True),), Fault.INVALID_REQUEST),
        ("reset_group", (pb.ResetGroupRequest(group_id="g", topic="no", latest=True),), Fault.UNKNOWN_TOPIC),
    ],
)
async def test_refusals_cross_as_they_are(ask: Call, name: str, arguments: Any, fault: Fault) -> None:
    with pytest.raises(TreecastError) as refused:
        await ask(name, *arguments)
    assert refused.value.fault is fault
    assert refused.value.detail


async def test_an_error_of_our_own_is_told_without_its_insides(
    subject: Subject, ask: Call, caplog: pytest.LogCaptureFixture
) -> None:
    subject.cluster = None  # type: ignore[assignment]
    with pytest.raises(TreecastError) as refused:
        await ask("list_topics")
    assert refused.value.fault is Fault.INTERNAL
    assert "NoneType" not in refused.value.detail
    assert "call failed: call=ListTopics" in caplog.text


async def test_the_unix_socket_serves_too(server: ControlServer, tmp_path: Path) -> None:
    endpoint = Endpoint(server.address, tmp_path / "control.sock", "test")
    with DaemonClient(endpoint, timeout=20) as client:
        assert (await asyncio.to_thread(client.status)).name == "h1"


def test_nobody_there() -> None:
    with (
        DaemonClient("127.0.0.1:1", timeout=5) as client,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"),
    ):
        client.status()


async def test_a_daemon_that_is_still_starting_says_so(subject: Subject) -> None:
    server = ControlServer(subject.cluster.cluster_id, Address("127.0.0.1", 0), None)
    await server.start()

    def ask() -> None:
        with DaemonClient(str(server.address), timeout=20) as client:
            client.status()

    with pytest.raises(TreecastError, match="this daemon is still starting: try again"):
        await asyncio.to_thread(ask)
    server.show(subject)
    await asyncio.to_thread(ask)
    await server.close(0)


async def test_a_port_in_use(subject: Subject) -> None:
    with listen("admin", Address("127.0.0.1", 0)) as listener:
        taken = ControlServer(subject.cluster.cluster_id, bound_address(listener), None)
        with pytest.raises(StartError, match=r"--control .* the port is in use"):
            await taken.start()


def test_every_call_of_the_service_is_implemented_and_has_a_client_method() -> None:
    names = [method.attribute for method in methods(SERVICE)]
    assert "list_topics" in names
    assert [name for name in names if not hasattr(DaemonClient, name)] == []
    assert [name for name in names if not hasattr(DaemonService, name)] == []


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_has_a_status(fault: Fault) -> None:
    assert status_code(fault) not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN)
