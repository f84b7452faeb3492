"""The contents of queues: runs of similar messages that arrived together, and parts of runs.

A run's `data` is the concatenation of its messages, each

    size of its properties (uint32) | size of its body (uint32) | properties | body

where the properties are opaque here, in the format of the face that received them (`format`). A single
message is a run of one. A queue's entry is a `Part` of a run: a thousand small messages that came in one
chunk are one entry, one place in the store and one range of delivery tags, until a consumer takes fewer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from treecast.middleware.model.errors import Fault, TreecastError

from .deaths import Death

HEAD: Final = 8  # bytes before a message's properties
_FIXED: Final = struct.Struct(">BBhqII")  # format, flags, priority, expiration, messages, bytes of bodies
_DEATH: Final = struct.Struct(">QqIB")  # time, expiration, count, flags
_NO_MORE: Final = bytes(6)  # no copies, hidden copies and deaths: three empty lists
_PERSISTENT: Final = 1
_FIRST: Final = 1


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

    def singles(self) -> list[Run]:
        """Returns the messages as runs of one."""
        found = []
        for properties, body in messages(self.data):
            one = Run(self.exchange, self.key, message(properties, body), 1, len(body), self.persistent)
            one.priority, one.expiration = self.priority, self.expiration
            one.copies, one.hidden_copies, one.deaths = self.copies, self.hidden_copies, self.deaths
            one.format, one.lane = self.format, self.lane
            found.append(one)
        return found

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


# --- the encoding of runs on disk and between hosts; decoding checks all lengths against the available bytes


def encode_run(run: Run) -> bytes:
    """Returns the run without its place and lane, in the layout that `block_store` shows."""
    parts = [
        _FIXED.pack(
            run.format,
            _PERSISTENT if run.persistent else 0,
            run.priority,
            run.expiration,
            run.count,
            run.size,
        ),
        _named(run.exchange),
        _named(run.key),
    ]
    if run.copies or run.hidden_copies or run.deaths:
        parts += [_listed(run.copies), _listed(run.hidden_copies), len(run.deaths).to_bytes(2, "big")]
        parts += [_encode_death(death) for death in run.deaths]
    else:
        parts.append(_NO_MORE)
    parts.append(run.data)
    return b"".join(parts)


def _encode_death(death: Death) -> bytes:
    fixed = _DEATH.pack(death.time, death.expiration, death.count, _FIRST if death.first else 0)
    names = _named(death.queue) + _named(death.reason.encode()) + _named(death.exchange)
    return fixed + names + _listed(death.keys)


def _named(name: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name


def _listed(names: Sequence[bytes]) -> bytes:
    return len(names).to_bytes(2, "big") + b"".join([_named(name) for name in names])


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def count(self) -> int:
        self.at += 2
        return int.from_bytes(self.data[self.at - 2 : self.at], "big")

    def name(self) -> bytes:
        size = self.count()
        self.at += size
        return self.data[self.at - size : self.at]

    def names(self) -> tuple[bytes, ...]:
        return tuple([self.name() for _ in range(self.count())])

    def death(self) -> Death:
        time, expiration, count, flags = _DEATH.unpack_from(self.data, self.at)
        self.at += _DEATH.size
        queue, reason, exchange = self.name(), self.name().decode(), self.name()
        first = flags & _FIRST != 0
        return Death(queue, reason, exchange, self.names(), time, expiration, count, first)


def decode_run(data: bytes) -> Run:
    """Returns the decoded run. Raises STORAGE if the bytes were not written by `encode_run`."""
    try:
        return _decode(data)
    except (struct.error, UnicodeDecodeError) as error:
        raise TreecastError(Fault.STORAGE, f"a stored run cannot be read: {error}") from error


def received_run(data: bytes) -> Run:
    """Returns a run that another host has sent. Raises STORAGE if its messages are not as it says."""
    run = decode_run(data)
    at = bodies = count = 0
    end = len(run.data)
    while at + HEAD <= end:
        properties = int.from_bytes(run.data[at : at + 4], "big")
        body = int.from_bytes(run.data[at + 4 : at + HEAD], "big")
        at += HEAD + properties + body
        bodies += body
        count += 1
    if at != end or bodies != run.size or count != run.count or count == 0:
        raise TreecastError(Fault.STORAGE, f"a run of {run.count} messages does not hold them")
    return run


def _decode(data: bytes) -> Run:
    format, flags, priority, expiration, count, size = _FIXED.unpack_from(data, 0)
    reader = _Reader(data, _FIXED.size)
    exchange, key = reader.name(), reader.name()
    copies: tuple[bytes, ...] = ()
    hidden: tuple[bytes, ...] = ()
    deaths: tuple[Death, ...] = ()
    if data.startswith(_NO_MORE, reader.at):
        reader.at += len(_NO_MORE)
    else:
        copies, hidden = reader.names(), reader.names()
        deaths = tuple([reader.death() for _ in range(reader.count())])
    persistent = flags & _PERSISTENT != 0
    body = data[reader.at :]
    run = Run(exchange, key, body, count, size, persistent, priority, expiration, copies, hidden, deaths)
    run.format = format
    return run
