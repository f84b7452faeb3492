"""The asyncio edge of the AMQP face: real sockets, turns of its own, and the loop's clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from typing import cast

import pytest
from pamqp import base, commands, frame
from tests.unit.amqp.face import PROTOCOL_HEADER, frames_of

from treecast.middleware.broker import QueueEdge, Turn
from treecast.middleware.broker.access import Content, Identities
from treecast.middleware.broker.access import User as IdentityUser
from treecast.middleware.broker.pubsub_host import LoopEdge
from treecast.middleware.broker.queues import LocalVirtualHosts, MemoryStore, Recorder
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.shims.amqp import AmqpHost, AmqpSettings
from treecast.shims.amqp.access import KIND, KeptUsers, PasswordAccess
from treecast.shims.amqp.dialect import AmqpHeaders
from treecast.shims.amqp.server import AmqpFace
from treecast.shims.amqp.session_host import Access, credentials
from treecast.shims.amqp.users import Permission, TopicPermission, User, hashed
from treecast.shims.passwords import Passwords

PATIENCE_S = 30.0
STILL_S = 3.0  # beyond the times that the test sets for opening and for heartbeats
# `mosquitto_passwd -H sha512`: user "ann", password "word"
ANN = (
    "ann:$6$c2FsdA==$mQlxF4sXoeWX7fWgxbhjKZp8qNPwT8gYVsdHpWLDADqPqlNOkRq+cF4yCY/VMLc61SRYU4JGzF+L5NswLTUPLA=="
)


class Storage(MemoryStore):
    """In memory; writes may be refused."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.size = 0
        self.flushed = 0
        self.only_notes = False
        self.order: list[str] = []

    def flush(self) -> bool:
        self.flushed += 1
        self.order.append("store")
        return not self.failing


def make(access: Access | None = None, **settings: object) -> AmqpFace:
    storage = Storage()
    given = AmqpSettings(port=0, **settings)  # type: ignore[arg-type]
    queues = LocalVirtualHosts(storage, Recorder())
    queues.use(AmqpHeaders(), None)
    host = AmqpHost(given, access or KeptUsers(Recorder(), None, b"salt"), queues, random.Random(7))
    turn = Turn(FsyncPolicy.NEVER, LoopEdge(asyncio.get_running_loop()))
    edge = QueueEdge(queues, storage)
    edge.start()
    return AmqpFace(host, turn, edge, FaceCounters())


@pytest.fixture
async def face(request: pytest.FixtureRequest) -> AsyncIterator[AmqpFace]:
    made = make(**getattr(request, "param", {}))
    await made.start()
    yield made
    await made.close(PATIENCE_S)


class Client:
    """One connection; `ask` sends a method and returns the next frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._left = b""

    @classmethod
    async def reach(cls, face: AmqpFace) -> Client:
        return cls(*await asyncio.open_connection(*face.listeners.address))

    async def read(self) -> object:
        """Returns the next frame, or None at the end."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                head = await self.reader.readexactly(7)
                rest = await self.reader.readexactly(int.from_bytes(head[3:7], "big") + 1)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
        ((_, one),) = frames_of(head + rest)
        return one

    async def ask(self, method: base.Frame, channel: int = 0) -> object:
        self.writer.write(frame.marshal(method, channel))
        return await self.read()

    async def log_in(self, user: str = "guest", password: str = "guest", heartbeat: int = 0) -> object:
        """Logs in and returns the answer. Opens the virtual host if that is Tune."""
        self.writer.write(PROTOCOL_HEADER)
        assert isinstance(await self.read(), commands.Connection.Start)
        properties = {"capabilities": {"connection.blocked": True, "authentication_failure_close": True}}
        answer = await self.ask(commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}"))
        if isinstance(answer, commands.Connection.Tune):
            self.writer.write(frame.marshal(commands.Connection.TuneOk(10, 131072, heartbeat), 0))
            assert isinstance(await self.ask(commands.Connection.Open("/")), commands.Connection.OpenOk)
        return answer

    async def close(self) -> None:
        self.writer.close()


async def test_guest_comes_from_this_host(face: AmqpFace) -> None:
    client = await Client.reach(face)
    assert isinstance(await client.log_in(), commands.Connection.Tune)
    assert isinstance(await client.ask(commands.Channel.Open(), 1), commands.Channel.OpenOk)
    assert isinstance(await client.ask(commands.Connection.Close(200, "", 0, 0)), commands.Connection.CloseOk)
    assert await client.read() is None
    await client.close()


@pytest.mark.parametrize(("user", "password"), [("guest", "other"), ("other", "guest"), ("", "")])
async def test_nobody_else_does(face: AmqpFace, user: str, password: str) -> None:
    client = await Client.reach(face)
    answer = await client.log_in(user, password)
    assert isinstance(answer, commands.Connection.Close)
    assert answer.reply_code == 403
    await client.close()


