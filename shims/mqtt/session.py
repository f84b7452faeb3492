"""One connection of the MQTT face, without I/O: splits chunks into packets, and gives them to its parts.

`receive(data, now)` processes a whole chunk per call. Output is gathered in `SessionOutput` until the turn of
the event loop ends. `now` is in seconds on the loop's clock; `hub.clock.wall` is the time of day, which the
asyncio side updates.

A session holds objects of one concern each: what all share (`session_connection`), CONNECT
(`session_connecting`), publishes and acknowledgements (`session_publishing`), and work for subscriptions
(`subscribing`). None of them knows the session.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.wire.mqtt_publish import PUBLISH_0, PUBLISH_1, head_at
from treecast.shims.log_ins import Outcome

from . import codec, session_table
from .codec import V5, V311, MqttError, malformed, protocol_error
from .codec_packets import (
    Ack,
    Auth,
    Connect,
    Disconnect,
    Ping,
    Subscribe,
    Unsubscribe,
    announced_version,
    decode,
    encode,
)
from .codec_read import read_length
from .session_connecting import Connecting
from .session_connection import ConnectionState
from .session_output import UNPLUGGED, Edge, Outputs
from .session_publishing import Acknowledging, MqttCounting, Publishing
from .sessions import Sessions
from .subscribing import Steps, subscribing, unsubscribing

_PINGRESP: Final = encode(Ping(codec.PINGRESP), V311)
_PUBACK: Final = codec.PUBACK << 4
_COSTLY: Final = 4096  # bytes of a packet that may take a large part of a pass of the loop
_PROGRESS: Final = 4096  # bytes of an unfinished packet that show a client as alive
_SUSPENDED: Final = 1 << 62  # as `_wanted`: everything that arrives waits
_OTHER_PROTOCOLS: Final = {b"GET ": "HTTP", b"POST": "HTTP", b"AMQP": "AMQP", b"SSH-": "SSH"}


class Session:
    """One connection: its state, its parts, and the input that waits."""

    def __init__(
        self,
        sessions: Sessions,
        outputs: Outputs,
        counters: MqttCounting,
        now: float,
        edge: Edge = UNPLUGGED,
    ) -> None:
        self.connection = ConnectionState(sessions.hub, outputs, edge, now, sessions.identities)
        self.output = self.connection.output
        self._sessions = sessions
        self._settings = sessions.settings
        self._counters = counters
        self._largest = sessions.settings.max_packet_bytes
        self._work = sessions.work
        self._connecting = Connecting(self.connection, sessions)
        self._publishing = Publishing(self.connection, sessions, counters)
        self._acknowledging = Acknowledging(self.connection, counters)
        self._steps: Steps | None = None  # what must be finished before the next packet
        self._progress = 0  # bytes of the unfinished packet that have counted as activity
        self._partial: bytearray | None = None
        self._wanted = 0  # size at which the partial packet is complete, as far as known
        self._first = True

    # --- receiving

    @property
    def suspended(self) -> bool:
        """Whether a packet must be finished before the next one."""
        return self._steps is not None

    @property
    def memory(self) -> int:
        """The bytes of the packet that has arrived in part."""
        return 0 if self._partial is None else len(self._partial)

    def forget(self) -> None:
        """Drops all input, and the edge: the client has gone."""
        self._partial = None
        self._publishing.forget()
        self.output.edge = UNPLUGGED

    def receive(self, data: bytes, now: float) -> None:
        """Processes a chunk. A violation ends the connection after the answer that its rule prescribes.

        Whole packets count as activity, and so do `_PROGRESS` bytes of a packet that is still arriving.
        """
        partial = self._partial
        if partial is not None:
            # Nothing is parsed before the packet is complete: a packet of n chunks costs n appends, not n
            # parses.
            if len(partial) + len(data) < self._wanted:
                partial += data
                self._progressed(len(partial), now)
                return
            data = b"".join([partial, data])
            self._partial = None
        if self._first:
            self._look_at_first(data)
        try:
            used = self._packets(data, now)
        except MqttError as error:
            if self.output.phase == session_table.NEW:
                # The error is in CONNECT itself, and the answer has to be in the version that it asked for.
                self.output.version = announced_version(data)
            self.fail(error, now)
            return
        if used:
            self.connection.last_activity = now
            self._progress = 0
        if self._steps is not None:
            # Input that comes meanwhile is kept behind the packet under way, to stay in order.
            self._wanted = _SUSPENDED
            self._partial = bytearray(data[used:])
            self.output.edge.suspended()
        elif used < len(data) and self.output.phase != session_table.CLOSED:
            self._partial = bytearray(data[used:] if used else data)
            self._progressed(len(data) - used, now)

    def _progressed(self, size: int, now: float) -> None:
        """Counts an unfinished packet, of which `size` bytes have arrived, as activity if it has grown."""
        if size - self._progress >= _PROGRESS:
            self._progress = size
            self.connection.last_activity = now

    def go_on(self, now: float) -> None:
        """Continues the work that was suspended, then the packets behind it."""
        steps, rest = self._steps, self._partial
        if steps is None or self.output.phase == session_table.CLOSED:
            return
        try:
            if not steps.step():
                self.output.edge.suspended()
                return
        except MqttError as error:
            self._steps = None
            self.fail(error, now)
            return
        self._resumed()
        if rest:
            self.receive(bytes(rest), now)
        if self._steps is None:
            # `receive` may have suspended again: it has paused reading, and this must not undo that.
            self.output.edge.going_on()

    def _resumed(self) -> None:
        # A method of its own: a compiled caller would assume that `_steps` stays None while it receives.
        self._steps = self._partial = None

    def _look_at_first(self, data: bytes) -> None:
        self._first = False
        other = _OTHER_PROTOCOLS.get(data[:4])
        if data[:2] == b"\x16\x03":
            other = "TLS"
        if other is not None:
            self.output.failure = f"the client speaks {other}"
            self.output.phase = session_table.CLOSED
            self.output.closing = True
            self.output.mark()

    def _packets(self, data: bytes, now: float) -> int:
        """Processes the complete packets at the start of `data` and returns their size in bytes."""
        output, publishing = self.output, self._publishing
        position = 0
        end = len(data)
        while position < end:
            if output.phase == session_table.CLOSED:
                return end
            # The password is being checked on a thread: packets behind CONNECT may not be taken before its
            # outcome.
            if output.phase == session_table.CHECKING:
                self._wanted = 0
                return position
            first = data[position]
            size, body = head_at(data, position, end)
            if size < 0:
                read_length(data, position, end)  # raises if the length is malformed and not just cut off
                self._wanted = end - position + 1
                self._check_size(0, first)
                # Also without a size: a client of another kind is refused by its first byte, and not kept
                # until it sends more.
                return position
            stop = body + size
            if stop - position > self._largest:
                # Before the packet is complete: it would be collected in memory up to its announced size.
                raise self._too_large(stop - position)
            self._check_size(size, first)
            if stop > end:
                self._wanted = stop - position
                return position
            if size >= _COSTLY and self._costly(first, data, body, stop) and self._work.spent():
                self._steps = Steps()
                return position
            if output.phase != session_table.OPEN:
                self._packet(first, data, body, stop, now)
            elif first in (PUBLISH_1, PUBLISH_0):
                position = publishing.run(data, position, end)
                continue
            elif first >> 4 == codec.PUBLISH:  # hot path: the table allows PUBLISH and PUBACK
                publishing.single(first, data, body, stop)
            elif first == _PUBACK and size == 2:
                position = self._acknowledging.row(data, position, end)
                continue
            else:
                self._packet(first, data, body, stop, now)
                if self._steps is not None:
                    return stop
            position = stop
        return position

    def _costly(self, first: int, data: bytes, body: int, stop: int) -> bool:
        """Whether a large packet takes longer than its copy: any but a PUBLISH with few properties."""
        if first >> 4 != codec.PUBLISH:
            return True
        if self.output.version != V5 or body + 2 > stop:
            return False
        # The properties begin behind the topic and, with a QoS above 0, behind the packet id.
        at = body + 2 + (data[body] << 8 | data[body + 1]) + (2 if first & 6 else 0)
        return at < stop and data[at] >= 0x80  # the length of the properties takes two bytes or more

    def _check_size(self, size: int, first: int) -> None:
        """Before CONNECT, raises MqttError for any other packet without waiting for its end, and for one that
        is larger than a CONNECT needs to be."""
        if self.output.phase != session_table.NEW:
            return
        if size > self._settings.max_connect_bytes:
            detail = f"a CONNECT of {size} bytes exceeds the limit of {self._settings.max_connect_bytes}"
            raise MqttError(codec.PACKET_TOO_LARGE, "3.2.2.2", detail)
        if first != codec.CONNECT << 4:
            if first >> 4 == codec.CONNECT:
                raise malformed("MQTT-2.1.3-1", f"CONNECT with flags {first & 0x0F:04b}")
            raise protocol_error("MQTT-3.1.0-1", f"{codec.NAMES[first >> 4]} before CONNECT")

    def _too_large(self, size: int) -> MqttError:
        detail = f"a packet of {size} bytes exceeds the limit of {self._largest}"
        return MqttError(codec.PACKET_TOO_LARGE, "3.1.2.11.4", detail)

    # --- packets

    def _packet(self, first: int, data: bytes, body: int, stop: int, now: float) -> None:
        """Handles a packet that is no publish."""
        kind, output = first >> 4, self.output
        action = session_table.ALLOWED[output.phase].get(kind, 0)
        if action == 0:
            raise protocol_error(session_table.REFUSED[output.phase][kind], f"{codec.NAMES[kind]} now")
        packet = decode(first, data[body:stop], output.version)
        self._counters.count(codec.NAMES[kind])
        if isinstance(packet, Ack):
            self._acknowledging.take(packet, action)
        elif isinstance(packet, Connect):
            self._connecting.connect(packet, now)
        elif isinstance(packet, Subscribe):
            self._begin(subscribing(self.connection, self._sessions, packet))
        elif isinstance(packet, Unsubscribe):
            self._begin(unsubscribing(self.connection, self._sessions, packet))
        elif isinstance(packet, Ping):
            output.writer().write(_PINGRESP)
        elif isinstance(packet, Disconnect):
            self._leave(packet, now)
        elif isinstance(packet, Auth):
            raise protocol_error("MQTT-4.12.0-6", "AUTH without an authentication method")

    def _begin(self, steps: Steps) -> None:
        if not steps.step():
            self._steps = steps

    def checked(self, outcome: Outcome, now: float) -> None:
        """Goes on with CONNECT after the check of its password, and with what came after it."""
        self.connection.last_activity = now
        try:
            if not self._connecting.checked(outcome, now):
                return
        except MqttError as error:
            self.fail(error, now)
            return
        if self._partial is not None:
            self.receive(b"", now)

    # --- closing

    def _leave(self, packet: Disconnect, now: float) -> None:
        """Handles a DISCONNECT. Publishes the will only if the client requests it [MQTT-3.14.4-3]."""
        state = self.connection.state
        expiry = packet.properties.session_expiry
        if expiry is not None and state is not None:
            # A session that was to end with its connection may not be prolonged at the end [3.14.2.2.2].
            if expiry and state.expiry == 0:
                raise protocol_error("3.14.2.2.2", "DISCONNECT sets a session expiry and CONNECT set none")
            self._sessions.set_expiry(state, min(expiry, self._settings.max_session_expiry))
        self.output.phase = session_table.CLOSED
        self.output.end()
        # Any other reason than 0 asks for the will: 4 says so, and the rest are errors of the client.
        self._sessions.closed(self.connection, now, with_will=packet.reason != 0)

    def fail(self, error: MqttError, now: float) -> None:
        """Ends the connection after an error, with the reason as far as the version allows."""
        self._sessions.fail(self.connection, error, now)

    def lost(self, now: float) -> None:
        """Handles the loss of the connection."""
        output = self.output
        output.phase = session_table.CLOSED
        output.closing = True
        output.writable = False
        self._sessions.closed(self.connection, now, with_will=True)
