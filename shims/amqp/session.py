"""One connection of the AMQP face, without I/O: splits chunks into frames and handles each frame.

`receive(data, now)` processes a whole chunk per call: consecutive similar publishes as one run
(`codec_publish`), consecutive acknowledgements in one step, and everything else frame by frame. Output is
gathered in `SessionOutput` until the turn ends. `now` is in seconds on the loop's clock; `vhost.wall` is the
time of day, which the asyncio side updates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from pamqp import base, commands

from treecast.middleware.broker.queues import Refusal
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from . import codec, session_table
from .codec import END, FRAME_HEAD, FRAME_OVERHEAD, AmqpError, frame
from .codec_methods import read_method
from .codec_publish import PublishScan, publish_fields
from .session_channel import CODES, Answered, ChannelBase, Suspended
from .session_host import AmqpHost
from .session_messages import run_of
from .session_opening import OpeningConnection
from .session_output import SessionOutput
from .session_publishing import Channel

_log = Log("treecast.amqp")

_CHANNEL_OPEN: Final = commands.Channel.Open.index
_CHANNEL_CLOSE: Final = commands.Channel.Close.index
_CHANNEL_CLOSE_OK: Final = commands.Channel.CloseOk.index
_ACK_FRAME: Final = 21  # bytes of a basic.ack
_COSTLY: Final = 4096  # bytes of a content header, whose table may have thousands of entries


class Session(OpeningConnection):
    """The state of one connection.

    `publishes` is whether it has published anything: an alarm pauses reading from such connections only.
    """

    def __init__(self, host: AmqpHost, wake: Callable[[SessionOutput], None], now: float) -> None:
        super().__init__(host, wake, now)
        self.publishes = False
        self.rests = False  # the work budget is spent: what has arrived waits for a later pass of the loop
        self._costly = False
        self.channels: dict[int, Channel] = {}
        self._partial: bytearray | None = None
        self._suspended: tuple[Channel, base.Frame] | None = None
        self.shares = 0  # the version of definitions that other hosts have to know before this is answered
        self._scan = PublishScan()
        self._scan.largest = host.settings.max_message_bytes

    # --- receiving

    @property
    def memory(self) -> int:
        """The bytes of frames and messages that have arrived in part."""
        return self.collected if self._partial is None else self.collected + len(self._partial)

    def forget(self) -> None:
        """Drops all input: the client has gone."""
        self._partial = None
        self._suspended = None

    def receive(self, data: bytes, now: float) -> None:
        """Processes a chunk.

        A violation closes its channel or the connection after the prescribed answer.
        """
        self._last_in = now
        partial = self._partial
        if partial is not None:
            partial += data
            if self.held or self.rests or len(partial) < self._wanted:
                return
            data = bytes(partial)
            self._partial = None
        elif self.held or self.rests:
            self._partial = bytearray(data)
            return
        try:
            used = self._frames(data, now)
        except AmqpError as error:
            self.fail(error, now)
            used = len(data)
        finally:
            self._settle_up(now)
        if used < len(data) and self.phase != session_table.CLOSED:
            self._partial = bytearray(data[used:] if used else data)

    def _settle_up(self, now: float) -> None:
        """Does the work that is needed only once per chunk: pumps queues and writes confirms."""
        self._pump(now)
        for channel in self.unconfirmed:
            channel.write_confirms()
        self.unconfirmed = []

    def _pump(self, now: float) -> None:
        """Pumps the queues of which messages were settled."""
        while self.unpumped:
            _, queue = self.unpumped.popitem()
            queue.pump(now)
            self.vhost.touched(queue, now)

    def _frames(self, data: bytes, now: float) -> int:
        """Processes the complete frames at the start of `data` and returns their size in bytes."""
        position = 0
        end = len(data)
        began = self.host.work.now()
        if self.phase == session_table.HEADER:
            position = self._header(data)
        while position < end:
            if self.phase == session_table.CLOSED:
                return end
            if end - position < FRAME_OVERHEAD:
                self._wanted = FRAME_OVERHEAD
                return position
            size: int = read_i32_be(data, position + 3)
            if size < 0 or size > self.frame_max - FRAME_OVERHEAD:
                largest = self.frame_max - FRAME_OVERHEAD
                detail = f"a frame with a payload of {size & 0xFFFFFFFF} bytes exceeds the limit of {largest}"
                raise AmqpError(codec.FRAME_ERROR, detail)
            stop = position + size + FRAME_OVERHEAD
            if stop > end:
                self._wanted = stop - position
                return position
            if data[stop - 1] != END:
                raise AmqpError(codec.FRAME_ERROR, f"the frame ends with {data[stop - 1]}, and not with 206")
            position = self._one(data, position, stop, end, now)
            if self.held:
                self._wanted = 0
                return position
            if self._costly:
                self._costly = False
                if position < end and self.host.work.spent_since(began):
                    self.rest()
                    return position
        return position

    def rest(self) -> None:
        """Leaves the remaining frames to a later pass of the loop."""
        self.rests = True
        self._wanted = 0
        self.host.work.later(self._rested)

    def _rested(self) -> None:
        self.rests = False
        if self.phase != session_table.CLOSED and not self.held:
            self.go_on(self.host.work.now())

    def go_on(self, now: float) -> None:
        """Processes the frames that were left."""
        self.receive(b"", now)

    def _one(self, data: bytes, position: int, stop: int, end: int, now: float) -> int:
        """Processes one frame, or several in one step. Returns the offset of the next."""
        number = data[position + 1] << 8 | data[position + 2]
        channel = self.channels.get(number)
        if channel is not None and channel.state == session_table.RUNNING:
            kind = data[position]
            if kind == codec.METHOD and stop - position > FRAME_OVERHEAD + 4:
                method = read_i32_be(data, position + FRAME_HEAD)
                if method == codec.PUBLISH and not channel.amid_content:
                    return self._publish(channel, data, position, stop, end, now)
                if method == codec.ACK and stop - position == _ACK_FRAME and not channel.amid_content:
                    return self._acks(channel, data, position, end, now)
            elif kind == codec.BODY or kind == codec.HEADER:
                self._costly = stop - position >= _COSTLY and kind == codec.HEADER
                self._content(channel, kind, data[position + FRAME_HEAD : stop - 1], now)
                return stop
        self._costly = True
        self._frame(data[position], number, data[position + FRAME_HEAD : stop - 1], now)
        return stop

    # --- the hot path

    def _publish(self, channel: Channel, data: bytes, position: int, stop: int, end: int, now: float) -> int:
        """Processes similar publishes as one run, or the method frame of a single publish."""
        self.publishes = True
        counting = self.host.counting
        payload = data[position + FRAME_HEAD : stop - 1]
        exchange, key, flags = publish_fields(payload)
        scan = self._scan
        scan.frame_max = self.frame_max
        scan.look(data, position, end, stop, channel.looks_at_headers(exchange))
        counting.publishes += scan.count or 1
        if scan.count == 0:
            channel.begin_publish(payload)
            return stop
        stop = scan.stop
        self._costly = scan.count == 1 and stop - position >= _COSTLY
        try:
            channel.may_publish(exchange, flags)
            run = run_of(exchange, key, scan.data, scan.count, scan.size, scan.seen)
            channel.publish(run, flags, now)
        except (Refusal, AmqpError, TreecastError) as error:
            self._refused(channel, self._as_error(error, codec.PUBLISH), now)
        return stop

    def _content(self, channel: Channel, kind: int, payload: bytes, now: float) -> None:
        if not channel.amid_content:
            raise channel.unexpected()  # outside of a publish, the close names no method
        try:
            if kind == codec.HEADER:
                channel.take_header(payload, now)
            else:
                channel.take_body(payload, now)
        except (Refusal, AmqpError, TreecastError) as error:
            self._refused(channel, self._as_error(error, codec.PUBLISH), now)

    def _acks(self, channel: Channel, data: bytes, position: int, end: int, now: float) -> int:
        """Processes single acknowledgements with consecutive tags in one step, or one with `multiple`."""
        tag = read_i64_be(data, position + 11)
        multiple = data[position + 19] & 1
        stop = position + _ACK_FRAME
        count = 1
        if not multiple:
            head = data[position : position + 11]
            while (
                stop + _ACK_FRAME <= end
                and data[stop : stop + 11] == head
                and read_i64_be(data, stop + 11) == tag + count
                and data[stop + 19] == 0
                and data[stop + 20] == END
            ):
                count += 1
                stop += _ACK_FRAME
        self.host.counting.acks += count
        try:
            if multiple:
                channel.ack_method(commands.Basic.Ack(tag, True), now)
            else:
                channel.ack_row(tag, count, now)
        except (Refusal, AmqpError) as error:
            self._refused(channel, self._as_error(error, codec.ACK), now)
        return stop

    # --- frame by frame

    def _frame(self, kind: int, number: int, payload: bytes, now: float) -> None:
        if self.phase == session_table.CLOSING and (kind != codec.METHOD or number):
            return
        if kind == codec.HEARTBEAT:
            if number or payload:
                raise AmqpError(codec.UNEXPECTED_FRAME, f"a heartbeat on channel {number}")
        elif kind == codec.METHOD:
            self._method(number, payload, now)
        elif kind in (codec.HEADER, codec.BODY):
            if number not in self.channels:
                raise AmqpError(codec.CHANNEL_ERROR, "expected 'channel.open'")
        else:
            raise AmqpError(codec.FRAME_ERROR, f"a frame of type {kind}")

    def _method(self, number: int, payload: bytes, now: float) -> None:
        channel = self.channels.get(number)
        if channel is not None and channel.state == session_table.RUNNING and channel.amid_content:
            raise channel.unexpected()
        if payload[:4] == codec.ACCESS_REQUEST.to_bytes(4, "big") and channel is not None:
            answer = codec.ACCESS_REQUEST_OK.to_bytes(4, "big") + b"\x00\x01"
            self.writer().write(frame(codec.METHOD, number, answer))
            return
        method = read_method(payload)
        self.host.counting.count(method.name)
        if method.index in session_table.ON_CONNECTION or number == 0:
            self._on_connection(number, method, now)
        elif self.phase != session_table.OPEN:
            detail = "a method of a channel arrived before the connection is open"
            raise AmqpError(codec.CHANNEL_ERROR, detail, method.index)
        else:
            self._on_channel(number, channel, method, now)

    def _on_channel(self, number: int, channel: Channel | None, method: base.Frame, now: float) -> None:
        if method.index == _CHANNEL_OPEN:
            self._open_channel(number, channel)
        elif channel is None:
            if method.index != _CHANNEL_CLOSE_OK:
                raise AmqpError(codec.CHANNEL_ERROR, "expected 'channel.open'", method.index)
        elif method.index == _CHANNEL_CLOSE:
            self._release_channel(channel, now)
            self.send(number, commands.Channel.CloseOk())
        elif channel.state == session_table.ENDING:
            if method.index == _CHANNEL_CLOSE_OK:
                del self.channels[number]
        else:
            self._act(channel, method, now)

    def _act(self, channel: Channel, method: base.Frame, now: float) -> None:
        name = session_table.CHANNEL[channel.state].get(method.index)
        if name is None:
            code = session_table.CHANNEL_REFUSED[channel.state]
            raise AmqpError(code, "unimplemented method", method.index)
        if self.unpumped and method.index not in session_table.SETTLES:
            self._pump(now)  # the method sees the queues as the settlements before it have left them
        joined = self.host.joined
        before = joined.definitions.version if joined is not None else 0
        if method.index in session_table.PROMISES:
            self.depends = True
        try:
            getattr(channel, name)(method, now)
        except Suspended:
            self.held = True
            self._suspended = channel, method
        except (Refusal, AmqpError, TreecastError) as error:
            self._refused(channel, self._as_error(error, method.index), now)
        if joined is not None and joined.definitions.version != before:
            self.shares = joined.definitions.version

    def answered(self, found: Answered, now: float) -> None:
        """The method that waited is run again with its answer, and then what came after it.

        An answer that the method does not take any more is undone before that.
        """
        self.held = False
        self.answer = found
        resumed = self._resume(now)
        left = self.take_answer()
        if left is not None:
            left.abandon()
        if resumed and self.phase != session_table.CLOSED and not self.held:
            self.receive(b"", now)

    def _resume(self, now: float) -> bool:
        """Runs the method that waited. Returns False if its channel or connection was closed meanwhile."""
        suspended, self._suspended = self._suspended, None
        if suspended is None or self.phase == session_table.CLOSED:
            return False
        channel, method = suspended
        if self.channels.get(channel.number) is not channel or channel.state != session_table.RUNNING:
            return False
        try:
            self._act(channel, method, now)
        except AmqpError as error:
            self.fail(error, now)
        finally:
            self._settle_up(now)
        return True

    # --- channels

    def _open_channel(self, number: int, channel: Channel | None) -> None:
        if channel is not None:
            if channel.state == session_table.ENDING:
                return
            raise AmqpError(codec.CHANNEL_ERROR, "second 'channel.open' seen", _CHANNEL_OPEN)
        if number > self.channel_max or len(self.channels) >= self.channel_max:
            detail = (
                f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max "
                f"({self.channel_max})"
            )
            raise AmqpError(codec.NOT_ALLOWED, detail, _CHANNEL_OPEN)
        self.channels[number] = Channel(self, number)
        self.send(number, commands.Channel.OpenOk())

    def _release_channel(self, channel: Channel, now: float) -> None:
        """Releases a channel, after writing its pending confirms."""
        if channel in self.unconfirmed:
            self.unconfirmed.remove(channel)
            channel.write_confirms()
        self.channels.pop(channel.number, None)
        channel.forget_content()
        channel.release(now)

    def _refused(self, channel: Channel, error: AmqpError, now: float) -> None:
        """Closes the channel if the error affects only it, else raises the error."""
        if not error.ends_channel:
            raise error
        self._release_channel(channel, now)
        channel.state = session_table.ENDING
        self.channels[channel.number] = channel
        class_id, method_id = error.method >> 16, error.method & 0xFFFF
        self.send(channel.number, commands.Channel.Close(error.code, error.text, class_id, method_id))
        _log.info(
            "channel closed", channel=channel.number, connection=self.name or self.user, reason=error.text
        )

    def _as_error(self, error: Exception, method: int) -> AmqpError:
        """Converts an internal error to an AMQP error."""
        if isinstance(error, Refusal):
            return AmqpError(CODES[error.reason], error.detail, method)
        if isinstance(error, AmqpError):
            error.method = error.method or method
            return error
        return AmqpError(codec.INTERNAL_ERROR, str(error), method)

    # --- changed rights

    def review(self, deleted: Collection[str], now: float) -> None:
        """Ends what the user may no longer do, after users or permissions have changed. `deleted`: users that
        were deleted, though one of the same name may be there again."""
        if not session_table.TUNING <= self.phase <= session_table.OPEN:
            return
        if self.user in deleted or not self.host.access.knows(self.user):
            self.close(now, f"user '{self.user}' is deleted")
            return
        for channel in list(self.channels.values()):
            if channel.state == session_table.RUNNING:
                try:
                    channel.review()
                except AmqpError as error:
                    self._refused(channel, error, now)
        self._settle_up(now)

    # --- closing

    def lost(self, now: float) -> None:
        if self.phase != session_table.CLOSED:
            self._end()
            self.release(now)
            self._settle_up(now)

    def release(self, now: float) -> None:
        self.writable = False
        running = [channel for channel in self.channels.values() if channel.state == session_table.RUNNING]
        for channel in running:  # first: no channel is to get what another one returns
            channel.leave(now)
        for channel in running:
            self._release_channel(channel, now)
        self.channels.clear()
        self.vhost.release(self)
        self._pump(now)

    def all_channels(self) -> list[ChannelBase]:
        return list(self.channels.values())

    def resume(self, now: float) -> None:
        """Delivers from the queues again after the output has room."""
        if self.writable:
            for channel in list(self.channels.values()):
                channel.pump(now)
