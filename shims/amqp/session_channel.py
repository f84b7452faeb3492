"""The context of a channel, for all its parts: number, connection, rights, and the names of its queues.

A channel (`session_channels.Channel`) holds its parts: `session_definitions`, `session_settling`,
`session_consuming` and `session_publishing`. None of them knows the channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pamqp import base

from treecast.middleware.broker.access import missing
from treecast.middleware.broker.queues import (
    AnyQueue,
    Ask,
    QueueCall,
    Reason,
    Refusal,
    RemoteQueue,
    not_found,
)
from treecast.middleware.model.rights import TOPIC, Need, named

from . import codec
from .codec import AmqpError
from .session_messages import REPLY_TO
from .session_state import ConnectionState
from .session_waiting import NO_CALL, Answered, Asking, Suspended

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
_PERMITTED: Final = 64  # rights cached per channel


class ChannelContext:
    """The part of a channel that its other parts share. `number` is its number in frames."""

    def __init__(self, connection: ConnectionState, number: int) -> None:
        self.number = number
        self.connection = connection
        self.output = connection.output
        self.host = connection.host
        self.vhost = connection.vhost
        self.last_queue = b""  # the queue that an empty name refers to
        self._permitted: set[tuple[str, bytes]] = set()  # rights on names, as of version `_decided`
        self._decided = 0

    def send(self, method: base.Frame) -> None:
        self.output.send(self.number, method)

    # --- rights

    def permitted(self, right: str, name: bytes) -> bool:
        """Whether the user is known to have a right on an exchange or a queue."""
        version = self.host.access.version
        if self._decided != version:
            self._decided = version
            self._permitted.clear()
        return (right, name) in self._permitted

    def permit(self, needs: Iterable[Need]) -> None:
        """Raises ACCESS_REFUSED if the user lacks a right that an operation needs."""
        vhost = self.vhost.name
        asked = [need for need in needs if need.kind == TOPIC or not self.permitted(need.right, need.name)]
        found = missing(self.host.authorizer, self.connection.principal, vhost, asked)
        if found is not None:
            what, user = named(found), self.connection.user
            detail = f"{found.right} access to {what} in vhost '{vhost}' refused for user '{user}'"
            raise AmqpError(codec.ACCESS_REFUSED, detail)
        if len(self._permitted) + len(asked) > _PERMITTED:
            self._permitted.clear()
        for need in asked:
            if need.kind != TOPIC:
                self._permitted.add((need.right, need.name))

    def forget_permissions(self) -> None:
        """Clears the cache of rights: those of the user may be others with its new secret."""
        self._permitted.clear()

    # --- queues

    def queue_name(self, given: str) -> bytes:
        """Returns the name, or that of the last declared queue if it is empty. Raises NOT_FOUND."""
        if given:
            return given.encode()
        if not self.last_queue:
            raise AmqpError(codec.NOT_FOUND, "no previously declared queue")
        return self.last_queue

    def owned(self, name: bytes) -> AnyQueue:
        """Returns the queue if this connection may use it."""
        return self.vhost.owned(name, self.connection)

    def readable(self, name: bytes) -> AnyQueue:
        """Returns the queue if this connection may take messages from it. Direct replies are for the channel
        that asked: their queues are `NOT_FOUND` for all others, as in RabbitMQ."""
        if name.startswith(REPLY_TO):
            raise not_found("queue", name, self.vhost.name)
        return self.owned(name)

    # --- other hosts

    def asked(self, queue: RemoteQueue, ask: Ask, call: QueueCall | None = None) -> Answered:
        """Returns the answer of the queue's home. Raises `Suspended` until it is there, and the refusal if it
        is one."""
        found = self.answer()
        if found is None:
            joined = self.host.joined
            assert joined is not None
            call = call or QueueCall(ask, self.vhost.name, queue.name)
            joined.ask(queue, call, Asking(self.output.edge, call, queue))
            raise Suspended
        return found

    def prepared(self) -> Answered | None:
        """Takes what `Preparing` has answered. None if this method waited for something else, or not yet."""
        found = self.connection.answer
        return self.connection.take_answer() if found is not None and found.call is NO_CALL else None

    def answer(self) -> Answered | None:
        """Takes the answer that this method has waited for. None if it has not asked yet. Raises the refusal
        if it is one."""
        found = self.connection.take_answer()
        if found is not None and found.answer.reason:
            raise Refusal(Reason[found.answer.reason], found.answer.detail)
        return found

    def new_number(self) -> int:
        """Returns a number for a consumer, or for a message, at the home of another host's queue."""
        joined = self.host.joined
        assert joined is not None
        return joined.new_number()
