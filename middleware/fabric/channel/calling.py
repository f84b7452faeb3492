"""Outgoing calls of a connection: from the queue into lanes, until they are answered."""

from __future__ import annotations

from .codec import MAX_CALL, ChannelProtocolError, Frame, Kind, Problem
from .events import Answered
from .frame_queue import FrameQueue
from .incoming import Incoming, check_message, whole_message
from .outgoing import Call, CallQueue, Lane, Ring, charge_of
from .settings import GROUPS


class Calling:
    """`window`: bytes per group that the other end accepts. `longest`: longest message accepted here."""

    def __init__(self, longest: int, ring: Ring, frames: FrameQueue) -> None:
        self.lanes: list[Lane] = []
        self.parts: dict[int, Incoming] = {}  # partly received answers
        self._longest = longest
        self._window = 0
        self._ring = ring
        self._frames = frames
        self._queue = CallQueue()
        self._next = 0
        self._pending: dict[int, Call] = {}

    def __len__(self) -> int:
        """Number of calls that have begun to leave and have not ended."""
        return len(self._pending)

    def begin(self, window: int) -> None:
        """Starts with the other end's window."""
        self._window = window
        self.lanes = [Lane(group, window) for group in range(GROUPS)]

    def attach(self, queue: CallQueue) -> None:
        self._queue = queue
        for lane in self.lanes:
            self._wake(lane)

    def added(self, call: Call) -> None:
        """Notes a call that was added to the queue."""
        self._wake(self.lanes[call.group])

    def waiting(self) -> list[Call]:
        """Returns the calls with a waiting caller, in the order in which they began to leave."""
        return [call for call in self._pending.values() if call.wanted]

    def cancel(self, call: Call) -> None:
        """Cancels a call that has begun to leave."""
        if self._pending.get(call.call) is not call:
            return
        call.wanted = False
        call.drop()
        lane = self.lanes[call.group]
        # The rest of it is not sent: the other end drops its part when it reads CANCEL.
        if lane.current is call:
            lane.current = None
        incoming = self.parts.get(call.call)
        if incoming is not None:
            incoming.discard()
        # Still pending: an answer may be on its way, and DROPPED or that answer ends the call.
        self._frames.control(Kind.CANCEL, call=call.call)

    # --- turns

    def turn(self, lane: Lane) -> Call | None:
        """Returns the call that sends its next frame; None if the lane has left the ring."""
        if lane.current is None:
            call = self._startable(lane)
            if call is None:
                lane.in_ring = False
                return None
            self._start(lane, self._queue.pop(lane.group))
        return lane.current

    def left(self, lane: Lane, call: Call) -> None:
        """Notes that a call was sent completely."""
        lane.current = None
        if call.kind is Kind.NOTICE:
            call.wanted = False

    def _start(self, lane: Lane, call: Call) -> None:
        lane.current = call
        call.call = self._next
        self._next = (self._next + 1) & MAX_CALL
        charge = charge_of(call.size, self._window)
        lane.credit -= charge
        # A notice has no answer that would return its charge; CREDIT does.
        if call.kind is Kind.CALL:
            call.charged = charge
            self._pending[call.call] = call

    def _wake(self, lane: Lane) -> None:
        """Puts a lane into the ring if it may send something."""
        if not lane.in_ring and self._startable(lane) is not None:
            self._ring.add_lane(lane)

    def _startable(self, lane: Lane) -> Call | None:
        call = self._queue.first(lane.group)
        if call is None or charge_of(call.size, self._window) > lane.credit:
            return None
        return call

    # --- what arrives

    def admit(self, frame: Frame) -> None:
        """Checks the header of an answer's first frame."""
        if frame.call not in self._pending or frame.call in self.parts:
            raise ChannelProtocolError(Problem.UNEXPECTED, "answer to an unknown call")
        check_message(frame, self._longest)

    def take(self, frame: Frame, payload: memoryview, placed: bool) -> Answered | None:
        """Takes the first frame of an answer. Returns the answer if it is complete and wanted."""
        call = self._pending[frame.call]
        self._return_charge(call)
        if frame.length == frame.head + frame.body:
            head, body = whole_message(frame, payload, placed)
            return self._ended(call, frame.kind is Kind.FAULT, head, body)
        incoming = Incoming(frame, payload, placed)
        if not call.wanted:
            incoming.discard()
        return self._whole(incoming)

    def take_more(self, frame: Frame, payload: memoryview, placed: bool) -> Answered | None:
        incoming = self.parts.pop(frame.call)
        incoming.add(payload, placed)
        return self._whole(incoming)

    def _whole(self, incoming: Incoming) -> Answered | None:
        if incoming.missing:
            self.parts[incoming.call] = incoming
            return None
        head, body = incoming.contents()
        return self._ended(self._pending[incoming.call], incoming.kind is Kind.FAULT, head, body)

    def _ended(self, call: Call, refused: bool, head: bytes, body: memoryview) -> Answered | None:
        """Ends a call whose whole answer is here. Returns the answer if it is wanted."""
        del self._pending[call.call]
        if not call.wanted:
            return None
        call.wanted = False
        call.drop()
        return Answered(call, refused, head, body)

    def dropped(self, number: int) -> None:
        """Ends a cancelled call."""
        call = self._pending.get(number)
        if call is None or call.wanted:
            raise ChannelProtocolError(Problem.UNEXPECTED, "DROPPED for a call that was not cancelled")
        del self._pending[number]
        self.parts.pop(number, None)
        self._return_charge(call)

    def credit(self, group: int, size: int) -> None:
        """Adds credit for notices from the other end."""
        if group >= GROUPS or self.lanes[group].credit + size > self._window:
            raise ChannelProtocolError(Problem.WINDOW, "credit exceeds the window")
        lane = self.lanes[group]
        lane.credit += size
        self._wake(lane)

    def _return_charge(self, call: Call) -> None:
        lane = self.lanes[call.group]
        lane.credit += call.charged
        call.charged = 0
        self._wake(lane)
