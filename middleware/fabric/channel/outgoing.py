"""Outgoing messages, the order of their frames, and the frames: numbered, tagged, and joined for few writes.

Requests of one group (`number // 20`) leave one after another and thus arrive in order. Groups and answers
take turns of one frame each, so a small message does not wait for a large one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from treecast.middleware.model.buffers import Buffer

from .codec import HEADER_SIZE, MAX_PAYLOAD, Kind, Seal, pack_header
from .settings import GROUP_METHODS, GROUPS, MINIMUM_CHARGE

_EMPTY: Final = memoryview(b"")
_FEW: Final = 64
_JOIN: Final = 32 * 1024  # smaller parts are copied together, larger ones are sent in place


class Message:
    """Head and body, and the number of bytes sent. The body must not change before it is sent."""

    def __init__(self, kind: Kind, number: int, call: int, head: bytes, body: Buffer) -> None:
        self.kind: Kind = kind
        self.number = number
        self.call = call
        self.head = head
        self.body = _EMPTY if len(body) == 0 else memoryview(body).cast("B")
        self.head_size = len(head)
        self.body_size = len(self.body)
        self.size = self.head_size + self.body_size
        self.gone = 0  # bytes sent
        self.begun = False
        self.group = 0  # group of the call, or of the call that it answers

    @property
    def is_request(self) -> bool:
        return self.kind is Kind.CALL or self.kind is Kind.NOTICE

    @property
    def over(self) -> bool:
        """Whether the whole message was sent."""
        return self.begun and self.gone == self.size

    def take(self) -> tuple[Buffer, Buffer]:
        """Returns the payload of the next frame, in two parts."""
        start = self.gone
        end = min(self.size, start + MAX_PAYLOAD)
        self.gone = end
        self.begun = True
        head_size = self.head_size
        if end <= head_size:
            return memoryview(self.head)[start:end], b""
        if start >= head_size:
            return b"", self.body[start - head_size : end - head_size]
        head: Buffer = self.head if start == 0 else memoryview(self.head)[start:]
        return head, self.body[: end - head_size]

    def drop(self) -> None:
        """Releases the memory of a finished message."""
        self.head = b""
        self.body = _EMPTY
        self.gone = self.size = self.head_size = self.body_size = 0
        self.begun = True


class Call(Message):
    """A request until its answer. A notice is a request without an answer."""

    def __init__(self, kind: Kind, number: int, head: bytes, body: Buffer) -> None:
        super().__init__(kind, number, 0, head, body)
        self.group = number // GROUP_METHODS
        self.cost = self.size + MINIMUM_CHARGE
        self.charged = 0  # bytes of the other end's window
        self.waiter: object = None  # the owner's
        self.wanted = True  # a caller waits for the answer; for a notice: it is still to be sent


def charge_of(size: int, window: int) -> int:
    """Returns the bytes of a window that a request of `size` bytes occupies until it is handled.

    At most three quarters of the window, so a request of any size can leave even while up to a quarter
    of the credit, for notices, is outstanding.
    """
    return min(size + MINIMUM_CHARGE, window - window // 4)


class CallQueue:
    """The calls to one host that wait to be sent. The queue outlives connections."""

    def __init__(self) -> None:
        self.lanes: list[deque[Call]] = [deque() for _ in range(GROUPS)]
        self.bytes = 0
        self.calls = 0
        self._forgotten = 0  # forgotten calls that are still in their lanes

    def add(self, call: Call) -> None:
        self.lanes[call.group].append(call)
        self.bytes += call.cost
        self.calls += 1

    def first(self, group: int) -> Call | None:
        """Returns the next wanted call of a group."""
        lane = self.lanes[group]
        while lane:
            if lane[0].wanted:
                return lane[0]
            lane.popleft()
            self._forgotten -= 1
        return None

    def pop(self, group: int) -> Call:
        """Removes the call that `first` returned."""
        call = self.lanes[group].popleft()
        self.bytes -= call.cost
        self.calls -= 1
        return call

    def forget(self, call: Call) -> None:
        """Marks a waiting call as unwanted. It leaves its lane at its turn, or together with many others."""
        call.wanted = False
        call.drop()
        self.bytes -= call.cost
        self.calls -= 1
        self._forgotten += 1
        if self._forgotten > self.calls + _FEW:
            self._sweep()

    def clear(self) -> list[Call]:
        """Removes and returns all waiting calls, in order within each group."""
        self._sweep()
        calls = [call for lane in self.lanes for call in lane]
        for lane in self.lanes:
            lane.clear()
        self.bytes = self.calls = 0
        return calls

    def _sweep(self) -> None:
        self.lanes = [deque([call for call in lane if call.wanted]) for lane in self.lanes]
        self._forgotten = 0


class Lane:
    """One group's place in the ring: requests that leave one after another within the credit."""

    def __init__(self, group: int, credit: int) -> None:
        self.group = group
        self.credit = credit  # bytes of the other end's window
        self.current: Call | None = None  # has begun to leave
        self.in_ring = False