def test_guest_comes_from_nowhere_else() -> None:
    access = KeptUsers(Recorder(), None, b"salt")
    assert access.secret("guest").fits(b"guest")
    assert access.may_come("guest", True)
    assert not access.may_come("guest", False)


def test_users_are_kept() -> None:
    recorder = Keeping()
    users = KeptUsers(recorder, None, b"salt")
    users.put(User("ann", hashed(b"word", b"tlas"), tags=("monitoring",)))
    users.permit("ann", "v", Permission("^a", "", ".*"))
    users.permit_topics("ann", "v", "amq.topic", TopicPermission("^a", ".*"))
    again = KeptUsers(recorder, recorder.kept, b"other")
    assert (again.users, again.permissions, again.topics) == (users.users, users.permissions, users.topics)
    assert again.secret("ann").fits(b"word")
    again.delete("guest")
    assert list(KeptUsers(recorder, recorder.kept, b"other").users) == ["ann"]


class Keeping(Recorder):
    def __init__(self) -> None:
        self.kept: Mapping[str, object] = {}

    def declared(self, kind: str, name: bytes, definition: Mapping[str, object]) -> None:
        assert kind == KIND
        self.kept = definition


def test_users_of_a_password_file() -> None:
    access = PasswordAccess(Passwords(ANN), Recorder())
    assert access.secret("ann").fits(b"word")
    assert not access.secret("ann").fits(b"guest")
    assert not access.secret("guest").fits(b"guest")
    assert credentials("PLAIN", b"guest") is None
    assert access.may_come("ann", False)
    assert access.renewed("ann", b"what does not expire need not be renewed")


@pytest.mark.parametrize("face", [{"connect_seconds": 0.2}], indirect=True)
async def test_who_does_not_open_the_connection_is_sent_away(face: AmqpFace) -> None:
    client = await Client.reach(face)
    client.writer.write(PROTOCOL_HEADER)
    assert isinstance(await client.read(), commands.Connection.Start)
    assert await client.read() is None
    await client.close()
    assert list(face.counters.protocol_errors) == ["the connection was not opened in 0.2 s"]


