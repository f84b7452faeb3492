"""Requests from the other end: from their first frame until their answer is sent."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.model.buffers import Buffer

from .codec import MAX_CALL, ChannelProtocolError, Frame, Kind, Problem
from .events import Cancelled, Requested
from .frame_queue import FrameQueue
from .incoming import Incoming, check_message, whole_message
from .outgoing import Message, Ring, charge_of
from .settings import GROUP_METHODS, GROUPS, MAX_METHOD


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
