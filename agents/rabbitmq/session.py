"""A connection to an AMQP 0-9-1 server, at the client's end: bytes in, events out.

`receive` takes a chunk and returns what happened; `take_output` returns the bytes to send. Deliveries come in
runs (`shims.amqp.codec_client`), everything else method by method. Pure.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from msgspec import Struct
from pamqp import base, commands
from pamqp.common import FieldTable

from treecast.shims.amqp import codec
from treecast.shims.amqp.codec import AmqpError
from treecast.shims.amqp.codec_client import DeliveryScan
from treecast.shims.amqp.codec_methods import read_method, write_method

from . import session_table as table
from .hops import MARK

_FRAME_MAX: Final = 131_072  # bytes; RabbitMQ's default
_CONFIRM_FRAME: Final = 21  # bytes of a basic.ack or basic.nack
_NO_REFUSAL: Final = frozenset({0, 200, codec.CONNECTION_FORCED})
_CAPABILITIES: Final[FieldTable] = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class LogIn(Struct, frozen=True):
    """The log-in of a connection, and its virtual host.

    `mechanism`: PLAIN, or EXTERNAL for a client certificate. `heartbeat` in seconds, 0: none. `name`: the
    connection's, as the server lists it. `own`: see `DeliveryScan`.
    """

    user: str
    password: str
    vhost: str
    name: str
    mechanism: str = "PLAIN"
    heartbeat: int = 10
    own: bytes = b"\0"


class Opened(Struct, frozen=True):
    """The connection is open. `product`: what the server says it is."""

    product: str
    version: str


class Closed(Struct, frozen=True):
    """The connection is over. `code` 0: this end asked for it. `refused`: the server ended it because of
    something that it was sent."""

    code: int
    text: str
    refused: bool = False


class ChannelClosed(Struct, frozen=True):
    """The server has closed a channel."""

    channel: int
    code: int
    text: str


class Replied(Struct, frozen=True):
    """A method that answers a call, or that nobody asked for, such as basic.cancel."""

    channel: int
    method: base.Frame


class Delivered(Struct, frozen=True):
    """A run of deliveries, see `DeliveryScan`."""

    channel: int
    first: int
    count: int
    exchange: bytes
    key: bytes
    data: bytes
    marked: bool
    own: bool
    further: bool


class Confirmed(Struct, frozen=True):
    """The server has taken publishes of a channel, or has refused them (`taken`): the one with number `tag`,
    or all up to it."""

    channel: int
    tag: int
    multiple: bool
    taken: bool


class Blocked(Struct, frozen=True):
    """The server reads no publishes for now; "": it does again."""

    reason: str


Event = Opened | Closed | ChannelClosed | Replied | Delivered | Confirmed | Blocked


class ClientSession:
    """One connection, from its first byte. `phase` is of `session_table`.

    `frame_max`: the largest frame, in bytes, that both ends accept.
    """

    def __init__(self, log_in: LogIn, now: float) -> None:
        self.phase = table.STARTING
        self.frame_max = codec.FRAME_MIN
        self.heartbeat = log_in.heartbeat
        self._log_in = log_in
        self._product = ("", "")
        self._scan = DeliveryScan(MARK, log_in.own)
        self._parts: list[bytes] = []  # of an incomplete frame or delivery
        self._size = 0
        self._wanted = 0
        self._last_in = self._last_out = now
        self.out = BytesWriter()
        self.out.write(codec.PROTOCOL_HEADER)

    # --- input

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Takes a chunk. Returns the events in it, a `Closed` as the last one of all."""
        self._last_in = now
        if self.phase == table.CLOSED:
            return []
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return []
        chunk = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        events: list[Event] = []
        try:
            at = self._frames(chunk, events)
        except AmqpError as error:
            events.append(self._fail(error))
            at = len(chunk)
        self._parts = [chunk[at:]] if at < len(chunk) else []
        self._size = len(chunk) - at
        self._wanted = max(0, self._wanted - at)
        return events

    def _frames(self, data: bytes, events: list[Event]) -> int:
        """Handles all whole frames. Returns where the first incomplete one begins."""
        at, end = 0, len(data)
        self._wanted = 0
        while at + codec.FRAME_HEAD <= end and self.phase != table.CLOSED:
            if data[at : at + 4] == b"AMQP":
                raise AmqpError(codec.NOT_IMPLEMENTED, "the server speaks another version of AMQP")
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            stop = at + size + codec.FRAME_OVERHEAD
            if size > max(self.frame_max, codec.FRAME_MIN):
                raise AmqpError(codec.FRAME_ERROR, f"the server sent a frame of {size} bytes")
            if stop > end:
                self._wanted = stop
                break
            if data[stop - 1] != codec.END:
                raise AmqpError(codec.FRAME_ERROR, "a frame of the server does not end where it should")
            index = int.from_bytes(data[at + 7 : at + 11], "big") if data[at] == codec.METHOD else 0
            if index == codec.DELIVER:
                found = self._deliveries(data, at, end, stop, events)
                if found < 0:
                    break
                at = found
                continue
            self._frame(data, at, stop, index, events)
            at = stop
        return at

    def _deliveries(self, data: bytes, at: int, end: int, stop: int, events: list[Event]) -> int:
        """Handles the run of deliveries at `at`. Returns its end, or -1 if the first one is incomplete."""
        scan = self._scan
        scan.look(data, at, end, stop)
        if scan.count == 0:
            self._wanted = scan.wanted
            return -1
        events.append(
            Delivered(
                scan.channel,
                scan.first,
                scan.count,
                scan.exchange,
                scan.key,
                scan.data,
                scan.marked,
                scan.own,
                scan.further,
            )
        )
        return scan.stop

    def _frame(self, data: bytes, at: int, stop: int, index: int, events: list[Event]) -> None:
        kind, channel = data[at], int.from_bytes(data[at + 1 : at + 3], "big")
        if kind == codec.HEARTBEAT:
            return
        if kind != codec.METHOD:
            raise AmqpError(codec.UNEXPECTED_FRAME, f"the server sent a frame of type {kind} by itself")
        if index in (codec.ACK, codec.NACK) and stop - at >= _CONFIRM_FRAME:
            tag = int.from_bytes(data[at + 11 : at + 19], "big")
            events.append(Confirmed(channel, tag, bool(data[at + 19] & 1), index == codec.ACK))
            return
        method = read_method(data[at + codec.FRAME_HEAD : stop - 1])
        if channel == 0:
            self._of_connection(method, events)
        elif isinstance(method, commands.Channel.Close):
            self.send(channel, commands.Channel.CloseOk())
            events.append(ChannelClosed(channel, method.reply_code or 0, method.reply_text or ""))
        else:
            events.append(Replied(channel, method))

    # --- channel 0

    def _of_connection(self, method: base.Frame, events: list[Event]) -> None:
        after = table.STEPS.get((self.phase, method.name))
        if after is None:
            self._beside(method, events)
            return
        self.phase = after
        if isinstance(method, commands.Connection.Start):
            self._start(method)
        elif isinstance(method, commands.Connection.Tune):
            self._tune(method)
        elif isinstance(method, commands.Connection.OpenOk):
            events.append(Opened(*self._product))
        elif isinstance(method, commands.Connection.Close):
            self.send(0, commands.Connection.CloseOk())
            code = method.reply_code or 0
            events.append(Closed(code, method.reply_text or "", code not in _NO_REFUSAL))
        else:
            events.append(Closed(0, ""))

    def _beside(self, method: base.Frame, events: list[Event]) -> None:
        if isinstance(method, commands.Connection.Blocked):
            events.append(Blocked(method.reason or "blocked"))
        elif isinstance(method, commands.Connection.Unblocked):
            events.append(Blocked(""))
        elif self.phase != table.CLOSING and method.name not in table.EVERYWHERE:
            raise AmqpError(codec.COMMAND_INVALID, f"the server sent {method.name} while {self.phase}")

    def _start(self, method: commands.Connection.Start) -> None:
        said = method.server_properties or {}
        self._product = (str(said.get("product", "")), str(said.get("version", "")))
        offered = str(method.mechanisms or "").split()
        if self._log_in.mechanism not in offered:
            raise AmqpError(
                codec.ACCESS_REFUSED,
                f"the server takes no log-in by {self._log_in.mechanism}, but {', '.join(offered)}",
            )
        plain = f"\0{self._log_in.user}\0{self._log_in.password}"
        response = plain if self._log_in.mechanism == "PLAIN" else ""
        properties: FieldTable = {
            "product": "Treecast",
            "connection_name": self._log_in.name,
            "capabilities": _CAPABILITIES,
        }
        self.send(0, commands.Connection.StartOk(properties, self._log_in.mechanism, response, "en_US"))

    def _tune(self, method: commands.Connection.Tune) -> None:
        self.frame_max = min(method.frame_max or _FRAME_MAX, _FRAME_MAX)
        self._scan.frame_max = self.frame_max
        if not self.heartbeat or not method.heartbeat:
            self.heartbeat = self.heartbeat or method.heartbeat or 0
        else:
            self.heartbeat = min(self.heartbeat, method.heartbeat)
        self.send(0, commands.Connection.TuneOk(method.channel_max or 0, self.frame_max, self.heartbeat))
        self.send(0, commands.Connection.Open(self._log_in.vhost))

    # --- output

    @property
    def piece(self) -> int:
        """The largest payload of a body frame, in bytes."""
        return self.frame_max - codec.FRAME_OVERHEAD

    def send(self, channel: int, method: base.Frame) -> None:
        self.out.write(write_method(channel, method))

    def acknowledge(self, channel: int, tag: int) -> None:
        """Acknowledges all deliveries of a channel up to `tag`."""
        self.send(channel, commands.Basic.Ack(tag, True))

    def close(self) -> None:
        """Asks for the end. A `Closed` follows."""
        if self.phase == table.OPEN:
            self.phase = table.CLOSING
            self.send(0, commands.Connection.Close(200, "the agent ends", 0, 0))
        elif self.phase != table.CLOSING:
            self.phase = table.CLOSED

    def take_output(self, now: float) -> bytes:
        """Returns the bytes to send, and forgets them."""
        if len(self.out) == 0:
            return b""
        data = self.out.getvalue()
        self.out = BytesWriter()
        self._last_out = now
        return data

    def _fail(self, error: AmqpError) -> Closed:
        if self.phase not in (table.CLOSING, table.CLOSED):
            self.send(0, commands.Connection.Close(error.code, error.text, 0, 0))
        self.phase = table.CLOSED
        return Closed(error.code, error.text)

    # --- time

    def tick(self, now: float) -> Closed | None:
        """Sends a heartbeat where one is due. Returns the end, if the server is silent for two intervals."""
        if not self.heartbeat or self.phase == table.CLOSED:
            return None
        if now - self._last_in >= 2 * self.heartbeat:
            self.phase = table.CLOSED
            return Closed(codec.CONNECTION_FORCED, f"the server was silent for {2 * self.heartbeat} s")
        if now - self._last_out >= self.heartbeat / 2:
            self.out.write(codec.HEARTBEAT_FRAME)
        return None
