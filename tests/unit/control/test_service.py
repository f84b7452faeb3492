"""The service through real gRPC on loopback: calls, watching, restarts, bad input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc.aio
import pytest

from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.coordinator_client import SERVICE, CoordinatorClient
from treecast.middleware.api.entries import Change, Position, Update
from treecast.middleware.api.rpc import methods
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control.server import CoordinatorServer, ServerSettings
from treecast.middleware.control.stored_state import CoordinatorSettings
from treecast.middleware.control.values import Limits, StateSettings
from treecast.middleware.model.errors import Fault, TreecastError

Connect = Callable[..., CoordinatorClient]
Hello = Callable[..., pb.AttachRequest]
GROUP = pb.HOME_KIND_GROUP


def topic(name: str, partitions: int = 1, **fields: Any) -> pb.CreateTopicEntryRequest:
    return pb.CreateTopicEntryRequest(name=name, partitions=partitions, **fields)


def held(server: CoordinatorServer) -> dict[tuple[int, str], Change]:
    return {(change.kind, change.key): change for change in server.coordinator.stored.state.entries()}


class Replica:
    """A watcher's copy of the state, built from its updates."""

    def __init__(self, updates: AsyncGenerator[Update, None]) -> None:
        self.updates = updates
        self.known: dict[tuple[int, str], Change] = {}
        self.position = Position()
        self.snapshots = 0

    async def follow(self, revision: int) -> None:
        while self.position.revision < revision:
            update = await asyncio.wait_for(anext(self.updates), 20)
            if update.snapshot:
                self.known.clear()
                self.snapshots += 1
            for change in update.changes:
                if change.entry is None:
                    self.known.pop((change.kind, change.key), None)
                else:
                    self.known[change.kind, change.key] = change
            self.position = update.position


async def refused(call: Any) -> TreecastError:
    with pytest.raises(TreecastError) as found:
        await call
    assert found.value.detail
    return found.value


async def until(check: Callable[[], object]) -> None:
    """Waits for a condition; the generous limit only matters to a test that fails."""
    for _ in range(3000):
        if check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not become true in time")


# --- calls


async def test_a_hosts_life(client: CoordinatorClient, hello: Hello) -> None:
    first = await client.attach(hello("h1"))
    other = await client.attach(hello("h2"))
    assert (first.session.host_id, other.session.host_id, first.cluster_id) == (1, 2, "c" * 22)
    assert (await client.renew(first.session)).lease_seconds == 10.0
    again = await client.attach(hello("h1"))
    assert (again.session.host_id, again.session.incarnation) == (1, 2)
    error = await refused(client.renew(first.session))
    assert (error.fault, "attached again" in error.detail) == (Fault.UNKNOWN_MEMBER, True)
    await client.detach(again.session)
    assert (await refused(client.renew(again.session))).fault is Fault.UNKNOWN_MEMBER
    assert (await client.attach(hello("h1", instance="new disk"))).session.host_id == 1


async def test_topics(server: CoordinatorServer, client: CoordinatorClient, hello: Hello) -> None:
    assert (await refused(client.create_topic(topic("t")))).fault is Fault.LEADER_UNAVAILABLE
    for name in ("h1", "h2"):
        await client.attach(hello(name))
    made = (await client.create_topic(topic("t", 4, config={"retention.ms": "5"}))).topic
    assert [p.leader for p in made.partitions] == [1, 2, 1, 2]
    assert len(made.topic_id) == 16
    revision = server.coordinator.stored.revision
    tried = (await client.create_topic(topic("u", 3, pinned=["h2"], validate_only=True))).topic
    assert [p.leader for p in tried.partitions] == [2, 2, 2]
    assert server.coordinator.stored.revision == revision
    grown = await client.create_partitions(
        pb.CreatePartitionEntriesRequest(name="t", total=6, pinned=["h1", "h1"])
    )
    assert [p.leader for p in grown.topic.partitions] == [1, 2, 1, 2, 1, 1]
    change = pb.AlterTopicEntryRequest(name="t", set={"segment.bytes": "99"}, unset=["retention.ms"])
    assert dict((await client.alter_topic(change)).topic.config) == {"segment.bytes": "99"}
    assert (await client.delete_topic("t")).topic.topic_id == made.topic_id
    assert (await refused(client.delete_topic("t"))).fault is Fault.UNKNOWN_TOPIC


