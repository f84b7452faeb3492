"""What a connection has to send: gathered over one turn of the event loop, written once at its end."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

from librt.strings import BytesWriter

from treecast.middleware.broker.pubsub import NEVER, Message, PubSub, Run, Target

from . import codec
from .codec import V5
from .codec_packets import Disconnect, Packet, ack_bytes, encode
from .codec_properties import NONE, Properties
from .codec_publish import (
    RETAIN,
    alias_bytes,
    expiry_bytes,
    identifier_bytes,
    publish_size,
    write_ack,
    write_acks,
    write_numbered,
    write_publish,
)

LARGE: Final = 4096  # a run from this size on is sent from where it lies
FULL: Final = 1024 * 1024  # unsent bytes of one turn; more waits in the queue
_POOLED: Final = 64 * 1024
_ANY: Final = 1 << 30
_EMPTY: Final = b""


class Outputs:
    """The connections that have something to send by the end of this turn. `wake` asks for that end."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: list[SessionOutput] = []
        self._free: list[BytesWriter] = []

    def add(self, session: SessionOutput) -> None:
        if not self._waiting:
            self._wake()
        self._waiting.append(session)

    def take(self) -> list[SessionOutput]:
        """Who has something to send."""
        waiting = self._waiting
        self._waiting = []
        return waiting

    def writer(self) -> BytesWriter:
        return self._free.pop() if self._free else BytesWriter()

    def give_back(self, writer: BytesWriter) -> None:
        if len(writer) <= _POOLED and len(self._free) < 256:
            writer.truncate(0)
            self._free.append(writer)


