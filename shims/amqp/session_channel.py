"""The common base of all parts of a channel: its connection, its state and its permissions.

A channel consists of three parts, each a class derived from the one before: `session_definitions`,
`session_consuming` and `session_publishing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pamqp import base

from treecast.middleware.broker.queues import (
    Ask,
    MessageQueue,
    QueueAnswer,
    QueueCall,
    Reason,
    Refusal,
    RemotePart,
    RemoteQueue,
    VirtualHost,
    not_found,
)
from treecast.middleware.model.rights import TOPIC, Need, missing, named

from . import codec, session_table
from .codec import AmqpError
from .session_host import AmqpHost
from .session_messages import REPLY_TO
from .session_output import SessionOutput

CODES: Final = {
    Reason.ACCESS_REFUSED: codec.ACCESS_REFUSED,
    Reason.NOT_FOUND: codec.NOT_FOUND,
    Reason.RESOURCE_LOCKED: codec.RESOURCE_LOCKED,
    Reason.PRECONDITION_FAILED: codec.PRECONDITION_FAILED,
    Reason.NOT_ALLOWED: codec.NOT_ALLOWED,
    Reason.INTERNAL_ERROR: codec.INTERNAL_ERROR,
    Reason.NOT_IMPLEMENTED: codec.NOT_IMPLEMENTED,
    Reason.COMMAND_INVALID: codec.COMMAND_INVALID,
}
_NO_CALL: Final = QueueCall(Ask.COUNT, "", b"")
_PERMITTED: Final = 64  # rights cached per channel


class Suspended(Exception):
    """A method waits for an answer of another host. It is run again when the answer is there."""


class Answered:
    """The answer of another host to `call`. `parts`: the message of a successful `basic.get`. `refusal`: of
    what needed no other host."""

    def __init__(
        self,
        call: QueueCall,
        answer: QueueAnswer,
        parts: list[RemotePart],
        refusal: Refusal | None = None,
        queue: RemoteQueue | None = None,
    ) -> None:
        self.call = call
        self.answer = answer
        self.parts = parts
        self.refusal = refusal
        self._queue = queue

    def abandon(self) -> None:
        """Undoes the call: its client has left, or the method no longer needs the answer."""
        if self._queue is not None and not self.answer.reason:
            self._queue.abandon(self.call, self.parts)


class Connection(SessionOutput):
    """The part of a connection that its channels use. `session` has the rest."""

    def __init__(self, host: AmqpHost, wake: Callable[[SessionOutput], None]) -> None:
        super().__init__(wake)
        self.host = host
        self.vhost: VirtualHost = host.vhosts["/"]
        self.user = ""
        self.local = False  # the client is on this host
        self.lane = ""  # see `Run.lane`: the connection's part of it
        self.frame_max = codec.FRAME_MIN
        self.capabilities: Mapping[str, object] = {}
        self.raises_prefetch = False  # a client whose basic.qos is meant for the consumers that it has
        self.unpumped: dict[int, MessageQueue] = {}  # queues with newly settled messages
        self.unconfirmed: list[ChannelBase] = []  # channels with confirms to write
        self.collected = 0  # bytes of message bodies that have arrived in part
        self.held = False  # a method waits for another host, and what came after it waits here
        self.answer: Answered | None = None  # what it waited for

    def changed(self, queue: MessageQueue) -> None:
        """Schedules a queue with newly settled messages to be pumped at the end of the chunk."""
        self.unpumped[id(queue)] = queue

    def take_answer(self) -> Answered | None:
        """Returns what a method has waited for, once."""
        found, self.answer = self.answer, None
        return found

    def answered(self, found: Answered, now: float) -> None:
        """Implements `queues.Asker`: the method that waits goes on."""
        raise NotImplementedError


class Asking:
    """Implements `queues.Asker` for a connection."""

    def __init__(self, connection: Connection, call: QueueCall, queue: RemoteQueue) -> None:
        self._connection = connection
        self._call = call
        self._queue = queue

    def answered(self, answer: QueueAnswer, parts: list[RemotePart], now: float) -> None:
        self._connection.answered(Answered(self._call, answer, parts, queue=self._queue), now)


class Preparing:
    """Lets a declaration go on once its stream has a log."""

    def __init__(self, connection: Connection, now: Callable[[], float]) -> None:
        self._connection = connection
        self._now = now

    def __call__(self, refusal: Refusal | None) -> None:
        self._connection.answered(Answered(_NO_CALL, QueueAnswer(), [], refusal), self._now())


class ChannelBase:
    """A channel. `number` is its number in frames, `state` one of the channel states of `session_table`."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.state = session_table.RUNNING
        self._connection = connection
        self._host = connection.host
        self._vhost = connection.vhost
        self._permitted: set[tuple[str, bytes]] = set()  # rights on names, as of version `_decided`
        self._decided = 0
        self._last_queue = b""  # the queue that an empty name refers to

    def send(self, method: base.Frame) -> None:
        self._connection.send(self.number, method)

    def permitted(self, right: str, name: bytes) -> bool:
        """Whether the user is known to have a right on an exchange or a queue."""
        version = self._host.access.version
        if self._decided != version:
            self._decided = version
            self._permitted.clear()
        return (right, name) in self._permitted

    def permit(self, needs: Iterable[Need]) -> None:
        """Raises ACCESS_REFUSED if the user lacks a right that an operation needs."""
        user, vhost = self._connection.user, self._vhost.name
        asked = [need for need in needs if need.kind == TOPIC or not self.permitted(need.right, need.name)]
        found = missing(self._host.access, user, vhost, asked)
        if found is not None:
            what = named(found)
            detail = f"{found.right} access to {what} in vhost '{vhost}' refused for user '{user}'"
            raise AmqpError(codec.ACCESS_REFUSED, detail)
        if len(self._permitted) + len(asked) > _PERMITTED:
            self._permitted.clear()
        for need in asked:
            if need.kind != TOPIC:
                self._permitted.add((need.right, need.name))

    def review(self) -> None:
        """Raises ACCESS_REFUSED if the channel goes on with something that its user may no longer do."""

    def write_confirms(self) -> None:
        """Writes the confirms of the publishes since the last call."""

    def forget_permissions(self) -> None:
        """Clears the cache of rights: those of the user may be others with its new secret."""
        self._permitted.clear()

    def queue_name(self, given: str) -> bytes:
        """Returns the name, or that of the last declared queue if it is empty. Raises NOT_FOUND."""
        if given:
            return given.encode()
        if not self._last_queue:
            raise AmqpError(codec.NOT_FOUND, "no previously declared queue")
        return self._last_queue

    def asked(self, queue: RemoteQueue, ask: Ask, call: QueueCall | None = None) -> Answered:
        """Returns the answer of the queue's home. Raises `Suspended` until it is there, and the refusal if it
        is one."""
        found = self.answer()
        if found is None:
            joined = self._host.joined
            assert joined is not None
            call = call or QueueCall(ask, self._vhost.name, queue.name)
            joined.ask(queue, call, Asking(self._connection, call, queue))
            raise Suspended
        return found

    def prepared(self) -> Answered | None:
        """Takes what `Preparing` has answered. None if this method waited for something else, or not yet."""
        found = self._connection.answer
        return self._connection.take_answer() if found is not None and found.call is _NO_CALL else None

    def answer(self) -> Answered | None:
        """Takes the answer that this method has waited for. None if it has not asked yet. Raises the refusal
        if it is one."""
        found = self._connection.take_answer()
        if found is not None and found.answer.reason:
            raise Refusal(Reason[found.answer.reason], found.answer.detail)
        return found

    def owned(self, name: bytes) -> MessageQueue:
        """Returns the queue if this connection may use it."""
        return self._vhost.owned(name, self._connection)

    def readable(self, name: bytes) -> MessageQueue:
        """Returns the queue if this connection may take messages from it. Direct replies are for the channel
        that asked: their queues are `NOT_FOUND` for all others, as in RabbitMQ."""
        if name.startswith(REPLY_TO):
            raise not_found("queue", name, self._vhost.name)
        return self.owned(name)
