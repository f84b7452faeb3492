"""One budget for the bytes of unfinished requests, over all listeners of a process. Pure.

Kafka's `queued.max.request.bytes` is the model. Here no client can use it up for the others:

| when | what happens |
| --- | --- |
| a request grows within the budget | it is read on |
| the budget is used up | a request within its fair share is read on, larger ones pause; the first goes on |
| even so it grows to `hard` | the largest request is dropped with its connection, the first excepted |
| the budget is used up, and one above its share gets less than `LEAST` bytes in `STALL` s | it is dropped |
| a request gets less than `FEW` bytes in `PATIENCE` s | it is dropped |

The fair share is the budget over the number of unfinished requests. The first is the one that began earliest:
as it is never paused, requests that are too large for two at a time end one after the other. So no more than
`hard`, the largest request and one read are held at once.
"""

from __future__ import annotations

from typing import Final, Protocol

MOST: Final = 128 << 20  # bytes: room for the largest request of Kafka and small ones beside it
STALL: Final = 3.0  # seconds
PATIENCE: Final = 60.0  # seconds
LEAST: Final = 64 << 10  # bytes
FEW: Final = 1 << 10  # bytes: a device on a slow link sends more
_UNMARKED: Final = -1.0


class Holder(Protocol):
    """A connection with an unfinished request."""

    def wait_for_memory(self, waits: bool) -> None:
        """Stops or continues reading."""

    def abort(self) -> None:
        """Ends the connection."""


class RequestMemory:
    """The budget. `held` is its use in bytes, `most` its size. `dropped` counts requests, `pauses` pauses."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.hard = most + most // 2
        self.held = 0
        self.dropped = 0
        self.pauses = 0
        self._all: dict[Holding, None] = {}  # in the order of their beginnings
        self._paused: dict[Holding, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def short(self) -> bool:
        """Whether some request waits for memory."""
        return bool(self._paused)

    @property
    def share(self) -> int:
        """The fair share of one request."""
        return self.most // max(len(self._all), 1)

    def tick(self, now: float) -> None:
        """Drops the requests that do not get on. Called about once a second."""
        short, share = self.short, self.share
        for one in list(self._all):
            hurries = short and one.size > share
            if one.stalled(now, STALL, LEAST) if hurries else one.stalled(now, PATIENCE, FEW):
                self._drop(one)
        self.let_on()

    # --- called by holdings

    def fits(self, one: Holding, size: int) -> bool:
        """Whether a request may grow to `size` bytes now. Drops larger ones for it if it must."""
        if one not in self._all:
            self._all[one] = None
        growth = size - one.size
        if self.held + growth > self.most and size > self.share and one is not next(iter(self._all)):
            return False
        while self.held + growth > self.hard:
            largest = self._largest(one)
            if largest is None or largest.size < size:
                break
            self._drop(largest)
        return True

    def grown(self, growth: int) -> None:
        self.held += growth
        if growth < 0:
            self.let_on()

    def pause(self, one: Holding) -> None:
        self.pauses += 1
        self._paused[one] = None

    def ended(self, one: Holding) -> None:
        """Takes out a request that is complete, or whose connection has gone."""
        self._all.pop(one, None)
        self._paused.pop(one, None)
        self.held -= one.size
        self.let_on()

    # ---

    def _largest(self, besides: Holding) -> Holding | None:
        """Returns the largest request but the first and `besides`."""
        first = next(iter(self._all))
        others = [one for one in self._all if one is not first and one is not besides]
        return max(others, key=_size_of, default=None)

    def _drop(self, one: Holding) -> None:
        self.dropped += 1
        one.dropped()

    def let_on(self) -> None:
        """Continues the paused requests that may grow now."""
        if not self._paused:
            return
        for one in list(self._paused):
            if one in self._paused and self.fits(one, one.wanted):
                del self._paused[one]
                self.held += one.wanted - one.size
                one.size = one.wanted
                one.resumed()


class Holding:
    """The bytes of one connection's unfinished request. `wanted`: what it has to grow to while it pauses."""

    __slots__ = ("_got", "_holder", "_marked", "_memory", "paused", "size", "wanted")

    def __init__(self, memory: RequestMemory, holder: Holder) -> None:
        self.size = 0
        self.wanted = 0
        self.paused = False
        self._memory = memory
        self._holder: Holder | None = holder
        self._got = 0
        self._marked = 0.0

    def hold(self, size: int, got: int, now: float) -> bool:
        """Takes note that the request needs `size` bytes of memory to be read on, and has got `got` more at
        `now` seconds. Returns whether it may; if not, the holder is told when it may.

        0: it is complete.
        """
        if size == 0:
            if self.size or self.paused:
                self.release()
            return True
        if self.size == 0:
            self._got, self._marked = 0, now
        self._got += got
        if size > self.size:
            if self._holder is None:
                return False
            if not self._memory.fits(self, size):
                self._pause(size)
                return False
        self._memory.grown(size - self.size)
        self.size = size
        return True

    def release(self) -> None:
        """Gives everything back: the request is complete, or its connection has gone."""
        self._memory.ended(self)
        self.size = 0
        if self.paused:
            self.resumed()

    def move(self, memory: RequestMemory) -> None:
        """Gives everything back, and counts in another budget from now on: the client has logged in."""
        self.release()
        self._memory = memory

    def left(self) -> None:
        """The connection has gone."""
        self._holder = None
        self._memory.ended(self)
        self.size = 0
        self.paused = False

    def _pause(self, size: int) -> None:
        self.wanted = size
        if not self.paused:
            self.paused = True
            self._memory.pause(self)
            if self._holder is not None:
                self._holder.wait_for_memory(True)

    # --- called by the budget

    def stalled(self, now: float, seconds: float, least: int) -> bool:
        """Whether the request, though it does not pause, has got less than `least` bytes in so many
        seconds.
        """
        if self.paused or self._marked == _UNMARKED:
            self._got, self._marked = 0, now
        if now - self._marked < seconds:
            return False
        few = self._got < least
        self._got, self._marked = 0, now
        return few

    def resumed(self) -> None:
        self.paused = False
        self._marked = _UNMARKED
        if self._holder is not None:
            self._holder.wait_for_memory(False)

    def dropped(self) -> None:
        """Ends the connection, whose memory counts as free at once."""
        holder = self._holder
        self.left()
        if holder is not None:
            holder.abort()


def _size_of(one: Holding) -> int:
    return one.size