async def test_a_homes_state_is_kept_and_fenced(client: CoordinatorClient, hello: Hello) -> None:
    one = (await client.attach(hello("h1"))).session
    two = (await client.attach(hello("h2"))).session
    home = await client.group_home(one, "g")
    assert home == await client.group_home(two, "g") == pb.HomeEntry(kind=GROUP, id="g", host_id=1, epoch=1)
    items = {b"%04d" % n: bytes([n % 256]) * 3000 for n in range(600)}  # several pages
    put = [pb.HomeItem(key=key, value=value) for key, value in items.items()]
    write = pb.HomeWrite(kind=GROUP, id="g", epoch=1, items=put)
    assert await client.put_home_state(one, [write]) == {}
    assert await client.get_home_state(one, home) == items
    removal = pb.HomeWrite(kind=GROUP, id="g", epoch=1, items=[pb.HomeItem(key=b"0001")])
    absent = pb.HomeWrite(kind=pb.HOME_KIND_TRANSACTION, id="g", epoch=1)
    answers = await client.put_home_state(one, [absent, removal])
    assert {index: error.fault for index, error in answers.items()} == {0: Fault.NOT_COORDINATOR}
    assert (await client.get_home_state(one, home)).keys() == items.keys() - {b"0001"}
    foreign = await client.put_home_state(two, [removal])
    assert foreign[0].fault is Fault.NOT_COORDINATOR
    assert (await refused(client.get_home_state(two, home))).fault is Fault.NOT_COORDINATOR
    await client.detach(one)
    taken = await client.group_home(two, "g")
    assert (taken.host_id, taken.epoch) == (2, 2)
    assert len(await client.get_home_state(two, taken)) == 599
    gone = pb.HomeWrite(kind=GROUP, id="g", epoch=2, forget=True)
    assert await client.put_home_state(two, [gone]) == {}
    anew = await client.group_home(two, "g")
    assert anew.epoch == 3
    assert await client.get_home_state(two, anew) == {}


async def test_ids_and_interest(
    server: CoordinatorServer, client: CoordinatorClient, hello: Hello, restart: Any
) -> None:
    one = (await client.attach(hello("h1"))).session
    two = (await client.attach(hello("h2"))).session
    assert await client.producer_ids(one) == range(1000)
    assert await client.producer_ids(two, 5) == range(1000, 1005)
    state = await client.allot_state(one, ["a", "", "ü"])
    assert state == pb.StateEntry(state_id=256, levels=["a", "", "ü"], holders=[1])
    assert list((await client.allot_state(two, ["a", "", "ü"])).holders) == [1, 2]
    assert (await client.allot_state(one, ["b"])).state_id == 257
    await client.release_state(one, 256)
    assert (await client.allot_state(two, ["a", "", "ü"])).state_id == 256
    await client.release_state(two, 256)
    assert (await client.allot_state(two, ["a", "", "ü"])).state_id == 258
    assert await client.put_interest(one, 2, ["a/#"]) == 2
    assert await client.put_interest(one, 1, ["b"]) == 2
    first = await client.put_definitions(one, [pb.DefinitionWrite(key="k", value=b"x")])
    assert await client.put_definitions(one, [pb.DefinitionWrite(key="k", value=b"x")]) == first
    later = await restart(server)
    assert (await client.producer_ids(one)).start > 1005
    assert (await client.transaction_home(two, "t")).epoch == 1
    await later.close(0)


async def test_every_call_has_a_client_method(client: CoordinatorClient) -> None:
    assert [m.name for m in methods(SERVICE) if not hasattr(client, m.attribute)] == []


# --- watching


