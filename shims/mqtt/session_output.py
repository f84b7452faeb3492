"""The output of a connection: gathered over one turn of the event loop and written once at its end."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final, Protocol

from librt.strings import BytesWriter

from treecast.middleware.broker.pubsub import NEVER, Message, PubSub, Run, Target
from treecast.middleware.wire.mqtt_publish import (
    RETAIN,
    publish_size,
    write_ack,
    write_acks,
    write_numbered,
    write_publish,
)
from treecast.shims.log_ins import Outcome

from . import codec, session_table
from .codec import V5
from .codec_packets import Disconnect, Packet, ack_bytes, encode
from .codec_properties import NONE, Properties
from .codec_publish import alias_bytes, expiry_bytes, identifier_bytes

LARGE: Final = 4096  # bytes; runs of this size or more are not copied into the output buffer
FULL: Final = 1024 * 1024  # limit of unsent bytes per turn; further messages wait in the queue
_POOLED: Final = 64 * 1024
_ANY: Final = 1 << 30
_EMPTY: Final = b""


class Outputs:
    """The connections with output for the end of this turn. `wake` requests that end."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: list[SessionOutput] = []
        self._free: list[BytesWriter] = []

    def add(self, session: SessionOutput) -> None:
        if not self._waiting:
            # One wake-up per turn: the first connection with output asks, the others join it.
            self._wake()
        self._waiting.append(session)

    def take(self) -> list[SessionOutput]:
        """Removes and returns the connections with output."""
        waiting = self._waiting
        self._waiting = []
        return waiting

    def writer(self) -> BytesWriter:
        return self._free.pop() if self._free else BytesWriter()

    def give_back(self, writer: BytesWriter) -> None:
        # A buffer that has grown large for one burst is not kept: it would stay large for a client of small
        # messages.
        if len(writer) <= _POOLED and len(self._free) < 256:
            writer.truncate(0)
            self._free.append(writer)


class Edge(Protocol):
    """The owner of a session's socket."""

    def write(self, chunks: list[bytes]) -> None:
        """Writes the result of `SessionOutput.take`, after the turn was stored."""

    def suspended(self) -> None:
        """Stops reading until `going_on`, and calls `Session.go_on` in a later pass of the loop."""

    def going_on(self) -> None:
        """Resumes reading."""

    def checked(self, outcome: Outcome) -> None:
        """Implements `log_ins.Applicant`: calls `Session.checked`."""


class Unplugged:
    """The edge of a session whose client has gone."""

    def write(self, chunks: list[bytes]) -> None:
        return

    def suspended(self) -> None:
        return

    def going_on(self) -> None:
        return

    def checked(self, outcome: Outcome) -> None:
        return


UNPLUGGED: Final = Unplugged()


