"""Several coordinators on one database: one leads, another takes over, and none decides beside another."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.postgresql import PostgresServer, both

from treecast.middleware.api.coordinator_calls import ViewWanted
from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import Position, TopicEntry
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.control import postgres_session
from treecast.middleware.control.elected import TRANSITIONS, ElectedCoordinator, Event, Role
from treecast.middleware.control.postgres import PostgresStore, first_epoch
from treecast.middleware.control.postgres_session import shown
from treecast.middleware.control.restore import copy_store
from treecast.middleware.control.server import CoordinatorServer, ServerSettings
from treecast.middleware.control.store import Commit, SqliteStore, StoredChange, successor
from treecast.middleware.control.values import ItemWrite
from treecast.middleware.model.errors import Fault, TreecastError

CLUSTER = "c" * 22
WAIT = 60.0


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


def settings(database: str, cluster: str = CLUSTER) -> ServerSettings:
    return ServerSettings(
        Address("127.0.0.1", 0), Path("/nowhere"), None, cluster_id=cluster, database=database
    )


def office(server: CoordinatorServer) -> ElectedCoordinator:
    assert isinstance(server.opened, ElectedCoordinator)
    return server.opened


@asynccontextmanager
async def started(database: str) -> AsyncIterator[CoordinatorServer]:
    server = CoordinatorServer(settings(database))
    await server.start()
    try:
        yield server
    finally:
        await server.close(0)


@asynccontextmanager
async def client_of(*servers: CoordinatorServer) -> AsyncIterator[CoordinatorClient]:
    made = CoordinatorClient(
        ",".join(str(server.address) for server in servers), None, cluster_id=CLUSTER, rng=random.Random(1)
    )
    try:
        yield made
    finally:
        await made.close()


async def make_topic(client: CoordinatorClient, name: str) -> None:
    await client.create_topic(pb.CreateTopicEntryRequest(name=name, partitions=1))


def leads(server: CoordinatorServer) -> Callable[[], bool]:
    return lambda: office(server).role is Role.LEADS


async def renewed(client: CoordinatorClient, session: pb.HostSession) -> bool:
    try:
        await client.renew(session)
    except TreecastError as error:
        if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
            raise
        return False
    return True


async def attach(client: CoordinatorClient) -> pb.AttachResponse:
    return await client.attach(pb.AttachRequest(name="h", instance="i", address="h:1", version="1"))


async def topics(client: CoordinatorClient) -> set[str]:
    async with aclosing(client.watch()) as updates:
        found = await anext(updates)
    return {change.key for change in found.changes if isinstance(change.entry, TopicEntry)}


def test_each_event_of_a_role_is_listed_or_cannot_occur() -> None:
    impossible = {
        (Role.AWAY, Event.LOCK),
        (Role.STANDBY, Event.CONNECTED),
        (Role.LEADS, Event.CONNECTED),
        (Role.LEADS, Event.LOCK),
    }
    assert set(itertools.product(Role, Event)) == set(TRANSITIONS) | impossible


def test_a_promotion_and_a_new_store_begin_above_all_before() -> None:
    epochs = [first_epoch(birth, line) for birth in (1, 2, 2**31 - 1) for line in (1, 2, 4095, 9999)]
    assert epochs == sorted(epochs)
    assert 0 < epochs[0] + 2**20 - 1 < epochs[1]
    assert epochs[-1] < 2**63


def test_a_password_is_not_shown() -> None:
    assert shown("postgresql://u:secret@h:1,i:2/d?a=b") == "postgresql://u@h:1,i:2/d?a=b"
    assert shown("postgresql://h/d?user=u&password=secret&a=b") == "postgresql://h/d?user=u&password=...&a=b"


async def test_one_leads_and_the_other_takes_over(database: str) -> None:
    async with started(database) as first:
        await until(leads(first))
        async with (
            started(database) as second,
            client_of(second) as alone,
            client_of(second, first) as client,
        ):
            await until(lambda: office(second).leader.address == str(first.address))
            with pytest.raises(TreecastError, match=f"does not lead: {first.address} does") as refused:
                await make_topic(alone, "t")
            assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
            told = await alone.status()
            assert (told.role, told.leader, told.epoch) == ("waits for the lock", str(first.address), 0)
            session = (await attach(client)).session
            await make_topic(client, "t")
            assert client.target == str(first.address)
            history, epoch = first.coordinator.stored.history_id, first.coordinator.stored.epoch
            async with aclosing(client.watch()) as updates:
                assert (await anext(updates)).position == Position(history, 2, epoch)
                await first.close(0)
                await until(leads(second))
                await until(lambda: renewed(client, session))  # with a whole lease
                await make_topic(client, "u")
                assert (await anext(updates)).position == Position(history, 3, epoch + 1)
            assert client.epoch == epoch + 1
            found = await client.status()
            assert (found.role, found.epoch, found.takeovers) == ("leads", epoch + 1, 1)


async def test_a_lost_session_ends_the_lead_and_nothing_that_was_answered(
    database: str, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(database) as server, client_of(server) as client:
        await until(leads(server))
        await attach(client)
        await make_topic(client, "t")
        before = server.coordinator
        ended = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'treecast%'"
        )
        postgres.sql(f"{ended} AND datname = '{database.rpartition('/')[2]}'")
        with pytest.raises(TreecastError) as refused:
            await make_topic(client, "u")
        assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
        await until(lambda: office(server).takeovers == 2)
        assert await topics(client) == {"t"}
        assert (server.coordinator.stored.epoch, server.coordinator.stored.history_id) == (
            before.stored.epoch + 1,
            before.stored.history_id,
        )
        found = await client.status()
        assert (found.takeovers, found.store_losses) == (2, 1)
    assert "coordinator has no store and does not decide" in caplog.text


async def test_a_server_that_is_away_is_told_and_awaited() -> None:
    server = PostgresServer()
    try:
        server.start()
        url = server.make_database("d")
        server.stop()
        async with started(url) as coordinator, client_of(coordinator) as client:
            with pytest.raises(TreecastError, match="it has no store"):
                await attach(client)
            [problem] = (await client.status()).problems
            assert "connects again by itself" in problem
            server.start()
            await until(leads(coordinator))
            await attach(client)
            await make_topic(client, "t")
            server.stop(signal.SIGQUIT)
            await until(lambda: office(coordinator).role is Role.AWAY)
            assert (await client.status()).role == "has no store"
            server.start()
            await until(leads(coordinator))
            assert await topics(client) == {"t"}
            assert not (await client.status()).problems
    finally:
        server.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://nobody-there@127.0.0.1:{port}/postgres", "role .* does not exist"),
        ("postgresql://postgres@127.0.0.1:{port}/missing", "does not exist"),
    ],
)
async def test_a_start_that_needs_an_operator_is_refused(
    postgres: PostgresServer, url: str, message: str
) -> None:
    server = CoordinatorServer(settings(url.format(port=postgres.port)))
    with pytest.raises(TreecastError, match=message) as refused:
        await server.start()
    assert refused.value.fault is Fault.STORAGE


async def test_another_clusters_database_is_refused(database: str) -> None:
    async with started(database) as server:
        await until(leads(server))
    with pytest.raises(TreecastError, match="belongs to cluster c"):
        await CoordinatorServer(settings(database, "d" * 22)).start()


# --- fencing


def opened(url: str, address: str = "") -> PostgresStore:
    store = PostgresStore(url, lambda: uuid.uuid4().hex, cluster_id=CLUSTER, address=address)
    store.connect()
    return store


def leading(url: str) -> PostgresStore:
    store = opened(url)
    assert store.lead(30)
    return store


def write(number: int) -> Commit:
    return Commit(number, (StoredChange(2, "k", b"%d" % number, removed=False),))


def test_who_has_lost_the_lock_without_knowing_writes_nothing(database: str) -> None:
    """As behind a pool of connections, which gives the session to somebody else."""
    old = leading(database)
    old.commit([write(1)], 0)

    async def unlock(connection: object) -> None:
        await connection.execute("SELECT pg_advisory_unlock_all()")  # type: ignore[attr-defined]

    old._session.run("unlock", unlock)
    new = leading(database)
    assert new.epoch == old.epoch + 1
    new.commit([write(2)], 0)
    for attempt in (lambda: old.commit([write(2)], 0), old.confirm, old.load, lambda: old.items("h", b"", 9)):
        with pytest.raises(TreecastError, match=r"epoch|session") as refused:
            attempt()
        assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
    assert new.load().entries == (b"2",)
    for store in (old, new):
        store.close()


def test_only_one_leads_whoever_comes_and_goes(database: str) -> None:
    stores: list[PostgresStore] = [opened(database) for _ in range(3)]
    rng, number, epochs = random.Random(3), 0, []
    for _ in range(25):
        chosen = rng.randrange(3)
        if not stores[chosen].epoch and stores[chosen].lead(0.05):
            epochs.append(stores[chosen].epoch)
        writers = 0
        for store in stores:
            try:
                store.commit([write(number + 1)], number)
            except TreecastError:
                continue
            writers, number = writers + 1, number + 1
        assert writers <= 1
        for index in range(3):
            if rng.random() < 0.3 or stores[index]._session._why_lost:
                stores[index].close()
                stores[index] = opened(database)
    assert len(epochs) > 3
    assert epochs == sorted(set(epochs))
    for store in stores:
        store.close()


def test_a_server_ends_a_session_that_is_silent(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that is stopped, or on a host that vanished, does not hold the lock for ever."""
    monkeypatch.setitem(postgres_session._SETTINGS, "idle_session_timeout", "300ms")
    old = leading(database)
    monkeypatch.undo()
    new = leading(database)  # waits until the server has ended the other session
    with pytest.raises(TreecastError) as refused:
        old.commit([write(1)], 0)
    assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
    new.confirm()
    for store in (old, new):
        store.close()


