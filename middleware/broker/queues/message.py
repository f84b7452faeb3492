"""The contents of queues: runs of similar messages that arrived together, and parts of runs.

A run's `data` is the concatenation of its messages, each

    size of its properties (uint32) | size of its body (uint32) | properties | body

where the properties are opaque here, in the format of the face that received them (`format`). A single
message is a run of one. A queue's entry is a `Part` of a run: a thousand small messages that came in one
chunk are one entry, one place in the store and one range of delivery tags, until a consumer takes fewer.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from .deaths import Death

HEAD: Final = 8  # bytes before a message's properties


class Run:
    """Messages that were published together with one exchange and key, and agree in all fields here.

    `priority` and `expiration`, in milliseconds, are -1 if the publisher gave none. `size`: bytes of all
    bodies. `copies` and `hidden_copies` are further routing keys; the latter are not shown to consumers.
    `deaths`: where and why the messages were dead-lettered, latest first. `place`: the place in the store,
    0: none. `lane`: the channel that published them; messages of one stay in order in other faces' topics.
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
        self.lane = b""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All routing keys."""
        if not self.copies and not self.hidden_copies:
            return (self.key,)
        return (self.key, *self.copies, *self.hidden_copies)

    def dead(self, part: Part, deaths: tuple[Death, ...]) -> Run:
        """Returns the messages of `part` as a run without expiration and with the given deaths."""
        found = Run(
            self.exchange, self.key, part.data(), part.count, part.size, self.persistent, self.priority
        )
        found.copies = self.copies
        found.hidden_copies = self.hidden_copies
        found.deaths = deaths
        found.format = self.format
        return found


class Part:
    """Consecutive messages of a run, as one queue holds them.

    `begin` and `end` are positions in the run's data; `size` is bytes of bodies. `position` orders the
    messages of a queue: it is the first message's, and each further one has the next. `deliveries`: the
    number of failed deliveries. `expires_at` is on the clock of `now`. `durable`: the part outlives the
    process. `run` is None while only the store has it, at `place`.
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
        """Removes the first `count` messages and returns them as a new part. If that is all of them, this
        part is left empty."""
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
        """Returns `count` messages from index `offset` on as a new part. This part is unchanged."""
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
        """Returns the messages, in the layout above."""
        run = self.run
        assert run is not None
        if self.begin == 0 and self.end == len(run.data):
            return run.data
        return run.data[self.begin : self.end]


def skip(data: bytes, at: i64, count: i64) -> tuple[int, int]:
    """Skips `count` messages from `at` on. Returns (where the next begins, bytes of the skipped bodies)."""
    bodies: i64 = 0
    while count > 0:
        properties = i64(read_i32_be(data, at))
        body = i64(read_i32_be(data, at + 4))
        at += HEAD + properties + body
        bodies += body
        count -= 1
    return at, bodies


def messages(data: bytes) -> list[tuple[bytes, bytes]]:
    """Returns (properties, body) of each message in `data`."""
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
    """Returns one message in the layout of a run's data."""
    return len(properties).to_bytes(4, "big") + len(body).to_bytes(4, "big") + properties + body
