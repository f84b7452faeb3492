"""The way of queues to other hosts, between the channels and the queues."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from treecast.middleware.broker.pubsub_host import LoopEdge
from treecast.middleware.broker.queues import (
    Ask,
    JoinedQueues,
    QueueAnswer,
    QueueCall,
    QueueNotice,
    Run,
    block_codec,
)
from treecast.middleware.broker.queues.message import message
from treecast.middleware.broker.queues.reach import Say
from treecast.middleware.broker.queues.spool import Carried
from treecast.middleware.broker.turn import Turn
from treecast.middleware.fabric.channel import Answer, Later, Methods, Nothing
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.queues.known import KnownDefinitions
from treecast.middleware.relay.queues.links import CALL, CARRY, TELL, QueueLinks
from treecast.middleware.relay.sharing import Sharing
from treecast.middleware.storage.settings import FsyncPolicy

from .host import run
from .joined_hosts import Host, Net

OTHER = 2


class Home:
    """Host 1 with queue `q`, as the channels call it."""

    def __init__(self) -> None:
        net = Net()
        self.host: Host = net.add(1)
        self.host.vhost.declare_queue(b"q")
        net.settle()
        self.methods = Methods()
        entries = [
            SimpleNamespace(key=one.key, host_id=one.host, value=one.value) for one in net.entries.values()
        ]
        known = SimpleNamespace(methods=self.methods, removed=set[str](), listener=None, all=lambda: entries)
        turn = Turn(FsyncPolicy.NEVER, LoopEdge(asyncio.get_running_loop()))
        sharing = SimpleNamespace(listeners=[], up={OTHER})
        self.links = QueueLinks(1, 1, cast(KnownDefinitions, known), cast(Sharing, sharing), turn)
        self.joined: JoinedQueues = self.host.joined
        self.links.join(self.joined)

    def call(self, call: QueueCall) -> Any:
        """A call arrives. Returns its answer, or the awaitable of it."""
        return self.methods.handle(OTHER, CALL.number, CALL.head(call), memoryview(b""))

    def carry(self, given: Run) -> Any:
        """A run arrives for `q`. Returns the answer, or what will have it."""
        head = msgspec.msgpack.encode(Carried(1, 1, "/", [b"q"], 0.0))
        body = memoryview(message(head, block_codec.encode(given)))
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
