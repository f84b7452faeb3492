"""What queues hold: runs of messages that came together and are alike, and parts of them.

A run's `data` is its messages one after the other, each

    size of its properties (uint32) | size of its body (uint32) | properties | body

where the properties are opaque here, in the spelling of the face that took them in (`format`). One message
by itself is a run of one. A queue's entry is a `Part` of a run: so a thousand small messages that came in
one chunk are one entry, one place in the store and one range of delivery tags, until somebody wants less.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from .deaths import Death

NEVER: Final = float("inf")
HEAD: Final = 8  # bytes before a message's properties


class Run:
    """Messages that were published together with one exchange and key, and alike in all that is said here.

    `priority` and `expiration`, in milliseconds, are -1 where the publisher gave none. `size`: bytes of all
    bodies. `copies` and `hidden_copies` are further routing keys; the latter nobody is shown. `deaths`: where
    and why they were dead-lettered, latest first. `place`: where the store has them, 0: nowhere.
    """

    def __init__(
        self,
        exchange: bytes,
        key: bytes,
        data: bytes,
        count: int,
        size: int,
        persistent: bool = False,
        priority: int = -1,
        expiration: int = -1,
        copies: tuple[bytes, ...] = (),
        hidden_copies: tuple[bytes, ...] = (),
        deaths: tuple[Death, ...] = (),
    ) -> None:
        self.exchange = exchange
        self.key = key
        self.data = data
        self.count = count
        self.size = size
        self.persistent = persistent
        self.priority = priority
        self.expiration = expiration
        self.copies = copies
        self.hidden_copies = hidden_copies
        self.deaths = deaths
        self.place = 0
        self.format = 0

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys that it is routed by."""
        if not self.copies and not self.hidden_copies:
            return (self.key,)
        return (self.key, *self.copies, *self.hidden_copies)

    def dead(self, part: Part, deaths: tuple[Death, ...]) -> Run:
        """The messages that `part` has of it, without their expiration and with the given deaths."""
        found = Run(
            self.exchange, self.key, part.data(), part.count, part.size, self.persistent, self.priority
        )
        found.copies = self.copies
        found.hidden_copies = self.hidden_copies
        found.deaths = deaths
        found.format = self.format
        return found


class Part:
    """Some messages of a run, in a row, as one queue holds them.

    `begin` and `end` are places in the run's data; `size` is bytes of bodies. `position` orders the
    messages of a queue: the first has it, each further one the next. `deliveries`: how often delivering
    them has failed. `expires_at` is on the clock of whoever says `now`. `durable`: it outlives the process.
    `run` is None while only the store has it, at `place`.
    """

    def __init__(
        self,
        run: Run | None,
        place: int,
        begin: int,
        end: int,
        count: int,
        size: int,
        position: int,
        expires_at: float,
        priority: int,
        deliveries: int = 0,
        redelivered: bool = False,
        durable: bool = False,
    ) -> None:
        self.run = run
        self.place = place
        self.begin = begin
        self.end = end
        self.count = count
        self.size = size
        self.position = position
        self.expires_at = expires_at
        self.priority = priority
        self.deliveries = deliveries
        self.redelivered = redelivered
        self.durable = durable

    def cut(self, count: int) -> Part:
        """Takes away its first `count` messages; of all of them it is a copy that is left without any."""
        run = self.run
        assert run is not None
        if count >= self.count:
            end, size, count = self.end, self.size, self.count
        else:
            end, size = skip(run.data, self.begin, count)
        found = Part(
            run,
            self.place,
            self.begin,
            end,
            count,
            size,
            self.position,
            self.expires_at,
            self.priority,
            self.deliveries,
            self.redelivered,
            self.durable,
        )
        self.begin = end
        self.count -= count
        self.size -= size
        self.position += count
        return found

    def section(self, offset: int, count: int) -> Part:
        """A copy that has `count` of its messages from number `offset` on. It is left as it is."""
        run = self.run
        assert run is not None
        begin = skip(run.data, self.begin, offset)[0]
        end, size = skip(run.data, begin, count)
        return Part(
            run,
            self.place,
            begin,
            end,
            count,
            size,
            self.position + offset,
            self.expires_at,
            self.priority,
            self.deliveries,
            self.redelivered,
            self.durable,
        )

    def data(self) -> bytes:
        """Its messages, in the layout above."""
        run = self.run
        assert run is not None
        if self.begin == 0 and self.end == len(run.data):
            return run.data
        return run.data[self.begin : self.end]


def skip(data: bytes, at: i64, count: i64) -> tuple[int, int]:
    """Steps over `count` messages that begin at `at`: (where the next begins, bytes of their bodies)."""
    bodies: i64 = 0
    while count > 0:
        properties = i64(read_i32_be(data, at))
        body = i64(read_i32_be(data, at + 4))
        at += HEAD + properties + body
        bodies += body
        count -= 1
    return at, bodies


def messages(data: bytes) -> list[tuple[bytes, bytes]]:
    """(properties, body) of each message in `data`."""
    found = []
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        properties = i64(read_i32_be(data, at))
        body = i64(read_i32_be(data, at + 4))
        middle = at + HEAD + properties
        found.append((data[at + HEAD : middle], data[middle : middle + body]))
        at = middle + body
    return found


def message(properties: bytes, body: bytes) -> bytes:
    """One message in that layout."""
    return len(properties).to_bytes(4, "big") + len(body).to_bytes(4, "big") + properties + body
