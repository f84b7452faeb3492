"""The state of a connection, for all parts of its session: its client, and what was agreed with it."""

from __future__ import annotations

from collections.abc import Mapping

from pamqp import base, commands

from treecast.middleware.broker.queues import AnyQueue, VirtualHost
from treecast.middleware.model.principal import ANONYMOUS, Principal

from . import codec, session_table
from .codec import AmqpError
from .session_host import AmqpHost
from .session_output import Confirms, SessionOutput
from .session_waiting import Answered, Edge


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
