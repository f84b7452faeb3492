"""Messages on their way out, and in which order their frames leave.

Requests of one group (`number // 20`) leave one after the other, so that they arrive in the order in
which they were made. Groups and answers take turns, a frame each, so that a small message need not wait
until a large one has gone.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from treecast.middleware.model.buffers import Buffer

from .codec import MAX_PAYLOAD, Kind
from .settings import GROUP_METHODS, GROUPS, MINIMUM_CHARGE

_EMPTY: Final = memoryview(b"")
_FEW: Final = 64


class Message:
    """Head and body, and how much of them has left. The body may not change before it is gone."""

    def __init__(self, kind: Kind, number: int, call: int, head: bytes, body: Buffer) -> None:
        self.kind: Kind = kind
        self.number = number
        self.call = call
        self.head = head
        self.body = _EMPTY if len(body) == 0 else memoryview(body).cast("B")
        self.head_size = len(head)
        self.body_size = len(self.body)
        self.size = self.head_size + self.body_size
        self.gone = 0  # bytes
        self.begun = False
        self.group = 0  # of the call, or of the call that it answers

    @property
    def is_request(self) -> bool:
        return self.kind is Kind.CALL or self.kind is Kind.NOTICE

    @property
    def over(self) -> bool:
        """Whether all of it has left."""
        return self.begun and self.gone == self.size

    def take(self) -> tuple[Buffer, Buffer]:
        """The payload of the next frame, in two parts."""
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
        """Lets go of its memory: it is done with."""
        self.head = b""
        self.body = _EMPTY
        self.gone = self.size = self.head_size = self.body_size = 0
        self.begun = True


class Call(Message):
    """A request, from being made until it is answered. A notice is one that nobody waits for."""

    def __init__(self, kind: Kind, number: int, head: bytes, body: Buffer) -> None:
        super().__init__(kind, number, 0, head, body)
        self.group = number // GROUP_METHODS
        self.cost = self.size + MINIMUM_CHARGE
        self.charged = 0  # bytes of the other end's window
        self.waiter: object = None  # the owner's
        self.wanted = True  # somebody waits for the answer; for a notice, that it be sent


def charge_of(size: int, window: int) -> int:
    """What a request of `size` bytes takes of a window while it is being handled.

    At most three quarters of it, so that a request of any size gets its turn, and gets it also while
    credit of up to a quarter, for notices, has not been given back.
    """
    return min(size + MINIMUM_CHARGE, window - window // 4)


class CallQueue:
    """The calls to one host that wait to be sent. It outlives connections."""

    def __init__(self) -> None:
        self.lanes: list[deque[Call]] = [deque() for _ in range(GROUPS)]
        self.bytes = 0
        self.calls = 0
        self._forgotten = 0  # still in their lanes

    def add(self, call: Call) -> None:
        self.lanes[call.group].append(call)
        self.bytes += call.cost
        self.calls += 1

    def first(self, group: int) -> Call | None:
        """The next call of a group, past those that nobody wants any more."""
        lane = self.lanes[group]
        while lane:
            if lane[0].wanted:
                return lane[0]
            lane.popleft()
            self._forgotten -= 1
        return None

    def pop(self, group: int) -> Call:
        """Takes the next call of a group, which `first` has shown."""
        call = self.lanes[group].popleft()
        self.bytes -= call.cost
        self.calls -= 1
        return call

    def forget(self, call: Call) -> None:
        """Nobody wants a call that waits. It leaves its lane when its turn comes, or with many others."""
        call.wanted = False
        call.drop()
        self.bytes -= call.cost
        self.calls -= 1
        self._forgotten += 1
        if self._forgotten > self.calls + _FEW:
            self._sweep()

    def clear(self) -> list[Call]:
        """Takes all that wait, in order within each group."""
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
    """One group's turn in the ring: requests that leave one after the other, as far as credit goes."""

    def __init__(self, group: int, credit: int) -> None:
        self.group = group
        self.credit = credit  # bytes of the other end's window
        self.current: Call | None = None  # has begun to leave
        self.in_ring = False


class Ring:
    """Whose turn it is to send a frame: a lane's, or an answer's."""

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
        """An answer of `size` bytes has left whole, or was dropped."""
        self.answer_bytes -= size + MINIMUM_CHARGE

    def next(self) -> Lane | Message:
        return self._turns.popleft()

    def again(self, turn: Lane | Message) -> None:
        """It has more to send: to the end of the ring."""
        self._turns.append(turn)