# --- a standby of PostgreSQL


@pytest.fixture
def pair(postgres: PostgresServer) -> Iterator[tuple[PostgresServer, PostgresServer, str]]:
    """A primary, its synchronous standby, and the URL of both."""
    primary = PostgresServer()
    standby = None
    try:
        primary.start()
        primary.make_database("d")
        standby = PostgresServer(of=primary)
        standby.start()
        primary.wait_for_standby()
        yield primary, standby, both((primary, standby), "d")
    finally:
        for server in (primary, standby):
            if server is not None:
                server.close()


async def test_a_promoted_standby_has_all_and_the_old_primary_acknowledges_nothing(
    pair: tuple[PostgresServer, PostgresServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_session, "CALL_SECONDS", 1.0)
    primary, standby, url = pair
    async with started(primary.url("d")) as old, started(url) as new:
        await until(lambda: leads(old)() or leads(new)())
        async with client_of(old, new) as client:
            await attach(client)
            await make_topic(client, "t")
            position = Position()
            async with aclosing(client.watch()) as updates:
                position = (await anext(updates)).position
            standby.promote()  # the old primary still runs, without a standby to confirm
            # whoever led cannot answer now: its commit waits for the standby
            with pytest.raises(TreecastError) as refused:
                await make_topic(client, "lost" if client.target == str(old.address) else "u")
            assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
            primary.stop(signal.SIGQUIT)
            await until(leads(new))
            await make_topic(client, "v")
            assert await topics(client) == {"t", "v"}
            assert client.epoch >> 20 == (position.epoch >> 20) + 1  # the next timeline
            assert new.coordinator.stored.history_id != position.history


def test_a_store_on_another_timeline_has_another_history(
    pair: tuple[PostgresServer, PostgresServer, str],
) -> None:
    primary, standby, url = pair
    before = leading(url)
    before.commit([write(1)], 0)
    history = before.load().history
    before.close()
    primary.stop(signal.SIGQUIT)
    standby.promote()
    after = leading(url)
    assert after.load().history != history
    assert after.load().revision == 1
    assert after.epoch > before.epoch + 2**19
    again = after.load().history
    after.close()
    later = leading(url)
    assert later.load().history == again
    later.close()


# --- the caller's side


async def test_an_answer_of_an_earlier_epoch_is_void(database: str) -> None:
    async with started(database) as server, client_of(server) as client:
        await until(leads(server))
        client.epoch = server.coordinator.stored.epoch + 1
        client.heard = pb.Heard  # as earlier versions, which do not tell what they have heard
        for call in (lambda: attach(client), lambda: make_topic(client, "t")):
            with pytest.raises(TreecastError, match="its answer is void") as refused:
                await call()
            assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
        with pytest.raises(TreecastError, match="void"):
            async with aclosing(client._watch_once(Position())) as updates:
                await anext(updates)


async def test_a_database_restored_from_an_older_dump_takes_back_what_a_host_knows(
    postgres: PostgresServer, database: str
) -> None:
    """Its epoch rises above the one that the host has heard of, or the host would refuse it for ever."""
    dump, name = f"{database}_dump", database.rpartition("/")[2]
    async with started(database) as server, client_of(server) as client:
        await until(leads(server))
        session = (await attach(client)).session
    await asyncio.to_thread(postgres.copy_database, name, dump.rpartition("/")[2])
    for _ in range(3):
        async with started(database) as server, client_of(server) as client:
            await until(leads(server))
            await client.renew(session)
            await make_topic(client, uuid.uuid4().hex)
            async with aclosing(client.watch()) as updates:
                known = await anext(updates)
    async with started(dump) as server, client_of(server) as client:
        await until(leads(server))
        client.epoch, client.position = known.position.epoch, lambda: known.position
        lower = server.coordinator.stored.epoch
        assert lower < client.epoch
        session.heard.CopyFrom(client.heard())
        with pytest.raises(ViewWanted):
            await client.renew(session)
        assert server.coordinator.stored.epoch > known.position.epoch
        await client.hand_in("h", known.position, known.changes)
        await client.renew(session)
        topics = {change.key for change in known.changes if isinstance(change.entry, TopicEntry)}
        assert {topic.name for topic in server.coordinator.stored.state.topics()} == topics
        epoch = server.coordinator.stored.epoch
    async with started(dump) as server:
        await until(leads(server))
        assert server.coordinator.stored.epoch == epoch + 1


async def test_a_later_timeline_is_not_followed(database: str) -> None:
    """Another server was promoted, and may go on: only an operator knows."""
    async with started(database) as server, client_of(server) as client:
        await until(leads(server))
        before = server.coordinator.stored.epoch
        client.epoch = before + (1 << 20)
        with pytest.raises(TreecastError, match="another server was promoted") as refused:
            await attach(client)
        assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
        assert server.coordinator.stored.epoch == before


def test_a_store_of_an_earlier_version_gets_a_lineage(database: str) -> None:
    store = leading(database)
    store.close()

    async def forget(connection: Any) -> None:
        await connection.execute("ALTER TABLE treecast.standing DROP COLUMN lineage")

    session = postgres_session.Session(database)
    session.open()
    session.run("alter", forget)
    session.close()
    store = leading(database)
    assert [reign.epoch for reign in store.load().lineage.reigns] == [store.epoch]
    store.close()


def test_every_answer_of_a_coordinator_carries_an_epoch() -> None:
    service = pb.DESCRIPTOR.services_by_name["Coordinator"]
    assert {method.output_type.fields_by_name["epoch"].number for method in service.methods} == {30}


# --- copying


def test_a_file_is_copied_whole_and_never_used_again(database: str, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    source = SqliteStore(path, lambda: "history", cluster_id=CLUSTER)
    topic = pb.EntryChange(
        kind=pb.ENTRY_KIND_TOPIC, key="t", topic=pb.TopicEntry(name="t", topic_id=bytes(16))
    )
    entry = topic.SerializeToString()
    writes = tuple(ItemWrite(f"g:{number}", b"k", bytes(number)) for number in range(5))
    source.commit([Commit(1, (StoredChange(2, "t", entry, removed=False),), writes)], 0)
    expected = source.load()
    with pytest.raises(TreecastError, match="in use"):
        copy_store(path, database)
    source.close()
    assert not successor(path)
    assert copy_store(path, database) == (CLUSTER, 1)
    assert successor(path) == shown(database)
    with pytest.raises(TreecastError, match="was copied to"):
        SqliteStore(path, lambda: "x")
    target = leading(database)
    loaded = target.load()
    assert replace(loaded, lineage=expected.lineage) == expected
    assert loaded.lineage.reigns[:1] == expected.lineage.reigns
    assert target.items("g:4", b"", 99) == ([(b"k", bytes(4))], False)
    target.close()


def test_a_database_that_is_in_use_or_not_empty_takes_no_copy(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "coordinator.db"
    SqliteStore(path, lambda: "history", cluster_id=CLUSTER).close()
    monkeypatch.setattr("treecast.middleware.control.restore.LOCK_SECONDS", 0.05)
    target = leading(database)
    target.commit([write(1)], 0)
    with pytest.raises(TreecastError, match="in use"):
        copy_store(path, database)
    target.close()
    with pytest.raises(TreecastError, match="not empty"):
        copy_store(path, database)
    assert not successor(path)
