"""The state of a connection and the context of a channel, which their parts share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pamqp import base, commands

from treecast.middleware.broker.access import missing
from treecast.middleware.broker.queues import (
    AnyQueue,
    Ask,
    QueueCall,
    Reason,
    Refusal,
    RemoteQueue,
    VirtualHost,
    not_found,
)
from treecast.middleware.model.principal import ANONYMOUS, Principal
from treecast.middleware.model.rights import TOPIC, Need, named

from . import codec, session_table
from .codec import AmqpError
from .session_host import AmqpHost
from .session_messages import REPLY_TO
from .session_output import Confirms, SessionOutput
from .session_waiting import NO_CALL, Answered, Asking, Edge, Suspended

_PERMITTED: Final = 64  # rights cached per channel


class ConnectionState:
    """The state of a connection, which also is the owner of its exclusive queues.

    `phase` is one of the connection states of `session_table`, `failure` the reason why it was ended, or "".
    `name` is the connection name given by the client, `properties` all client properties. `ends` are the
    addresses of client and server, if any, `opened_at` is the time of day, and `certified` is the user that
    the client's verified certificate names, or ""; the owner of the socket sets all three.
    """

    def __init__(self, host: AmqpHost, edge: Edge) -> None:
        self.host = host
        self.output = SessionOutput(edge)
        self.vhost: VirtualHost = host.vhosts["/"]
        self.phase = session_table.HEADER
        self.failure = ""
        self.number = host.number_connection()
        self.ends: tuple[tuple[str, int], tuple[str, int]] = (("", 0), ("", 0))
        self.address = ""  # of the client, as the limits on log-ins count it
        self.local = False  # the client is on this host
        self.opened_at = 0.0
        # The client gives all but `certified` in its start-ok.
        self.user = ""
        self.principal: Principal = ANONYMOUS  # the user, once it has logged in
        self.certified = ""
        self.name = ""
        self.lane = ""  # see `Run.lane`: the connection's part of it
        self.mechanism = ""
        self.properties: Mapping[str, object] = {}
        self.capabilities: Mapping[str, object] = {}
        self.raises_prefetch = False  # a client whose basic.qos is meant for the consumers that it has
        # Both sides have agreed on these.
        self.frame_max = codec.FRAME_MIN
        self.channel_max = host.settings.channel_max
        self.heartbeat = 0
        # Input waits for its rest, or for another host.
        self.collected = 0  # bytes of message bodies that have arrived in part
        self.uncommitted = 0  # bytes published in transactions
        self.wanted = 0  # size at which the partial input is complete, as far as known
        self.held = False  # a method waits for another host, and what came after it waits here
        self.answer: Answered | None = None  # what it waited for
        # The end of a chunk empties both.
        self.unpumped: dict[int, AnyQueue] = {}  # queues with newly settled messages
        self.unconfirmed: dict[int, Confirms] = {}  # confirms to write, by channel

    @property
    def shown_name(self) -> str:
        """The name of the connection in logs."""
        return self.name or self.user

    def send(self, method: base.Frame) -> None:
        self.output.send(0, method)

    def send_close(self, error: AmqpError) -> None:
        """Closes the connection with a reason. The client confirms it."""
        class_id, method_id = error.method >> 16, error.method & 0xFFFF
        self.send(commands.Connection.Close(error.code, error.text, class_id, method_id))
        self.phase = session_table.CLOSING

    def end(self) -> None:
        """Closes the connection without a further word."""
        self.phase = session_table.CLOSED
        self.output.end()

    def changed(self, queue: AnyQueue) -> None:
        """Schedules a queue with newly settled messages to be pumped at the end of the chunk."""
        self.unpumped[id(queue)] = queue

    def pump(self, now: float) -> None:
        """Pumps the queues of which messages were settled."""
        while self.unpumped:
            _, queue = self.unpumped.popitem()
            queue.pump(now)
            self.vhost.touched(queue, now)

    def take_answer(self) -> Answered | None:
        """Returns what a method has waited for, once."""
        found, self.answer = self.answer, None
        return found


class ChannelContext:
    """The part of a channel that its other parts share. `number` is its number in frames."""

    def __init__(self, connection: ConnectionState, number: int) -> None:
        self.number = number
        self.connection = connection
        self.output = connection.output
        self.host = connection.host
        self.vhost = connection.vhost
        self.last_queue = b""  # the queue that an empty name refers to
        self.granted: set[tuple[str, bytes]] = set()  # rights on names, as of version `decided`
        self.decided = 0

    def send(self, method: base.Frame) -> None:
        self.output.send(self.number, method)

    # --- rights

    def permitted(self, right: str, name: bytes) -> bool:
        """Whether the user is known to have a right on an exchange or a queue."""
        version = self.host.access.version
        if self.decided != version:
            self.decided = version
            self.granted.clear()
        return (right, name) in self.granted

    def permit(self, needs: Iterable[Need]) -> None:
        """Raises ACCESS_REFUSED if the user lacks a right that an operation needs."""
        vhost = self.vhost.name
        asked = [need for need in needs if need.kind == TOPIC or not self.permitted(need.right, need.name)]
        found = missing(self.host.authorizer, self.connection.principal, vhost, asked)
        if found is not None:
            what, user = named(found), self.connection.user
            detail = f"{found.right} access to {what} in vhost '{vhost}' refused for user '{user}'"
            raise AmqpError(codec.ACCESS_REFUSED, detail)
        if len(self.granted) + len(asked) > _PERMITTED:
            self.granted.clear()
        for need in asked:
            if need.kind != TOPIC:
                self.granted.add((need.right, need.name))

    def forget_permissions(self) -> None:
        """Clears the cache of rights: those of the user may be others with its new secret."""
        self.granted.clear()

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
        return self.vhost.router.owned(name, self.connection)

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
            joined = self.host.queues.joined
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
        joined = self.host.queues.joined
        assert joined is not None
        return joined.new_number()
