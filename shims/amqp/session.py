"""One connection of the AMQP face, without I/O: splits chunks into frames and handles each frame.

`receive(data, now)` processes a whole chunk per call: consecutive similar publishes as one run
(`codec_publish`), consecutive acknowledgements in one step, and everything else frame by frame. Output is
gathered in `SessionOutput` until the turn ends. `now` is in seconds on the loop's clock; `vhost.wall` is the
time of day, which the asyncio side updates.

A session holds objects of one concern each: what all share (`session_state`), channel 0 (`session_opening`)
and the channels (`session_channels`). None of them knows the session.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from pamqp import commands

from treecast.middleware.broker.queues import Refusal
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.shims.log_ins import Outcome

from . import codec, session_table
from .codec import END, FRAME_HEAD, FRAME_OVERHEAD, AmqpError, frame
from .codec_methods import read_method
from .codec_publish import PublishScan, publish_fields, run_of
from .session_channels import Channel, Channels
from .session_host import AmqpHost
from .session_opening import Heartbeats, Opening
from .session_state import ConnectionState
from .session_waiting import UNPLUGGED, Answered, Edge

_log = Log("treecast.amqp")

_ACK_FRAME: Final = 21  # bytes of a basic.ack
_COSTLY: Final = 4096  # bytes of a content header, whose table may have thousands of entries


class Session:
    """One connection.

    `publishes` is whether it has published anything: an alarm pauses reading from such connections only.
    """

    def __init__(self, host: AmqpHost, edge: Edge, now: float) -> None:
        self.host = host
        self.state = ConnectionState(host, edge)
        self.output = self.state.output
        self.channels = Channels(self.state)
        self.opening = Opening(self.state, self.channels)
        self.heartbeats = Heartbeats(self.state, now)
        self.publishes = False
        self.rests = False  # the work budget is spent: what has arrived waits for a later pass of the loop
        self._costly = False
        self._partial: bytearray | None = None
        self._scan = PublishScan()
        self._scan.largest = host.settings.max_message_bytes

    # --- receiving

    @property
    def memory(self) -> int:
        """The bytes of frames and messages that have arrived in part."""
        collected = self.state.collected
        return collected if self._partial is None else collected + len(self._partial)

    def forget(self) -> None:
        """Drops all input, and the edge: the client has gone."""
        self._partial = None
        self.channels.forget()
        self.output.edge = UNPLUGGED

    def receive(self, data: bytes, now: float) -> None:
        """Processes a chunk.

        A violation closes its channel or the connection after the prescribed answer.
        """
        self.heartbeats.last_in = now
        partial = self._partial
        if partial is not None:
            partial += data
            # Input is collected, and nothing is parsed, while a method waits and until the next frame is
            # complete.
            if self.state.held or self.rests or len(partial) < self.state.wanted:
                return
            data = bytes(partial)
            self._partial = None
        elif self.state.held or self.rests:
            self._partial = bytearray(data)
            return
        try:
            # Everything that was gathered for the chunk is settled also after an error, before its close is
            # sent.
            used = self._frames(data, now)
        except AmqpError as error:
            self.fail(error, now)
            # After a violation, frame borders cannot be trusted: the rest of the chunk is thrown away.
            used = len(data)
        finally:
            self._settle_up(now)
        if used < len(data) and self.state.phase != session_table.CLOSED:
            self._partial = bytearray(data[used:] if used else data)

    def _frames(self, data: bytes, now: float) -> int:
        """Processes the complete frames at the start of `data` and returns their size in bytes."""
        state = self.state
        position = 0
        end = len(data)
        began = self.host.work.now()
        if state.phase == session_table.HEADER:
            position = self.opening.header(data)
        while position < end:
            if state.phase == session_table.CLOSED:
                return end
            # A head alone has no end octet; waiting for both lets one check cover the whole frame.
            if end - position < FRAME_OVERHEAD:
                state.wanted = FRAME_OVERHEAD
                return position
            size: int = read_i32_be(data, position + 3)
            # Before the frame is complete: it would be collected in memory up to its announced size.
            if size < 0 or size > state.frame_max - FRAME_OVERHEAD:
                largest = state.frame_max - FRAME_OVERHEAD
                detail = f"a frame with a payload of {size & 0xFFFFFFFF} bytes exceeds the limit of {largest}"
                raise AmqpError(codec.FRAME_ERROR, detail)
            stop = position + size + FRAME_OVERHEAD
            if stop > end:
                state.wanted = stop - position
                return position
            # The end octet is the only sign that client and broker agree where frames end.
            if data[stop - 1] != END:
                raise AmqpError(codec.FRAME_ERROR, f"the frame ends with {data[stop - 1]}, and not with 206")
            position = self._one(data, position, stop, end, now)
            if state.held:
                # The frames behind a method that waits for another host or a password are processed after it.
                state.wanted = 0
                return position
            if self._costly:
                self._costly = False
                # The clock is read only after costly frames: for cheap ones, reading it would cost more than
                # they do.
                if position < end and self.host.work.spent_since(began):
                    self.rest()
                    return position
        return position

    def _one(self, data: bytes, position: int, stop: int, end: int, now: float) -> int:
        """Processes one frame, or several in one step. Returns the offset of the next."""
        number = data[position + 1] << 8 | data[position + 2]
        channel = self.channels.by_number.get(number)
        if channel is not None and channel.state == session_table.RUNNING:
            kind = data[position]
            if kind == codec.METHOD and stop - position > FRAME_OVERHEAD + 4:
                method = read_i32_be(data, position + FRAME_HEAD)
                # Amid a content, even a method is an error, which the slow path below names.
                if method == codec.PUBLISH and not channel.content.amid:
                    return self._publish(channel, data, position, stop, end, now)
                if method == codec.ACK and stop - position == _ACK_FRAME and not channel.content.amid:
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
        publishing = channel.publishing
        counting = self.host.counting
        payload = data[position + FRAME_HEAD : stop - 1]
        exchange, key, flags = publish_fields(payload)
        scan = self._scan
        scan.frame_max = self.state.frame_max
        scan.look(data, position, end, stop, publishing.looks_at_headers(exchange))
        # A scan that finds nothing has met a publish whose content is not complete in this chunk.
        counting.publishes += scan.count or 1
        if scan.count == 0:
            channel.content.begin(payload)
            return stop
        stop = scan.stop
        # Runs consist of messages with equal headers, read once. Only a single message can have a table to
        # itself.
        self._costly = scan.count == 1 and stop - position >= _COSTLY
        try:
            publishing.may_publish(exchange, flags)
            run = run_of(exchange, key, scan.data, scan.count, scan.size, scan.seen)
            publishing.publish(run, flags, now)
        except (Refusal, AmqpError, TreecastError) as error:
            self.channels.refused(channel, error, codec.PUBLISH, now)
        return stop

    def _content(self, channel: Channel, kind: int, payload: bytes, now: float) -> None:
        if not channel.content.amid:
            raise channel.content.unexpected()  # outside of a publish, the close names no method
        try:
            if kind == codec.HEADER:
                channel.content.take_header(payload, now)
            else:
                channel.content.take_body(payload, now)
        except (Refusal, AmqpError, TreecastError) as error:
            self.channels.refused(channel, error, codec.PUBLISH, now)

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
                # Eleven bytes: type, channel, size, class and method are the same for each acknowledgement of
                # the row.
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
                channel.settling.ack_method(commands.Basic.Ack(tag, True), now)
            else:
                channel.settling.ack_row(tag, count, now)
        except (Refusal, AmqpError) as error:
            self.channels.refused(channel, error, codec.ACK, now)
        return stop

    # --- frame by frame

    def _frame(self, kind: int, number: int, payload: bytes, now: float) -> None:
        # After its connection.close was sent, only the answer to it matters; frames may still be under way.
        if self.state.phase == session_table.CLOSING and (kind != codec.METHOD or number):
            return
        if kind == codec.HEARTBEAT:
            if number or payload:
                raise AmqpError(codec.UNEXPECTED_FRAME, f"a heartbeat on channel {number}")
        elif kind == codec.METHOD:
            self._method(number, payload, now)
        elif kind in (codec.HEADER, codec.BODY):
            if number not in self.channels.by_number:
                raise AmqpError(codec.CHANNEL_ERROR, "expected 'channel.open'")
        else:
            raise AmqpError(codec.FRAME_ERROR, f"a frame of type {kind}")

    def _method(self, number: int, payload: bytes, now: float) -> None:
        channel = self.channels.by_number.get(number)
        if channel is not None and channel.amid_content:
            raise channel.content.unexpected()
        if payload[:4] == codec.ACCESS_REQUEST.to_bytes(4, "big") and channel is not None:
            # A method of AMQP 0-8 that old clients still send. pamqp does not know it.
            answer = codec.ACCESS_REQUEST_OK.to_bytes(4, "big") + b"\x00\x01"
            self.output.writer().write(frame(codec.METHOD, number, answer))
            return
        method = read_method(payload)
        self.host.counting.count(method.name)
        if method.index in session_table.ON_CONNECTION or number == 0:
            self.opening.on_method(number, method, now)
        elif self.state.phase != session_table.OPEN:
            detail = "a method of a channel arrived before the connection is open"
            raise AmqpError(codec.CHANNEL_ERROR, detail, method.index)
        else:
            self.channels.on_method(number, channel, method, now)

    def _settle_up(self, now: float) -> None:
        """Does the work that is needed only once per chunk: pumps queues and writes confirms."""
        state = self.state
        if state.unpumped:
            state.pump(now)
        if state.unconfirmed:
            for confirms in state.unconfirmed.values():
                confirms.write()
            state.unconfirmed = {}

    # --- what comes from elsewhere than the socket

    def rest(self) -> None:
        """Leaves the remaining frames to a later pass of the loop."""
        self.rests = True
        self.state.wanted = 0
        # Other connections are served first: the budget is that of a pass of the loop, over all of them.
        self.host.work.later(self._rested)

    def _rested(self) -> None:
        self.rests = False
        if self.state.phase != session_table.CLOSED and not self.state.held:
            self.output.edge.go_on(self.host.work.now())

    def go_on(self, now: float) -> None:
        """Processes the frames that were left."""
        self.receive(b"", now)

    def checked(self, outcome: Outcome, now: float) -> None:
        """Goes on after the check of the client's password, with what came meanwhile."""
        self.opening.checked(outcome)
        if self.state.phase != session_table.CLOSED and self._partial is not None:
            self.receive(b"", now)

    def answered(self, found: Answered, now: float) -> None:
        """The method that waited is run again with its answer, and then what came after it.

        An answer that the method does not take any more is undone before that.
        """
        state = self.state
        state.held = False
        state.answer = found
        resumed = self._run_again(now)
        # Its channel may have been closed meanwhile. Undoing comes first: input behind it may ask the same
        # home.
        left = state.take_answer()
        if left is not None:
            left.abandon()
        if resumed and state.phase != session_table.CLOSED and not state.held:
            self.receive(b"", now)

    def _run_again(self, now: float) -> bool:
        try:
            return self.channels.run_again(now)
        except AmqpError as error:
            self.fail(error, now)
            return True
        finally:
            self._settle_up(now)

    def resume(self, now: float) -> None:
        """Delivers from the queues again after the output has room."""
        if self.output.writable:
            self.channels.resume(now)

    def tick(self, now: float) -> float:
        """Sends a heartbeat if it is due. Ends the connection after two intervals without input.

        Returns when to check again, 0.0 for never.
        """
        if self.state.phase != session_table.CLOSED and self.heartbeats.missed(now):
            self.lost(now)
        return self.heartbeats.tick(now)

    # --- closing

    def review(self, deleted: Collection[str], now: float) -> None:
        """Ends what the user may no longer do, after users or permissions have changed. `deleted`: users that
        were deleted, though one of the same name may be there again."""
        state = self.state
        if not session_table.TUNING <= state.phase <= session_table.OPEN:
            return
        # Both: a user may have been deleted and created under the same name since, and this login was of the
        # old one.
        if state.user in deleted or not self.host.access.knows(state.user):
            self.close(now, f"user '{state.user}' is deleted")
            return
        identities = self.host.identities
        if identities.knows(state.user) and not identities.admits(state.user, state.address):
            self.close(now, f"user '{state.user}' may come from this machine only")
            return
        self.channels.review(now)
        self._settle_up(now)

    def fail(self, error: AmqpError, now: float) -> None:
        """Closes the connection with the reason."""
        state = self.state
        # A second error after the close must not replace the reason that the client has been given.
        if state.phase in (session_table.CLOSING, session_table.CLOSED):
            return
        state.failure = error.text
        _log.info("connection closed", connection=state.shown_name, reason=error.text)
        self.channels.release_all(now)
        # Released first: other consumers may have the messages while the client still reads its close.
        state.send_close(error)

    def close(
        self, now: float, detail: str = "broker forced connection closure with reason 'shutdown'"
    ) -> None:
        """Closes the connection on behalf of the server."""
        self.fail(AmqpError(codec.CONNECTION_FORCED, detail), now)

    def lost(self, now: float) -> None:
        """Handles the loss of the connection."""
        if self.state.phase != session_table.CLOSED:
            self.state.end()
            self.channels.release_all(now)
            self._settle_up(now)