async def test_a_watcher_follows_and_resumes(
    server: CoordinatorServer, client: CoordinatorClient, hello: Hello, connect: Connect, restart: Any
) -> None:
    session = (await client.attach(hello("h1"))).session
    await client.group_home(session, "g")
    async with aclosing(client.watch()) as updates:
        replica = Replica(updates)
        await replica.follow(server.coordinator.stored.revision)
        assert replica.known == held(server)
        for number in range(30):
            await client.create_topic(topic(f"t{number}"))
        await client.delete_topic("t3")
        await replica.follow(server.coordinator.stored.revision)
        assert (replica.known == held(server), replica.snapshots) == (True, 1)
        await client.create_topic(topic("meanwhile"))
        later = await restart(server)
        await client.create_topic(topic("after"))
        await replica.follow(later.coordinator.stored.revision)
        assert replica.known == held(later)
    async with aclosing(connect(later).watch(replica.position)) as resumed:
        replica.updates = resumed
        before = replica.snapshots
        await client.create_topic(topic("more"))
        await replica.follow(later.coordinator.stored.revision)
        assert (replica.known == held(later), replica.snapshots) == (True, before)
    await later.close(0)


async def test_who_is_too_far_behind_gets_a_snapshot(settings: ServerSettings, connect: Connect) -> None:
    server = CoordinatorServer(replace(settings, coordinator=CoordinatorSettings(history_revisions=5)))
    await server.start()
    client = connect(server)
    session = (
        await client.attach(pb.AttachRequest(name="h", instance="i", address="h:1", version="v"))
    ).session
    async with aclosing(client.watch()) as updates:
        replica = Replica(updates)
        await replica.follow(1)
    for number in range(20):
        await client.put_interest(session, number + 1, [f"p{number}"])
    async with aclosing(client.watch(replica.position)) as updates:
        replica.updates = updates
        await replica.follow(server.coordinator.stored.revision)
        assert (replica.known == held(server), replica.snapshots) == (True, 2)
    async with aclosing(client.watch(Position("other", 3))) as updates:  # of another store
        assert (await asyncio.wait_for(anext(updates), 20)).snapshot
    await server.close(0)


async def test_who_knows_more_than_the_store_is_told_nothing(
    server: CoordinatorServer, client: CoordinatorClient
) -> None:
    """A snapshot would take from the watcher what it knows."""
    history = server.coordinator.stored.history_id
    with pytest.raises(TreecastError, match="older state") as refused:
        async with aclosing(client._watch_once(Position(history, 10**9))) as updates:
            await anext(updates)
    assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
    assert server.coordinator.stored.history_id != history


async def test_a_snapshot_of_several_messages(
    server: CoordinatorServer, client: CoordinatorClient, hello: Hello
) -> None:
    for number in range(12):
        session = (await client.attach(hello(f"h{number}"))).session
        await client.put_interest(session, 1, [f"{n}" * 60_000 for n in range(3)])
    async with aclosing(client.watch()) as updates:
        replica = Replica(updates)
        await replica.follow(server.coordinator.stored.revision)
        assert (replica.known == held(server), replica.snapshots) == (True, 1)


async def test_a_watcher_that_does_not_read_is_dropped(
    settings: ServerSettings, connect: Connect, hello: Hello
) -> None:
    server = CoordinatorServer(replace(settings, stall=0.2, token=None))
    await server.start()
    client = connect(server, None)
    for number in range(40):
        session = (await client.attach(hello(f"h{number}"))).session
        await client.put_interest(session, 1, [f"{n % 10}" * 60_000 for n in range(10)])
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        call = channel.unary_stream("/treecast.v1.Coordinator/Watch")
        deaf = call(b"", metadata=(("treecast-protocol", "1"),))
        await until(lambda: server.calls.counters.watchers_dropped)
        await until(lambda: not server.calls.counters.watchers)
        deaf.cancel()
    assert (await client.attach(hello("after"))).session.host_id == 41
    await server.close(0)


async def test_watchers_are_bounded(settings: ServerSettings, connect: Connect) -> None:
    server = CoordinatorServer(replace(settings, max_watchers=1))
    await server.start()
    client = connect(server)
    async with aclosing(client.watch()) as first:
        await anext(first)
        async with aclosing(client._watch_once(Position())) as second:
            assert (await refused(anext(second))).fault is Fault.COORDINATOR_UNAVAILABLE
    await server.close(0)


# --- leases


