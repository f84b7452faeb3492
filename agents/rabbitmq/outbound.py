"""Agent-Pub: what other sites published is published at this site's server.

Messages from the fabric are owed to the server in this host's journal, from before their origin is told that
they arrived until the server has confirmed them. They are published in the order of their arrival. After a
connection is lost, and after a kill, all that is not confirmed is published again: what was on its way may
then be there twice.

Where the server refuses a message by closing the channel, nobody says which one it was. The first ones are
then published one at a time, and one that ends the channel `_ATTEMPTS` times is given up, counted and named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from librt.strings import BytesWriter

from treecast.agents.common.bounds import Room
from treecast.agents.common.status import AgentCounters
from treecast.middleware.broker.pubsub import (
    Creditor,
    Message,
    Owed,
    PromisedRun,
    PubSub,
    Run,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.broker.turn import Turn
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.mqtt_publish import WITH_PROPERTIES

from .codec import PublishWriter
from .confirms import Confirms
from .connection import AmqpConnection
from .session import Confirmed

_log = Log(__name__)
_RECORD = "\0agent rabbitmq "  # what the record's name in the journal begins with; the virtual host follows
_QOS = 1
_ATTEMPTS = 3


class Single:
    """One message that is published by itself, with the part of which it is the last, if it is."""

    __slots__ = ("attempts", "payload", "whole")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.attempts = 0
        self.whole: Part | None = None


Part = Message | PromisedRun
Queued = Part | Single


class Outbound(Subscriber):
    """Publishes at the server what it is given as a subscriber of the hub.

    `restore` is called before anything is received, `attach` with each connection.
    """

    def __init__(
        self,
        hub: PubSub,
        turn: Turn,
        vhost: str,
        own: bytes,
        window: int,
        keeps_user: bool,
        counters: AgentCounters,
        room: Room,
    ) -> None:
        """`own`: this site's entry among the hops. `window`: publishes that wait for confirms."""
        super().__init__(hub.routes.next_serial())
        self._hub = hub
        self._turn = turn
        self._own = own
        self._window = window
        self._keeps_user = keeps_user
        self._counters = counters
        self._space = room
        self._name = _RECORD + vhost
        self._record: Creditor | None = None
        self._queue: deque[Queued] = deque()
        self._confirms: Confirms[Queued] = Confirms()
        self._connection: AmqpConnection | None = None
        self._channel = 0
        self._writer: PublishWriter | None = None
        self._exchanges: set[bytes] = set()
        self._careful = 0  # how many parts are still published message by message
        self.blocked = ""
        self.queued = 0  # messages that are not written

    # --- what is owed

    def restore(self, filter: bytes) -> None:
        """Takes up what the journal owes the server, and subscribes to `filter`."""
        journal = self._hub.journal
        assert journal is not None
        found = [record for record in journal.records.values() if record.client_id == self._name]
        if found:
            self._record = found[0]
            for _, owed in sorted(self._record.owed.items()):
                self._add(owed.message)
            self._counters.again += len(self._record.owed)
        else:
            self._record = Creditor(self._hub.routes.next_serial(), self._name)
            journal.begin(self._record)
        # its own messages are left out: the server has them from its own client
        self._hub.subscribe(Subscription(self, filter, _QOS, True, True))

    @property
    def lag(self) -> int:
        """How many messages the server has not confirmed."""
        return self._record.owes if self._record is not None else 0

    def take(self, message: Message, target: Target) -> None:
        """Implements `Subscriber`."""
        journal, record = self._hub.journal, self._record
        self._counters.received += 1
        if journal is not None and record is not None:
            journal.owe(record, Owed(message, _QOS, False, ()))
        self._add(message)
        self.pump()

    def take_run(self, run: Run, target: Target) -> None:
        """Implements `Subscriber`."""
        if not isinstance(run, PromisedRun):
            super().take_run(run, target)
            return
        journal, record = self._hub.journal, self._record
        self._counters.received += run.count
        if journal is not None and record is not None:
            journal.owe_run(record, run)
        self._add(run)
        self.pump()

    def _add(self, part: Part) -> None:
        self._queue.append(part)
        self.queued += _count_of(part)
        self._space.took(part.size)

    def _settle(self, parts: Iterable[Queued]) -> None:
        """Records that the server has what was queued, or never will."""
        journal, record = self._hub.journal, self._record
        for queued in parts:
            part = queued.whole if isinstance(queued, Single) else queued
            if part is None:
                continue
            self._space.gave(part.size)
            if isinstance(queued, Single):
                self._careful -= 1
            if journal is None or record is None:
                continue
            if isinstance(part, PromisedRun):
                journal.settled_run(record, part)
            else:
                journal.settled(record, part)
            self._turn.ask()

    # --- the connection

    def attach(self, connection: AmqpConnection, channel: int) -> None:
        """Publishes on a channel with confirms from now on."""
        self._connection, self._channel = connection, channel
        self.blocked = ""
        self._writer = PublishWriter(channel, connection.session.piece, self._own, self._keeps_user)
        self._writer.use_exchanges(self._exchanges)
        self.pump()

    def use_exchanges(self, exchanges: set[bytes]) -> None:
        """Sets the exchanges that this site carries. Messages of others are counted and left out."""
        self._exchanges = exchanges
        if self._writer is not None:
            self._writer.use_exchanges(exchanges)

    def detach(self, refused: bool) -> None:
        """The connection is over. `refused`: the server has closed it because of what was published."""
        self._connection = self._writer = None
        left = self._confirms.left()
        again = sum(map(_count_of, left))
        self.queued += again
        self._counters.again += again
        if refused and left:
            left = self._carefully(left)
        self._queue.extendleft(reversed(left))

    def _carefully(self, left: list[Queued]) -> list[Queued]:
        """Returns what was not confirmed with its first part taken apart, or without its first message where
        that has ended the channel too often."""
        first, rest = left[0], left[1:]
        if not isinstance(first, Single):
            self._careful += 1
            return [*_taken_apart(first), *rest]
        first.attempts += 1
        if first.attempts < _ATTEMPTS:
            return left
        self._give_up(first)
        return rest

    def _give_up(self, single: Single) -> None:
        size = single.payload[0]
        _log.error(
            "server refuses a message, which is given up",
            exchange=single.payload[1 : 1 + size].decode("utf-8", "replace"),
            bytes=len(single.payload),
        )
        self._counters.refuse_there("the server refuses it", 1)
        self.queued -= 1
        self._settle([single])

    # --- publishing

    def pump(self) -> None:
        """Writes what is queued, as far as the server and the window have room."""
        connection, writer, queue = self._connection, self._writer, self._queue
        if connection is None or writer is None or connection.over or self.blocked:
            return
        wrote = False
        while queue and not connection.full and self._confirms.waiting < self._room():
            queued = queue.popleft()
            before = writer.written
            self._write(writer, connection.session.out, queued)
            self.queued -= _count_of(queued)
            self._settle(self._confirms.wrote(writer.written - before, queued))
            wrote = True
        self._note_left_out(writer)
        if wrote:
            connection.flush_later()

    def _room(self) -> int:
        return 1 if self._careful else self._window

    def _write(self, writer: PublishWriter, out: BytesWriter, queued: Queued) -> None:
        if isinstance(queued, PromisedRun):
            writer.write_run(out, queued.in_format(WITH_PROPERTIES).data)
            queued.handed_over()
        else:
            payload = queued.payload
            writer.write(out, payload, 0, len(payload))

    def _note_left_out(self, writer: PublishWriter) -> None:
        counters = self._counters
        for reason, count in (
            ("its exchange is not carried here", writer.unknown),
            ("it cannot be read", writer.bad),
        ):
            if count:
                counters.refuse_there(reason, count)
        counters.looped += writer.own
        writer.unknown = writer.bad = writer.own = 0

    def confirmed(self, confirm: Confirmed) -> bool:
        """Takes a confirm. Returns False if the server did not take the messages: the connection then has to
        be closed, and `detach` called with `refused`."""
        if not confirm.taken:
            return False
        before = self._confirms.waiting
        settled = self._confirms.confirmed(confirm.tag, confirm.multiple)
        self._counters.published += before - self._confirms.waiting
        self._settle(settled)
        self.pump()
        return True

    def block(self, reason: str) -> None:
        self.blocked = reason
        self.pump()


def _count_of(queued: Queued) -> int:
    return queued.count if isinstance(queued, PromisedRun) else 1


def _taken_apart(part: Part) -> list[Queued]:
    """Returns the messages of a part one by one; the last one stands for the part."""
    messages = part.messages() if isinstance(part, PromisedRun) else [part]
    singles = [Single(message.payload) for message in messages]
    singles[-1].whole = part
    return list(singles)
