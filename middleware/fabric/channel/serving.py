"""The requests of the other end: from their first frame until their answer has left."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.model.buffers import Buffer

from .codec import MAX_CALL, ChannelProtocolError, Frame, Kind, Problem
from .events import Cancelled, Requested
from .frame_queue import FrameQueue
from .incoming import Incoming, check_message
from .outgoing import Message, Ring, charge_of
from .settings import GROUP_METHODS, GROUPS, MAX_METHOD


class Handling(Struct):
    """A request that has no answer yet."""

    group: int
    charge: int
    notice: bool
    cancelled: bool = False


class Serving:
    """`window` and `longest` are ours, `answer_limit` is the longest message that the other end takes."""

    def __init__(self, window: int, longest: int, ring: Ring, frames: FrameQueue) -> None:
        self.answer_limit = 0
        self.parts: dict[int, Incoming] = {}  # have arrived in part
        self._window = window
        self._longest = longest
        self._ring = ring
        self._frames = frames
        self._next = 0
        self._handling: dict[int, Handling] = {}
        self._answering: dict[int, Message] = {}  # answers that have not left whole
        self._used = [0] * GROUPS  # of the window
        self._given_back = [0] * GROUPS  # of notices, not yet told
        self._unsent = [0] * GROUPS  # bytes of answers
        self._due: list[int] = []  # groups whose credit is to be told

    def __len__(self) -> int:
        """Requests that have no answer yet."""
        return len(self._handling)

    # --- what arrives

    def admit(self, frame: Frame) -> None:
        """A first frame, by its header alone."""
        if frame.call != self._next:
            raise ChannelProtocolError(Problem.UNEXPECTED, "a request out of order")
        if frame.number > MAX_METHOD:
            raise ChannelProtocolError(Problem.UNEXPECTED, f"method {frame.number}")
        check_message(frame, self._longest)
        charge = charge_of(frame.head + frame.body, self._window)
        if self._used[frame.number // GROUP_METHODS] + charge > self._window:
            raise ChannelProtocolError(Problem.WINDOW)

    def take(self, frame: Frame, payload: memoryview, placed: bool) -> Requested | None:
        """A first frame; the request where it is whole by it."""
        self._next = (self._next + 1) & MAX_CALL
        group = frame.number // GROUP_METHODS
        charge = charge_of(frame.head + frame.body, self._window)
        self._used[group] += charge
        self._handling[frame.call] = Handling(group, charge, frame.kind is Kind.NOTICE)
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
        """Its caller does not wait any more. What has been answered meanwhile is none of our business."""
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
        """ValueError where it is longer than the other end takes."""
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
        """A notice, or a request that was cancelled."""
        handling = self._handling.get(number)
        if handling is None:
            return
        self._give_back(number, handling)
        if not handling.notice:
            self._frames.control(Kind.DROPPED, call=number)
            return
        group = handling.group
        self._given_back[group] += handling.charge
        enough = self._given_back[group] > self._window // 4 or not self._used[group]
        if enough and group not in self._due:
            self._due.append(group)

    def _give_back(self, number: int, handling: Handling) -> None:
        del self._handling[number]
        self._used[handling.group] -= handling.charge

    def left(self, answer: Message) -> None:
        """An answer has left whole, or will not leave."""
        self._ring.answer_left(answer.size)
        self._unsent[answer.group] -= answer.size
        del self._answering[answer.call]

    def unsent(self, group: int) -> int:
        """Bytes of answers to a group's requests that have not left."""
        return self._unsent[group]

    # --- credit

    @property
    def credit_due(self) -> bool:
        return bool(self._due)

    def tell_credit(self) -> None:
        """One frame a group, however many notices there were."""
        for group in self._due:
            self._frames.control(Kind.CREDIT, group, 0, self._given_back[group])
            self._given_back[group] = 0
        self._due.clear()
