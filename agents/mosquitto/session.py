"""One connection to a broker of MQTT, without I/O: the client's end.

After CONNACK both ends of MQTT are alike, so the parts of the face's session serve here as well: `Publishing`
takes what the broker publishes and acknowledges it, `Acknowledging` takes the broker's acknowledgements, and
the session state, kept in the journal, is the broker's: what it is owed and has not acknowledged.

`receive(data, now)` processes a whole chunk per call and returns the events that are no messages. `now` is in
seconds on the loop's clock. Output is gathered in `output` until the turn ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from treecast.agents.common.status import AgentCounters
from treecast.middleware.wire.mqtt_publish import PUBLISH_0, PUBLISH_1, head_at
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311, protocol_error
from treecast.shims.mqtt.codec_packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Ping,
    Suback,
    Subscribe,
    Will,
    decode,
)
from treecast.shims.mqtt.codec_properties import Properties
from treecast.shims.mqtt.codec_read import read_length
from treecast.shims.mqtt.session_connection import ConnectionState
from treecast.shims.mqtt.session_output import Edge, Outputs
from treecast.shims.mqtt.session_publishing import Acknowledging, MqttCounting, Publishing
from treecast.shims.mqtt.session_state import FOREVER
from treecast.shims.mqtt.session_table import CLOSED, NEW, OPEN
from treecast.shims.mqtt.sessions import Sessions

from .session_table import ALLOWED

CALL_SECONDS: Final = 30.0  # within which the broker has to answer CONNECT
_PUBACK: Final = codec.PUBACK << 4
# The highest packet id: those of publishes count up from 1, so that both are in use together only once in a
# round, and the answers differ in their packet types.
_SUBSCRIBE_ID: Final = 0xFFFF
_WINDOW_311: Final = 1000  # unacknowledged publishes to a broker that cannot state its maximum
_NO_LIMIT: Final = 65535
_HELD: Final = "it has QoS 0, and other sites do not take more"
_REFUSALS: Final = {
    codec.BAD_CREDENTIALS: "it refuses the agent's user name or password",
    codec.NOT_AUTHORIZED: "it refuses the agent's user, or asks for one",
    codec.BAD_CLIENT_ID: "it refuses the agent's client id",
    codec.UNSUPPORTED_VERSION: "it does not speak this version of MQTT",
    codec.SERVER_UNAVAILABLE: "it is not available",
    codec.TAKEN_OVER: "another client has its client id: another agent serves this broker",
    codec.SHUTTING_DOWN: "it is shutting down",
}
_OF_RETURN_CODE: Final = {
    1: codec.UNSUPPORTED_VERSION,
    2: codec.BAD_CLIENT_ID,
    3: codec.SERVER_UNAVAILABLE,
    4: codec.BAD_CREDENTIALS,
    5: codec.NOT_AUTHORIZED,
}


class LogIn(Struct, frozen=True):
    """How the agent connects. `receive_maximum`: messages that the broker has given out and the agent has not
    stored. `will`: what the broker publishes once the agent has gone. `lasts`: the session outlives the
    connection."""

    client_id: str
    version: int = V5
    user: str = ""
    password: str = ""
    keep_alive: int = 10
    receive_maximum: int = 1000
    will: Will | None = None
    lasts: bool = True

    def connect(self) -> Connect:
        """Returns the packet. A bridge of 3.1.1 asks Mosquitto so for what version 5 has options for: its own
        messages do not come back, and retained messages are marked."""
        given = Properties(session_expiry=FOREVER if self.lasts else 0, receive_maximum=self.receive_maximum)
        return Connect(
            self.version,
            self.client_id,
            clean_start=not self.lasts,
            keep_alive=self.keep_alive,
            will=self.will,
            username=self.user or None,
            password=self.password.encode() if self.password else None,
            properties=given if self.version == V5 else Properties(),
            bridge=self.version == V311,
        )


class Accepted(Struct, frozen=True):
    """The broker has accepted the agent. `present`: it has kept the session."""

    present: bool


class Granted(Struct, frozen=True):
    """The answer to SUBSCRIBE. `refused`: the filters that the broker does not give out."""

    refused: list[bytes]


class Ended(Struct, frozen=True):
    """The connection is over. `reason`: the code of version 5, 0 if there is none."""

    text: str
    reason: int = 0


Event = Accepted | Granted | Ended


class ClientSession:
    """One connection.

    While `held`, publishes wait here: the broker gets no acknowledgements and stops at the receive maximum.
    Those of QoS 0 are dropped. All other packets are served, so that the broker's acknowledgements go on.
    """

    def __init__(
        self,
        log_in: LogIn,
        sessions: Sessions,
        front: Sessions,
        outputs: Outputs,
        edge: Edge,
        now: float,
        counters: AgentCounters,
    ) -> None:
        """`sessions`: those of the host, which keep the session state. `front`: their hub gets what the
        broker publishes."""
        self.connection = ConnectionState(sessions.hub, outputs, edge, now, sessions.identities)
        self.output = self.connection.output
        self.output.version = log_in.version
        self.output.takes_runs = True
        self._counters = counters
        self.heard = now
        self.waiting_bytes = 0
        self._log_in = log_in
        self._sessions = sessions
        self._counting = MqttCounting()
        self._publishing = Publishing(self.connection, front, self._counting)
        self._acknowledging = Acknowledging(self.connection, self._counting)
        self._begun = now
        self._pinged = now
        self._asked: list[bytes] = []
        self._held = False
        self._waiting: list[bytes] = []
        self._partial: bytearray | None = None
        self._wanted = 0
        self._events: list[Event] = []

    @property
    def open(self) -> bool:
        return self.output.phase == OPEN

    # --- to the broker

    def begin(self) -> None:
        """Sends CONNECT."""
        self.output.send(self._log_in.connect())

    def subscribe(self, filters: dict[bytes, int], *, again: bool) -> None:
        """Subscribes; the event `Granted` follows. `filters`: with their QoS. `again`: without the retained
        messages, where the version can say so."""
        self._asked = list(filters)
        requests = [FilterRequest(one, qos, True, True, 2 if again else 1) for one, qos in filters.items()]
        if self.output.version == V311:
            requests = [FilterRequest(one.filter, one.qos) for one in requests]
        self.output.send(Subscribe(_SUBSCRIBE_ID, tuple(requests)))

    def close(self) -> None:
        """Leaves; the broker keeps the session and publishes no will."""
        if self.open:
            self.output.send(Disconnect())
        self.output.phase = CLOSED
        self.output.end()

    def tick(self, now: float) -> Ended | None:
        """Sends a ping when one is due. Returns the end, if the broker is silent for too long."""
        keep_alive = self._log_in.keep_alive
        if self.output.phase == NEW and now - self._begun > CALL_SECONDS:
            return Ended("it does not answer CONNECT: is it a broker of MQTT?")
        if self.open and keep_alive and now - self._pinged >= keep_alive / 2:
            if now - self.heard > 1.5 * keep_alive:
                return Ended("it does not answer")
            self._pinged = now
            self.output.send(Ping(codec.PINGREQ))
        return None

    # --- from the broker

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Processes a chunk. Raises MqttError if the broker breaks a rule."""
        self.heard = now
        partial = self._partial
        if partial is not None:
            partial += data
            if len(partial) < self._wanted:
                return []
            data, self._partial = bytes(partial), None
        used = self._packets(data, now)
        if used < len(data) and self.output.phase != CLOSED:
            self._partial = bytearray(data[used:])
        events, self._events = self._events, []
        return events

    def hold(self, held: bool, now: float) -> None:
        """Has publishes wait, or processes those that waited. Raises MqttError."""
        self._held = held
        if not held and self._waiting:
            waiting, self._waiting = b"".join(self._waiting), []
            self.waiting_bytes = 0
            self._packets(waiting, now)

    def _packets(self, data: bytes, now: float) -> int:
        """Processes the complete packets at the start of `data`. Returns their size in bytes."""
        position, end = 0, len(data)
        while position < end and self.output.phase != CLOSED:
            size, body = head_at(data, position, end)
            if size < 0:
                read_length(data, position, end)  # raises if the length is malformed and not just cut off
                self._wanted = end - position + 1
                break
            if body + size > end:
                self._wanted = body + size - position
                break
            position = self._packet(data, position, body, body + size, end, now)
        return position

    def _packet(self, data: bytes, position: int, body: int, stop: int, end: int, now: float) -> int:
        """Processes the packet at `position`, or a whole run of publishes. Returns where the next begins."""
        first = data[position]
        if first >> 4 == codec.PUBLISH and self.open:
            if self._held:
                self._wait(first, data[position:stop])
            elif first in (PUBLISH_0, PUBLISH_1):
                return self._publishing.run(data, position, end)
            else:
                self._publishing.single(first, data, body, stop)
        elif first == _PUBACK and stop - body == 2 and self.open:
            return self._acknowledging.row(data, position, end)
        else:
            self._other(first, data[body:stop], now)
        return stop

    def _wait(self, first: int, packet: bytes) -> None:
        if first & 0x06:
            self._waiting.append(packet)
            self.waiting_bytes += len(packet)
        else:
            self._counters.refuse_here(_HELD, 1)

    def _other(self, first: int, body: bytes, now: float) -> None:
        action = ALLOWED[self.output.phase].get(first >> 4, 0)
        if action == 0:
            raise protocol_error("4.13", f"{codec.NAMES[first >> 4]} now")
        packet = decode(first, body, self.output.version)
        if isinstance(packet, Ack):
            if packet.reason >= 0x80 and packet.kind in (codec.PUBACK, codec.PUBREC):
                self._refuse(packet)
            self._acknowledging.take(packet, action)
        elif isinstance(packet, Connack):
            self._accepted(packet, now)
        elif isinstance(packet, Suback) and packet.kind == codec.SUBACK:
            given = zip(self._asked, packet.reasons, strict=False)
            self._events.append(Granted([one for one, reason in given if reason >= 0x80]))
        elif isinstance(packet, Disconnect):
            self._end(packet.reason, packet.properties.reason_string or "it closes the connection")

    def _refuse(self, packet: Ack) -> None:
        reason = "the broker refuses it: " + (packet.properties.reason_string or f"reason {packet.reason:#x}")
        self._counters.refuse_there(reason, 1)

    def _accepted(self, answer: Connack, now: float) -> None:
        output, given = self.output, answer.properties
        if answer.reason:
            v5 = output.version == V5
            reason = answer.reason if v5 else _OF_RETURN_CODE.get(answer.reason, codec.UNSPECIFIED)
            self._end(reason, given.reason_string or f"it refuses the agent with code {answer.reason:#x}")
            return
        output.phase = OPEN
        output.window = given.receive_maximum or (_NO_LIMIT if output.version == V5 else _WINDOW_311)
        output.max_packet = given.maximum_packet_size or output.max_packet
        output.takes_runs = not given.maximum_packet_size
        connect = kept(self._log_in.client_id)
        self.connection.state = self._sessions.open(self.connection, connect, now).state
        self._events.append(Accepted(answer.session_present))

    def _end(self, reason: int, text: str) -> None:
        self.output.phase = CLOSED
        self._events.append(Ended(_REFUSALS.get(reason, text), reason))


def kept(client_id: str) -> Connect:
    """Returns the CONNECT by which this host keeps the session state: of version 5, without a will."""
    return Connect(V5, client_id, clean_start=False, properties=Properties(session_expiry=FOREVER))


def missing(filters: Iterable[bytes]) -> str:
    """Returns filters for a message."""
    return ", ".join(sorted(one.decode("utf-8", "replace") for one in filters))