class SessionOutput:
    """The sending half of a connection. `max_packet` in bytes; `window`: unacknowledged publishes.

    `writable`: the client reads, and not too much waits for this turn's end. `closing`: what is gathered is
    the last that is sent.
    """

    def __init__(self, hub: PubSub, outputs: Outputs) -> None:
        self.version = codec.V311
        self.max_packet = _ANY
        self.window = 1
        self.writable = True
        self.takes_runs = True  # it takes packets of any size, and wants no aliases
        self.closing = False
        self.depends = False  # what is gathered promises something that has to be stored first
        self.dirty = False
        self.sent_messages = 0
        self._hub = hub
        self._outputs = outputs
        self._congested = False
        self._out: BytesWriter | None = None
        self._chunks: list[bytes] | None = None
        self._chunked = 0
        self._problems = True  # the client wants to be told of them
        self._alias_maximum = 0  # of aliases that the client takes
        self._aliases: dict[bytes, int] | None = None

    # --- writing

    def _writer(self) -> BytesWriter:
        out = self._out
        if out is None:
            out = self._out = self._outputs.writer()
        if not self.dirty:
            self.mark()
        return out

    def mark(self) -> None:
        """Makes the turn's end look at this connection."""
        if not self.dirty:
            self.dirty = True
            self._outputs.add(self)

    def _written(self, out: BytesWriter) -> None:
        if self._chunked + len(out) > FULL:
            self.writable = False

    def send(self, packet: Packet) -> None:
        self._writer().write(encode(packet, self.version))

    def takes_as_it_is(self, run: Run, target: Target) -> bool:
        """Whether the client can be sent the bytes of a run that is for `target`."""
        return target.plain and run.format == self.version and self.takes_runs

    @property
    def room(self) -> int:
        """How far into what is written next a publish may begin in this turn: bytes."""
        used = self._chunked + (len(self._out) if self._out is not None else 0)
        return FULL - used if used < FULL else 0

    def send_run(self, run: Run) -> None:
        """Messages of QoS 0 as they came."""
        data = run.data
        out = self._writer()
        self.sent_messages += run.count
        if len(data) < LARGE:
            out.write(data)
        else:
            chunks = self._chunks
            if chunks is None:
                chunks = self._chunks = []
            if len(out):
                chunks.append(out.getvalue())
                self._chunked += len(out)
                out.truncate(0)
            chunks.append(data)
            self._chunked += len(data)
        self._written(out)

    def send_numbered(self, data: bytes, first: int, count: int) -> None:
        """`count` messages of QoS 1 as they came, under the packet ids from `first` on."""
        out = self._writer()
        write_numbered(out, data, first)
        self.sent_messages += count
        self._written(out)

    def send_publish(
        self, message: Message, flags: int, packet_id: int, retain: bool, identifiers: tuple[int, ...]
    ) -> bool:
        """One PUBLISH; `flags` has DUP and QoS. False where it is larger than the client takes."""
        if retain:
            flags |= RETAIN
        topic = message.topic
        properties = _EMPTY
        if self.version == V5:
            properties = message.properties
            if message.expires_at != NEVER:
                properties += expiry_bytes(max(ceil(message.expires_at - self._hub.wall), 0))
            if identifiers:
                properties += identifier_bytes(identifiers)
        if self.max_packet < _ANY:
            size = publish_size(topic, packet_id, properties, message.payload, self.version)
            if size > self.max_packet:
                self._hub.counters.dropped_large += 1
                return False
        if self._alias_maximum:
            alias = self._alias(topic)
            if alias:
                topic = _EMPTY
                properties += alias_bytes(alias)
            else:
                properties += self._new_alias(topic)
        out = self._writer()
        write_publish(out, flags, topic, packet_id, properties, message.payload, self.version)
        self.sent_messages += 1
        self._written(out)
        return True

    def _alias(self, topic: bytes) -> int:
        """The alias that the client knows for `topic`, or 0."""
        return self._aliases.get(topic, 0) if self._aliases is not None else 0

    def _new_alias(self, topic: bytes) -> bytes:
        """The property that gives `topic` an alias, while there are any."""
        aliases = self._aliases
        if aliases is None:
            aliases = self._aliases = {}
        if len(aliases) >= self._alias_maximum or self.max_packet < _ANY:
            return _EMPTY
        alias = len(aliases) + 1
        aliases[topic] = alias
        return alias_bytes(alias)

    def send_ack(self, kind: int, packet_id: int) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP that says success."""
        self.depends = True
        write_ack(self._writer(), kind << 4, packet_id)

    def send_acks(self, data: bytes) -> None:
        """PUBACKs for a run of QoS 1."""
        self.depends = True
        write_acks(self._writer(), data)

    def send_release(self, packet_id: int) -> None:
        write_ack(self._writer(), codec.PUBREL << 4, packet_id)

    def refuse(self, kind: int, packet_id: int, reason: int, detail: str = "") -> None:
        """The same with a reason, which version 3.1.1 has no place for."""
        self.depends = True
        if self.version != V5:
            self.send_ack(kind, packet_id)
            return
        packet = ack_bytes(kind, packet_id, reason, self._explained(detail), V5)
        if len(packet) > self.max_packet:
            packet = ack_bytes(kind, packet_id, reason, NONE, V5)
        self._writer().write(packet)

    def _explained(self, detail: str) -> Properties:
        """The reason string, where the client wants one [MQTT-3.1.2-29]."""
        return Properties(reason_string=detail) if detail and self._problems else NONE

    def send_disconnect(self, reason: int, detail: str) -> None:
        """A last DISCONNECT, which version 3.1.1 has not from a server. A reason too large is left out."""
        if self.version == V5:
            packet = encode(Disconnect(reason, Properties(reason_string=detail) if detail else NONE), V5)
            if len(packet) > self.max_packet:
                packet = encode(Disconnect(reason), V5)
            if len(packet) <= self.max_packet:
                self._writer().write(packet)
        self.closing = True
        self.writable = False
        self.mark()

    # --- the turn's end

    def take_output(self) -> list[bytes]:
        """All that is gathered, in order."""
        self.dirty = False
        chunks = self._chunks if self._chunks is not None else []
        self._chunks = None
        out = self._out
        if out is not None:
            if len(out):
                chunks.append(out.getvalue())
            self._outputs.give_back(out)
            self._out = None
        self._chunked = 0
        self.writable = not self._congested and not self.closing
        return chunks

    def write(self, chunks: list[bytes]) -> None:
        """Writes what `take_output` gave. The edge says how."""
        raise NotImplementedError

    def congest(self, congested: bool) -> None:
        """The client reads no more, or again."""
        self._congested = congested
        self.writable = not congested and not self.closing