class Ring:
    """The order of turns to send a frame, among lanes and answers."""

    def __init__(self) -> None:
        self._turns: deque[Lane | Message] = deque()
        self.answer_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add_lane(self, lane: Lane) -> None:
        if not lane.in_ring:
            lane.in_ring = True
            self._turns.append(lane)

    def add_answer(self, answer: Message) -> None:
        self.answer_bytes += answer.size + MINIMUM_CHARGE
        self._turns.append(answer)

    def answer_left(self, size: int) -> None:
        """Notes an answer of `size` bytes that was sent completely, or dropped."""
        self.answer_bytes -= size + MINIMUM_CHARGE

    def next(self) -> Lane | Message:
        return self._turns.popleft()

    def again(self, turn: Lane | Message) -> None:
        """Moves a turn with more frames to the end of the ring."""
        self._turns.append(turn)


class FrameQueue:
    """The frames to send. They get their tags in the order of insertion."""

    def __init__(self) -> None:
        self.seal: Seal | None = None
        self._control: list[tuple[Kind, int, int, int, bytes]] = []  # number, call, body, payload
        self._joined = bytearray()
        self._parts: list[Buffer] = []

    def __bool__(self) -> bool:
        return bool(self._control)

    def control(
        self, kind: Kind, number: int = 0, call: int = 0, body: int = 0, payload: bytes = b""
    ) -> None:
        """Adds a small control frame, which goes before messages."""
        self._control.append((kind, number, call, body, payload))

    def forget_control(self) -> None:
        self._control.clear()

    def put_control(self) -> int:
        """Queues the frames added by `control`. Returns their bytes."""
        sent = 0
        for kind, number, call, body, payload in self._control:
            sent += self._put(kind, number, call, 0, body, payload, b"")
        self._control.clear()
        return sent

    def put_message(self, message: Message, more: Kind) -> int:
        """Queues the next frame of a message, of kind `more` after the first. Returns its bytes."""
        kind = more if message.begun else message.kind
        first, second = message.take()
        return self._put(
            kind, message.number, message.call, message.head_size, message.body_size, first, second
        )

    def take(self) -> list[Buffer]:
        """Returns all queued bytes. Large parts still belong to their messages."""
        if self._joined:
            self._flush()
        parts = self._parts
        self._parts = []
        return parts

    def _put(
        self, kind: Kind, number: int, call: int, head: int, body: int, first: Buffer, second: Buffer
    ) -> int:
        size = len(first) + len(second)
        header = pack_header(size, kind, number, call, head, body)
        self._joined += header
        if self.seal is not None and kind > Kind.REFUSE:
            self._joined += self.seal.tag_parts(header, first, second)
        self._add(first)
        self._add(second)
        return HEADER_SIZE + size

    def _add(self, part: Buffer) -> None:
        if len(part) < _JOIN:
            self._joined += part
        else:
            self._flush()
            self._parts.append(part)

    def _flush(self) -> None:
        # A copy, because the transport may keep it while `_joined` is filled again.
        self._parts.append(bytes(self._joined))
        self._joined.clear()