class SessionOutput:
    """The sending half of a connection. `phase` is one of the states of `session_table`, `failure` the reason
    why the connection was ended, or "".

    `max_packet` is in bytes; `window` limits the unacknowledged publishes. `writable` is whether the client
    reads and the output of this turn is below its limit. `closing` is whether the gathered output is the
    last.
    """

    def __init__(self, hub: PubSub, outputs: Outputs, edge: Edge) -> None:
        self.edge = edge
        self.address = ""  # the client's, as the limits on log-ins count it
        self.most = FULL  # unsent bytes in a turn; less where a quota is
        self.phase = session_table.NEW
        self.failure = ""
        self.version = codec.V311
        self.max_packet = _ANY
        self.window = 1
        self.writable = True
        self.takes_runs = True  # the client has no packet size limit and uses no topic aliases
        self.closing = False
        self.depends = False  # the gathered output promises something that must be stored first
        self.dirty = False
        self.sent_messages = 0
        self._hub = hub
        self._outputs = outputs
        self._congested = False
        self._out: BytesWriter | None = None
        self._chunks: list[bytes] | None = None
        self._chunked = 0
        self.problems = True  # Request Problem Information: the client wants reason strings
        self.alias_maximum = 0  # how many topic aliases the client accepts
        self._aliases: dict[bytes, int] | None = None

    # --- writing

    def writer(self) -> BytesWriter:
        out = self._out
        if out is None:
            out = self._out = self._outputs.writer()
        if not self.dirty:
            # Marked with the first byte, so that nothing can be written and then never sent.
            self.mark()
        return out

    def mark(self) -> None:
        """Schedules this connection for the end of the turn."""
        if not self.dirty:
            self.dirty = True
            self._outputs.add(self)

    def _written(self, out: BytesWriter) -> None:
        if self._chunked + len(out) > self.most:
            self.writable = False

    def fits(self, packet: Packet) -> bool:
        """Whether the packet is no larger than the client accepts [MQTT-3.1.2-24]."""
        return self.max_packet >= _ANY or len(encode(packet, self.version)) <= self.max_packet

    def send(self, packet: Packet) -> None:
        """Sends a packet. One that is larger than the client accepts ends the connection instead."""
        data = encode(packet, self.version)
        if len(data) <= self.max_packet:
            # An answer cannot be left out as a publish can: its client would wait for it.
            self.writer().write(data)
        else:
            self.disconnect(codec.PACKET_TOO_LARGE, "an answer exceeds the client's Maximum Packet Size")

    def disconnect(self, reason: int, detail: str) -> None:
        """Ends the connection on behalf of the server."""
        if self.phase != session_table.CLOSED:
            self.failure = detail
            self.phase = session_table.CLOSED
            self.send_disconnect(reason, detail if self.problems else "")

    def takes_runs_for(self, target: Target) -> bool:
        """Whether the bytes of runs for `target` can be sent to the client, in its format."""
        return target.plain and self.takes_runs

    @property
    def room(self) -> int:
        """The bytes left until `most` in this turn. A publish may begin within them."""
        used = self._chunked + (len(self._out) if self._out is not None else 0)
        return self.most - used if used < self.most else 0

    def send_run(self, run: Run) -> None:
        """Sends a QoS 0 run unchanged."""
        data = run.data
        out = self.writer()
        self.sent_messages += run.count
        if len(data) < LARGE:
            out.write(data)
        else:
            chunks = self._chunks
            if chunks is None:
                chunks = self._chunks = []
            if len(out):
                # Bytes written before the run go first: the chunks are sent in order, and the open buffer
                # last.
                chunks.append(out.getvalue())
                self._chunked += len(out)
                out.truncate(0)
            chunks.append(data)
            self._chunked += len(data)
        self._written(out)

    def send_numbered(self, data: bytes, first: int, count: int) -> None:
        """Sends `count` QoS 1 messages unchanged except for their packet ids, which start at `first`."""
        out = self.writer()
        write_numbered(out, data, first)
        self.sent_messages += count
        self._written(out)

    def send_publish(
        self, message: Message, flags: int, packet_id: int, retain: bool, identifiers: tuple[int, ...]
    ) -> bool:
        """Sends one PUBLISH; `flags` holds DUP and QoS. Returns False if it exceeds `max_packet`."""
        if retain:
            # The flag is that of this delivery, not of the message: a live publish reaches subscribers
            # without it.
            flags |= RETAIN
        topic = message.topic
        properties = _EMPTY
        if self.version == V5:
            properties = message.properties
            if message.expires_at != NEVER:
                # The rest of its life, not the whole: the time that it waited here counts [MQTT-3.3.2-6].
                properties += expiry_bytes(max(ceil(message.expires_at - self._hub.clock.wall), 0))
            if identifiers:
                properties += identifier_bytes(identifiers)
        if self.max_packet < _ANY:
            size = publish_size(topic, packet_id, properties, message.payload, self.version)
            if size > self.max_packet:
                self._hub.counters.dropped_large += 1
                return False
        if self.alias_maximum:
            alias = self._alias(topic)
            if alias:
                topic = _EMPTY
                properties += alias_bytes(alias)
            else:
                properties += self._new_alias(topic)
        out = self.writer()
        write_publish(out, flags, topic, packet_id, properties, message.payload, self.version)
        self.sent_messages += 1
        self._written(out)
        return True

    def _alias(self, topic: bytes) -> int:
        """Returns the alias that the client knows for `topic`, or 0."""
        return self._aliases.get(topic, 0) if self._aliases is not None else 0

    def _new_alias(self, topic: bytes) -> bytes:
        """Assigns an alias to `topic` and returns the property, or b"" if none is available."""
        aliases = self._aliases
        if aliases is None:
            aliases = self._aliases = {}
        # With a packet limit no alias is assigned: it makes the packet larger than the size that was checked.
        if len(aliases) >= self.alias_maximum or self.max_packet < _ANY:
            return _EMPTY
        alias = len(aliases) + 1
        aliases[topic] = alias
        return alias_bytes(alias)

    def send_ack(self, kind: int, packet_id: int) -> None:
        """Sends a PUBACK, PUBREC, PUBREL or PUBCOMP with success."""
        self.depends = True
        # An acknowledgement promises that the message is kept, so it waits until the turn is stored.
        write_ack(self.writer(), kind << 4, packet_id)

    def send_acks(self, data: bytes) -> None:
        """Sends the PUBACKs for a QoS 1 run."""
        self.depends = True
        write_acks(self.writer(), data)

    def send_release(self, packet_id: int) -> None:
        write_ack(self.writer(), codec.PUBREL << 4, packet_id)

    def refuse(self, kind: int, packet_id: int, reason: int, detail: str = "") -> None:
        """Sends an acknowledgement with a reason code. Version 3.1.1 has none and gets a plain one."""
        self.depends = True
        if self.version != V5:
            # Without an answer, a client of 3.1.1 would repeat the message on every connection.
            self.send_ack(kind, packet_id)
            return
        packet = ack_bytes(kind, packet_id, reason, self.explained(detail), V5)
        if len(packet) > self.max_packet:
            packet = ack_bytes(kind, packet_id, reason, NONE, V5)
        self.writer().write(packet)

    def explained(self, detail: str) -> Properties:
        """Returns the reason string property if the client wants one [MQTT-3.1.2-29]."""
        return Properties(reason_string=detail) if detail and self.problems else NONE

    def send_disconnect(self, reason: int, detail: str) -> None:
        """Sends a final DISCONNECT, which only version 5 servers may send.

        Omits the reason string if the packet would exceed `max_packet`.
        """
        if self.version == V5:
            packet = encode(Disconnect(reason, Properties(reason_string=detail) if detail else NONE), V5)
            if len(packet) > self.max_packet:
                packet = encode(Disconnect(reason), V5)
            if len(packet) <= self.max_packet:
                self.writer().write(packet)
        self.end()

    def end(self) -> None:
        """Marks the gathered output as the last."""
        self.closing = True
        self.writable = False
        self.mark()

    # --- output at the end of a turn

    def take(self) -> list[bytes]:
        """Removes and returns the gathered output, in order."""
        self.dirty = False
        chunks = self._chunks if self._chunks is not None else []
        self._chunks = None
        out = self._out
        if out is not None:
            if len(out):
                chunks.append(out.getvalue())
            # Given back also when it is empty: an idle connection holds no buffer, however many there are.
            self._outputs.give_back(out)
            self._out = None
        self._chunked = 0
        self.writable = not self._congested and not self.closing
        return chunks

    def congest(self, congested: bool) -> None:
        """Records whether the client has stopped reading."""
        self._congested = congested
        self.writable = not congested and not self.closing
