"""The calls of one connection: own ones, and requests from the other end.

`Calling` has the own calls, from the queue into lanes, until they are answered. `Serving` has the requests
from the other end, from their first frame until their answer is sent.
"""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.model.buffers import Buffer

from .codec import MAX_CALL, ChannelProtocolError, Frame, Kind, Problem
from .incoming import Answered, Cancelled, Incoming, Requested, check_message, whole_message
from .outgoing import Call, CallQueue, FrameQueue, Lane, Message, Ring, charge_of
from .settings import GROUP_METHODS, GROUPS, MAX_METHOD


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


class Handling(Struct):
    """A request without an answer yet."""

    group: int
    charge: int
    notice: bool
    cancelled: bool = False


class Serving:
    """The requests that one end serves on a connection.

    `window` and `longest` are this end's limits, `answer_limit` is the longest message that the other end
    accepts.
    """

    def __init__(self, window: int, longest: int, ring: Ring, frames: FrameQueue) -> None:
        self.answer_limit = 0
        self.parts: dict[int, Incoming] = {}  # partly received requests
        self._window = window
        self._longest = longest
        self._ring = ring
        self._frames = frames
        self._next = 0
        self._handling: dict[int, Handling] = {}
        self._answering: dict[int, Message] = {}  # answers not completely sent
        # bytes by group
        self._used = [0] * GROUPS  # occupied window
        self._given_back = [0] * GROUPS  # credit of handled notices, not yet sent
        self._unsent = [0] * GROUPS  # answers
        self._due: list[int] = []  # groups whose credit is to be sent

    def __len__(self) -> int:
        """Number of requests without an answer."""
        return len(self._handling)

    # --- what arrives

    def admit(self, frame: Frame) -> None:
        """Checks the header of a request's first frame."""
        if frame.call != self._next:
            raise ChannelProtocolError(Problem.UNEXPECTED, "a request out of order")
        if frame.number > MAX_METHOD:
            raise ChannelProtocolError(Problem.UNEXPECTED, f"method {frame.number}")
        check_message(frame, self._longest)
        charge = charge_of(frame.head + frame.body, self._window)
        if self._used[frame.number // GROUP_METHODS] + charge > self._window:
            raise ChannelProtocolError(Problem.WINDOW)

    def take(self, frame: Frame, payload: memoryview, placed: bool) -> Requested | None:
        """Takes the first frame of a request. Returns the request if it is complete."""
        self._next = (self._next + 1) & MAX_CALL
        group = frame.number // GROUP_METHODS
        charge = charge_of(frame.head + frame.body, self._window)
        self._used[group] += charge
        notice = frame.kind is Kind.NOTICE
        self._handling[frame.call] = Handling(group, charge, notice)
        if frame.length == frame.head + frame.body:
            head, body = whole_message(frame, payload, placed)
            return Requested(frame.call, frame.number, notice, head, body)
        return self._whole(Incoming(frame, payload, placed))

    def take_more(self, frame: Frame, payload: memoryview, placed: bool) -> Requested | None:
        incoming = self.parts.pop(frame.call)
        incoming.add(payload, placed)
        return self._whole(incoming)

    def _whole(self, incoming: Incoming) -> Requested | None:
        if incoming.missing:
            self.parts[incoming.call] = incoming
            return None
        head, body = incoming.contents()
        return Requested(incoming.call, incoming.number, incoming.kind is Kind.NOTICE, head, body)

    def cancel(self, number: int) -> Cancelled | None:
        """Takes a cancellation by the caller. Returns an event if a handler has the request.

        Drops an answer that is not completely sent. Ignores a cancellation after the whole answer was sent.
        """
        handling = self._handling.get(number)
        if handling is None:
            self._cancel_answer(number)
            return None
        handling.cancelled = True
        if self.parts.pop(number, None) is None:
            return Cancelled(number)
        self.done(number)
        return None

    def _cancel_answer(self, number: int) -> None:
        answer = self._answering.get(number)
        if answer is not None:
            self.left(answer)
            answer.drop()
            self._frames.control(Kind.DROPPED, call=number)

    # --- what is answered

    def answer(self, kind: Kind, number: int, head: bytes, body: Buffer) -> None:
        """Queues an answer. Raises ValueError if it is longer than the other end accepts."""
        handling = self._handling.get(number)
        if handling is None:
            return
        if handling.cancelled or handling.notice:
            self.done(number)
            return
        message = Message(kind, 0, number, head, body)
        if message.size > self.answer_limit:
            raise ValueError(f"an answer of {message.size} bytes: {self.answer_limit} are taken")
        message.group = handling.group
        self._give_back(number, handling)
        self._unsent[message.group] += message.size
        self._ring.add_answer(message)
        self._answering[number] = message

    def done(self, number: int) -> None:
        """Ends a handled notice or a cancelled request, neither of which has an answer."""
        handling = self._handling.get(number)
        if handling is None:
            return
        self._give_back(number, handling)
        if not handling.notice:
            self._frames.control(Kind.DROPPED, call=number)
            return
        group = handling.group
        self._given_back[group] += handling.charge
        # Told by the quarter (`charge_of` leaves room for it), and when no further request could add to it.
        enough = self._given_back[group] > self._window // 4 or not self._used[group]
        if enough and group not in self._due:
            self._due.append(group)

    def _give_back(self, number: int, handling: Handling) -> None:
        del self._handling[number]
        self._used[handling.group] -= handling.charge

    def left(self, answer: Message) -> None:
        """Notes that an answer was sent completely or is dropped."""
        self._ring.answer_left(answer.size)
        self._unsent[answer.group] -= answer.size
        del self._answering[answer.call]

    def unsent(self, group: int) -> int:
        """Returns the bytes of unsent answers to a group's requests."""
        return self._unsent[group]

    # --- credit

    @property
    def credit_due(self) -> bool:
        return bool(self._due)

    def tell_credit(self) -> None:
        """Queues one CREDIT frame per group for all notices handled since the last one."""
        for group in self._due:
            self._frames.control(Kind.CREDIT, group, 0, self._given_back[group])
            self._given_back[group] = 0
        self._due.clear()