async def test_a_host_that_is_silent_goes_away(
    settings: ServerSettings, connect: Connect, hello: Hello
) -> None:
    quick = CoordinatorSettings(StateSettings(lease=0.2, takeover=0.2, longest_step=0.1))
    server = CoordinatorServer(replace(settings, coordinator=quick))
    await server.start()
    client = connect(server)
    one = (await client.attach(hello("h1"))).session
    await client.group_home(one, "g")
    attachment = Attachment(client, hello("h2"))
    attachment.start()
    async with aclosing(client.watch()) as updates:
        replica = Replica(updates)
        while not any(getattr(c.entry, "presence", 0) == 2 for c in replica.known.values()):
            await replica.follow(replica.position.revision + 1)
    for _ in range(500):
        if (home := await client.group_home(attachment.session, "g")).host_id == 2:
            break
        await asyncio.sleep(0.05)
    assert (home.host_id, home.epoch) == (2, 2)
    assert (await refused(client.group_home(one, "g"))).fault is Fault.UNKNOWN_MEMBER
    await attachment.close(detach=True)
    await server.close(0)


async def test_an_attachment_lives_through_the_coordinators_absence(
    settings: ServerSettings, connect: Connect, hello: Hello
) -> None:
    quick = CoordinatorSettings(StateSettings(lease=1.0, longest_step=0.5))
    server = CoordinatorServer(replace(settings, coordinator=quick))
    await server.start()
    client = connect(server, timeout=2)
    sessions: list[int] = []
    attachment = Attachment(client, hello("h1"), lambda answer: sessions.append(answer.session.incarnation))
    assert (await refused(asyncio.to_thread(lambda: attachment.session))).fault is (
        Fault.COORDINATOR_UNAVAILABLE
    )
    attachment.start()
    await until(lambda: sessions)
    await server.close(0)
    await until(lambda: attachment.last_error)
    assert attachment.last_error is not None
    assert attachment.last_error.fault is Fault.COORDINATOR_UNAVAILABLE
    later = CoordinatorServer(replace(settings, coordinator=quick, address=server.address))
    await later.start()
    await until(lambda: attachment.last_error is None)
    assert attachment.session.host_id == 1
    lives = len(sessions)
    await client.detach(attachment.session)
    await until(lambda: len(sessions) > lives)
    assert attachment.session.host_id == 1
    await attachment.close(detach=True)
    await later.close(0)


# --- bad input


@pytest.mark.parametrize(
    ("name", "request_", "fault"),
    [
        ("attach", pb.AttachRequest(), Fault.INVALID_REQUEST),
        (
            "attach",
            pb.AttachRequest(name="h", instance="i", address="nowhere", version="1"),
            Fault.INVALID_REQUEST,
        ),
        (
            "attach",
            pb.AttachRequest(name="h", instance="i", address="h:0", version="1"),
            Fault.INVALID_REQUEST,
        ),
        (
            "attach",
            pb.AttachRequest(name="h\n", instance="i", address="h:1", version="1"),
            Fault.INVALID_REQUEST,
        ),
        (
            "attach",
            pb.AttachRequest(name="h", instance="", address="h:1", version="1"),
            Fault.INVALID_REQUEST,
        ),
        (
            "attach",
            pb.AttachRequest(name="h", instance="i", address="h:1", version="v" * 9999),
            Fault.INVALID_REQUEST,
        ),
        ("renew", pb.HostSession(host_id=9), Fault.UNKNOWN_MEMBER),
        ("renew", pb.HostSession(), Fault.UNKNOWN_MEMBER),
        ("detach", pb.HostSession(host_id=2**32 - 1, incarnation=2**64 - 1), Fault.UNKNOWN_MEMBER),
        ("create_topic", topic("a/b"), Fault.INVALID_TOPIC),
        ("create_topic", topic("t", 0), Fault.INVALID_PARTITIONS),
        ("create_topic", topic("t", 2**32 - 1), Fault.INVALID_PARTITIONS),
        ("create_topic", topic("t", config={"nope": "1"}), Fault.INVALID_CONFIG),
        ("create_topic", topic("t", config={"retention.ms": "1".rjust(2000)}), Fault.INVALID_CONFIG),
        ("create_topic", topic("t", 3, pinned=["h1", "h1"]), Fault.INVALID_ASSIGNMENT),
        ("create_topic", topic("t", pinned=["nobody"]), Fault.INVALID_ASSIGNMENT),
        ("alter_topic", pb.AlterTopicEntryRequest(name="nope"), Fault.UNKNOWN_TOPIC),
        (
            "alter_topic",
            pb.AlterTopicEntryRequest(name="old", set={"x": "1"}, unset=["x"]),
            Fault.INVALID_REQUEST,
        ),
        (
            "create_partitions",
            pb.CreatePartitionEntriesRequest(name="old", total=1),
            Fault.INVALID_PARTITIONS,
        ),
    ],
)
async def test_bad_fields_are_refused(
    client: CoordinatorClient, hello: Hello, name: str, request_: Any, fault: Fault
) -> None:
    await client.attach(hello("h1"))
    await client.create_topic(topic("old"))
    assert (await refused(getattr(client, name)(request_))).fault is fault