@pytest.mark.parametrize("face", [{"connect_seconds": 1.0}], indirect=True)
async def test_a_daemon_that_stood_still_blames_no_client(face: AmqpFace) -> None:
    """A disk may hold up the event loop: neither the time to open a connection nor heartbeats count then."""
    lively, opening = await Client.reach(face), await Client.reach(face)
    await lively.log_in(heartbeat=1)
    opening.writer.write(PROTOCOL_HEADER)
    assert isinstance(await opening.read(), commands.Connection.Start)
    time.sleep(STILL_S)  # noqa: ASYNC251 - it is the loop that stands still
    await asyncio.sleep(0)
    answer = await opening.ask(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"))
    assert isinstance(answer, commands.Connection.Tune)
    assert isinstance(await lively.ask(commands.Channel.Open(), 1), commands.Channel.OpenOk)
    assert face.counters.protocol_errors == {}
    for client in (lively, opening):
        await client.close()


async def test_heartbeats_are_sent_and_missed(face: AmqpFace) -> None:
    client = await Client.reach(face)
    await client.log_in(heartbeat=1)
    beats = 0
    while (one := await client.read()) is not None:
        beats += type(one).__name__ == "Heartbeat"
    assert beats  # until the client was silent for twice the interval
    assert list(face.counters.protocol_errors) == ["missed heartbeats from client, timeout: 1s"]
    await client.close()


async def test_publishers_wait_while_there_is_an_alarm(face: AmqpFace) -> None:
    client = await Client.reach(face)
    await client.log_in()
    await client.ask(commands.Channel.Open(), 1)
    await client.ask(commands.Queue.Declare(queue="q", durable=True), 1)
    said = ["low on disk"]
    face.pressure = lambda: said[0]
    blocked = await client.read()
    assert isinstance(blocked, commands.Connection.Blocked)
    assert blocked.reason == "low on disk"
    client.writer.write(
        frame.marshal(commands.Basic.Publish(exchange="", routing_key="q"), 1)
        + bytes.fromhex("02 0001 0000000e 003c 0000 0000000000000000 0000 ce")
    )
    assert isinstance(await client.ask(commands.Channel.Flow(True), 1), commands.Channel.FlowOk)
    client.writer.write(frame.marshal(commands.Channel.Flow(True), 1))  # the connection is not read any more
    said[0] = ""
    answers = {type(await client.read()).__name__ for _ in range(2)}
    assert answers == {"Unblocked", "FlowOk"}
    await client.close()


async def test_who_is_not_read_misses_no_heartbeats(face: AmqpFace) -> None:
    """A publisher that waits for an alarm's end sends heartbeats, which stay in its socket."""
    client = await Client.reach(face)
    await client.log_in(heartbeat=60)
    await client.ask(commands.Channel.Open(), 1)
    (connection,) = face.connections
    connection.pause_reading()
    later = face.loop.time() + 200
    assert connection.look(later) > later
    assert connection.state.failure == ""
    connection.resume_reading()
    assert connection.look(later + 100) > later
    assert connection.look(later + 121) == 0.0
    assert connection.state.failure == "missed heartbeats from client, timeout: 60s"
    await client.close()


async def test_what_is_promised_waits_for_the_store_and_is_not_said_where_it_refuses(face: AmqpFace) -> None:
    client = await Client.reach(face)
    await client.log_in()
    await client.ask(commands.Channel.Open(), 1)
    refusing = RefusingStore()
    face._turn.add_store(refusing)
    assert await client.ask(commands.Queue.Declare(queue="q", durable=True), 1) is None
    assert refusing.asked
    await client.close()
    face._turn.remove_store(refusing)


class RefusingStore:
    error = "no room"
    failing = True
    pending = ()
    unsynced = False
    asked = 0

    def flush(self) -> bool:
        self.asked += 1
        return False

    def begin_sync(self):  # type: ignore[no-untyped-def]
        raise OSError

    def end_sync(self, segment: int, error: str) -> None: ...


@pytest.mark.parametrize("only_notes", [False, True])
async def test_deliveries_wait_for_the_store_unless_it_has_notes_only(
    face: AmqpFace, only_notes: bool
) -> None:
    storage = face._queues._storage
    assert isinstance(storage, Storage)
    client = await Client.reach(face)
    await client.log_in()
    connection = next(iter(face.connections))
    order = list[str]()
    storage.order = order
    storage.only_notes = only_notes
    transport = connection._transport
    assert transport is not None
    connection._transport = cast(asyncio.Transport, Watched(transport, order))
    assert isinstance(await client.ask(commands.Channel.Open(), 1), commands.Channel.OpenOk)
    assert order[:2] == (["client", "store"] if only_notes else ["store", "client"])
    connection._transport = transport
    await client.close()


class Watched:
    """A transport that notes when it is written to."""

    def __init__(self, transport: asyncio.Transport, order: list[str]) -> None:
        self._transport = transport
        self._order = order

    def write(self, data: bytes) -> None:
        self._order.append("client")
        self._transport.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


async def test_a_user_who_is_deleted_is_sent_away(face: AmqpFace) -> None:
    users = cast(KeptUsers, face.host.access)
    users.put(User("ann", hashed(b"word", b"tlas")))
    users.permit("ann", "/", Permission(".*", ".*", ".*"))
    clients = [await Client.reach(face) for _ in range(3)]
    for client, login in zip(clients, (("ann", "word"), ("guest", "guest"), ("ann", "word")), strict=True):
        assert isinstance(await client.log_in(*login), commands.Connection.Tune)
    first, guest, second = clients
    assert isinstance(await first.ask(commands.Channel.Open(), 1), commands.Channel.OpenOk)
    assert isinstance(
        await first.ask(commands.Queue.Declare(queue="q", durable=True), 1), commands.Queue.DeclareOk
    )
    assert isinstance(await first.ask(commands.Basic.Consume(queue="q"), 1), commands.Basic.ConsumeOk)
    users.delete("ann")
    users.put(User("ann", hashed(b"word", b"tlas")))  # another one, in the same pass of the loop
    for client in (first, second):
        told = await client.read()
        assert isinstance(told, commands.Connection.Close)
        assert told.reply_text == "CONNECTION_FORCED - user 'ann' is deleted"
    assert not face.host.vhosts["/"].queues[b"q"].consumers
    assert isinstance(await guest.ask(commands.Channel.Open(), 1), commands.Channel.OpenOk)
    for client in clients:
        await client.close()


def test_a_user_of_a_password_file_is_not_the_one_that_was_deleted() -> None:
    access = PasswordAccess(Passwords(ANN), Recorder())
    told: list[str] = []
    access.watch(told.append)
    for name in ("ann", "bob"):
        access.put(User(name))
        assert access.delete(name)
    assert told == ["", "", "", "bob"]
    assert access.knows("ann")
    assert not access.knows("bob")


async def test_the_end_tells_clients(face: AmqpFace) -> None:
    client = await Client.reach(face)
    await client.log_in()
    ending = asyncio.create_task(face.close(PATIENCE_S))
    close = await client.read()
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 320
    client.writer.write(frame.marshal(commands.Connection.CloseOk(), 0))
    await ending
    assert not face.connections
    await client.close()


def test_a_user_of_this_machine_only() -> None:
    """One of the file of users: `may_come` decides where the connection is from."""
    access = KeptUsers(Recorder(), None, b"salt")
    access.use(Identities(Content({"ann": IdentityUser("ann", local=True), "bob": IdentityUser("bob")})))
    assert access.may_come("ann", True)
    assert not access.may_come("ann", False)
    assert access.may_come("bob", False)
