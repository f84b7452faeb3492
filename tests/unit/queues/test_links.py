"""The way of queues to other hosts, between the channels and the queues."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.fabric.channel.hosts import until

from treecast.middleware.broker.pubsub_host import LoopEdge
from treecast.middleware.broker.queues import (
    Ask,
    JoinedQueues,
    QueueAnswer,
    QueueCall,
    QueueNotice,
    Run,
)
from treecast.middleware.broker.queues.message import encode_run, message
from treecast.middleware.broker.queues.reach import Say, Write
from treecast.middleware.broker.queues.spool import Carried
from treecast.middleware.broker.turn import Turn
from treecast.middleware.fabric.channel import Answer, Later, Methods, Nothing
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.distribution import Distribution
from treecast.middleware.relay.queues import links
from treecast.middleware.relay.queues.known import KnownDefinitions
from treecast.middleware.relay.queues.links import CALL, CARRY, TELL, QueueLinks
from treecast.middleware.storage.settings import FsyncPolicy

from .host import run
from .joined_hosts import Host, Net

OTHER = 2


class Home:
    """Host 1 with queue `q`, as the channels call it."""

    def __init__(self) -> None:
        net = Net()
        self.host: Host = net.add(1)
        self.host.vhost.queue_definitions.declare(b"q")
        net.settle()
        self.methods = Methods()
        entries = [
            SimpleNamespace(key=one.key, host_id=one.host, value=one.value) for one in net.entries.values()
        ]
        known = SimpleNamespace(methods=self.methods, removed=set[str](), listener=None, all=lambda: entries)
        turn = Turn(FsyncPolicy.NEVER, LoopEdge(asyncio.get_running_loop()))
        distribution = SimpleNamespace(listeners=[], up={OTHER})
        self.links = QueueLinks(1, 1, cast(KnownDefinitions, known), cast(Distribution, distribution), turn)
        self.joined: JoinedQueues = self.host.joined
        self.links.join(self.joined)

    def call(self, call: QueueCall) -> Any:
        """A call arrives. Returns its answer, or the awaitable of it."""
        return self.methods.handle(OTHER, CALL.number, CALL.head(call), memoryview(b""))

    def carry(self, given: Run) -> Any:
        """A run arrives for `q`. Returns the answer, or what will have it."""
        head = msgspec.msgpack.encode(Carried(1, 1, "/", [b"q"], 0.0))
        body = memoryview(message(head, encode_run(given)))
        return self.methods.handle(OTHER, CARRY.number, CARRY.head(Nothing()), body)

    def tell(self, notice: QueueNotice) -> None:
        self.methods.handle(OTHER, TELL.number, TELL.head(notice), memoryview(b""))


async def test_a_consumer_is_cancelled_by_a_notice_right_behind_its_call() -> None:
    """As if this host had not read for so long that the other one has given up the call."""
    home = Home()
    queue = home.host.vhost.queues[b"q"]
    found = home.call(QueueCall(Ask.CONSUME, "/", b"q", 7))
    home.tell(QueueNotice(Say.CANCEL, 7))
    if asyncio.iscoroutine(found):
        found = await found
    assert CALL.answered(found) == QueueAnswer(consumers=1)
    assert len(queue.consumers) == 0
    await home.links.leave(0.0)


@pytest.mark.parametrize("persistent", [False, True])
async def test_messages_are_in_their_queue_at_once_and_answered_once_they_are_stored(
    persistent: bool,
) -> None:
    home = Home()
    queue = home.host.vhost.queues[b"q"]
    found = home.carry(run(b"a", persistent=persistent))
    assert queue.ready == 1
    if not persistent:
        assert isinstance(found, Answer)
    else:
        assert isinstance(found, Later)
        outcomes = list[object]()
        found.then(outcomes.append)
        assert outcomes == []
        await asyncio.sleep(0)  # the turn ends
        assert [isinstance(one, Answer) for one in outcomes] == [True]
    await home.links.leave(0.0)


async def test_messages_that_the_disk_refuses_are_refused() -> None:
    home = Home()
    found, outcomes = home.carry(run(b"a", persistent=True)), list[object]()
    found.then(outcomes.append)
    home.links._waits.close()  # what waits is told that it is not stored
    (refused,) = outcomes
    assert isinstance(refused, TreecastError)
    assert refused.fault is Fault.STORAGE
    await home.links.leave(0.0)


async def test_a_get_is_undone_by_a_notice_before_its_answer() -> None:
    """The answer waits for the disk, and the other host has given up the call."""
    home = Home()
    queue = home.host.vhost.queues[b"q"]
    home.host.publish(run(b"a"))
    found = home.call(QueueCall(Ask.GET, "/", b"q", 7))
    assert (queue.ready, queue.unsettled) == (0, 1)
    home.tell(QueueNotice(Say.CANCEL, 7))
    assert (queue.ready, queue.unsettled) == (1, 0)
    await found
    home.tell(QueueNotice(Say.SETTLE, 7, 1, 0))  # of a number that is no longer known
    assert (queue.ready, queue.unsettled) == (1, 0)
    await home.links.leave(0.0)


@pytest.mark.skipif(
    not links.__file__.endswith(".py"),
    reason="a compiled class takes no other queues; the interpreted run has this test",
)
async def test_definitions_go_on_after_one_whose_outcome_the_disk_stops() -> None:
    home = Home()
    asked, outcomes = list[str](), list[int]()

    async def write(edits: list[Any]) -> int:
        asked.extend(edit.key for edit in edits)
        return 1

    async def seen_by(host: int, revision: int) -> None: ...

    def decided() -> None:
        outcomes.append(1)
        if len(outcomes) == 1:
            raise TreecastError(Fault.STORAGE, "the disk refuses")

    known = cast(Any, home.links._known)
    known.write, known.seen_by = write, seen_by
    home.links._queues = cast(Any, SimpleNamespace(decided=decided, released=lambda: None))
    for key in ("4:%2F/a", "4:%2F/b"):
        home.links.define([Write(key, None)])
        await until(lambda key=key: key in asked and home.links._idle.is_set())  # type: ignore[misc]
    assert len(outcomes) == 2
    await home.links.leave(0.0)


class Choked:
    """Channels that take no notice while they are `full`. `sent`: what they took, in order."""

    def __init__(self) -> None:
        self.full = False
        self.cancellable: set[int] = set()
        self.sent: list[QueueCall | QueueNotice] = []

    def notify(self, host_id: int, method: int, head: bytes = b"", body: bytes = b"") -> bool:
        if not self.full:
            self.sent.append(TELL.asked(head))
        return not self.full

    def call_then(
        self, host_id: int, method: int, then: object, head: bytes = b"", body: bytes = b"", *, timeout: float
    ) -> None:
        self.sent.append(CALL.asked(head))


async def test_calls_and_notices_keep_their_order_when_the_channel_is_full() -> None:
    home, channels = Home(), Choked()
    home.methods.use(cast(Any, channels))
    settled = [QueueNotice(Say.SETTLE, number, 1, 0) for number in (1, 2)]
    call = QueueCall(Ask.GET, "/", b"q", 3)
    channels.full = True
    home.links.tell(OTHER, settled[0])
    home.links.call(OTHER, 1, call)
    home.links.tell(OTHER, settled[1])
    assert channels.sent == []
    channels.full = False
    await until(lambda: len(channels.sent) == 3)
    assert channels.sent == [settled[0], call, settled[1]]
    await home.links.leave(0.0)


async def test_a_call_behind_notices_is_made_if_its_host_goes_away() -> None:
    home, channels = Home(), Choked()
    home.methods.use(cast(Any, channels))
    channels.full = True
    call = QueueCall(Ask.GET, "/", b"q", 3)
    home.links.tell(OTHER, QueueNotice(Say.SETTLE, 1, 1, 0))
    home.links.call(OTHER, 1, call)
    home.links.host_down(OTHER)
    assert channels.sent == [call]
    await home.links.leave(0.0)