async def test_bad_fields_of_an_attached_host(
    settings: ServerSettings, connect: Connect, hello: Hello
) -> None:
    few = CoordinatorSettings(StateSettings(limits=Limits(homes=1, states=1, patterns=2, hosts=1)))
    server = CoordinatorServer(replace(settings, coordinator=few))
    await server.start()
    client = connect(server)
    session = (await client.attach(hello("h1"))).session
    await client.group_home(session, "g")
    await client.allot_state(session, ["a"])

    def put(**fields: Any) -> Any:
        return client.put_home_state(session, [pb.HomeWrite(id="g", epoch=1, **{"kind": GROUP, **fields})])

    room, bad = Fault.POLICY_VIOLATION, Fault.INVALID_REQUEST
    calls = [
        (client.attach(hello("h2")), room),
        (client.attach(hello("h1", instance="another disk")), room),
        (client.group_home(session, ""), bad),
        (client.group_home(session, "x" * 5000), bad),
        (client.group_home(session, "other"), room),
        (client.allot_state(session, ["b"]), room),
        (client.allot_state(session, []), Fault.INVALID_TOPIC),
        (client.allot_state(session, ["x" * 70_000]), Fault.INVALID_TOPIC),
        (client.producer_ids(session, 10**6), bad),
        (client.put_interest(session, 1, ["a", "b", "c"]), bad),
        (client.put_interest(session, 1, [""]), bad),
        (client.put_interest(session, 1, ["x" * 70_000]), bad),
        (client.put_definitions(session, [pb.DefinitionWrite(key="", value=b"x")]), bad),
        (client.put_definitions(session, [pb.DefinitionWrite(key="k", value=bytes(70_000))]), bad),
        (put(kind=77), bad),
        (client.put_home_state(session, [pb.HomeWrite(kind=GROUP, id="g", epoch=1)] * 2), bad),
    ]
    for call, fault in calls:
        assert (await refused(call)).fault is fault
    for fields in (
        {"items": [pb.HomeItem(key=b"", value=b"")]},
        {"items": [pb.HomeItem(key=b"k", value=bytes(2**20 + 1))]},
        {"items": [pb.HomeItem(key=b"k", value=b"")], "forget": True},
    ):
        assert (await put(**fields))[0].fault is bad
    ahead = await client.put_home_state(session, [pb.HomeWrite(kind=GROUP, id="g", epoch=2)])
    assert ahead[0].fault is bad
    await client.release_state(session, 2**32 - 1)
    assert server.calls.counters.refused["INVALID_REQUEST"] >= 7
    await server.close(0)


async def test_an_address_in_use(server: CoordinatorServer, settings: ServerSettings) -> None:
    elsewhere = settings.path.with_name("other.sqlite")
    other = CoordinatorServer(replace(settings, address=server.address, path=elsewhere))
    assert "cannot listen" in (await refused(other.start())).detail
    twin = CoordinatorServer(settings)
    assert "another coordinator" in (await refused(twin.start())).detail
    await other.close()


async def test_an_error_of_our_own_is_told_without_its_insides(
    server: CoordinatorServer, client: CoordinatorClient, hello: Hello, caplog: pytest.LogCaptureFixture
) -> None:
    server.coordinator.do = None  # type: ignore[method-assign, assignment]
    error = await refused(client.attach(hello("h1")))
    assert (error.fault, "NoneType" in error.detail) == (Fault.INTERNAL, False)
    assert "call failed: call=Attach" in caplog.text
