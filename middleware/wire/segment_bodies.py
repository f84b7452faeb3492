"""The payloads of segments that are no part of a message. All numbers are big-endian.

    nak        round trip uint32 (microseconds, 0 unknown), count uint16,
               count x (first uint64, end uint64, part uint16, parts uint16)
    heartbeat  end uint64, oldest uint64, echo uint64, every uint32 (bytes), again uint64,
               holder uint32
    report     mode uint8 (bit 7: no echo requested, bit 6: rests), first uint64, next uint64,
               room uint32 (bytes), stamp uint64 (microseconds),
               newest uint64, parts uint32, age uint32 (microseconds), held uint64,
               near uint32, near bytes uint64, shared uint32,
               live, repaired, replayed, filtered uint64,
               count uint8, count x (reason uint8, records uint64)    expired
               count uint8, count x (reason uint8, records uint64)    refused
    skip       count uint16, count x (first uint64, end uint64, reason uint8)
    announce   first uint64, end uint64, count uint16, count x (host uint32), length uint16, name (UTF-8)
    close      end uint64
    probe      state uint32, nonce uint64
    beat       run uint64, stamp uint64 (microseconds), served uint64, received uint64, wants uint8

A range is [first, end). A body has to fill its payload, and each number has to lie in its range; otherwise
SegmentError(BODY) is raised. What was decoded is therefore safe to calculate with.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar
from zlib import crc32

from msgspec import Struct

from .segment import MAX_SEGMENTS, SegmentError, SegmentFault
from .stare import LAST_STATE

MAX_GAPS: Final = 48  # per nak: below 1,100 bytes with headers and tag, so that it is never fragmented
MAX_SKIPS: Final = 60
MAX_MEMBERS: Final = 200  # per announcement, which may omit members
MAX_NAME: Final = 255  # bytes
NOWHERE: Final = 2**64 - 1

_NAK: Final = struct.Struct(">IH")
_GAP: Final = struct.Struct(">QQHH")
_HEARTBEAT: Final = struct.Struct(">QQQIQI")
_REPORT: Final = struct.Struct(">BQQIQQIIQIQIQQQQ")
_REASON: Final = struct.Struct(">BQ")
_NO_ECHO: Final = 0x80
_RESTS: Final = 0x40
_COUNT: Final = struct.Struct(">H")
_SKIP: Final = struct.Struct(">QQB")
_ANNOUNCE: Final = struct.Struct(">QQH")
_HOST: Final = struct.Struct(">I")
_CLOSE: Final = struct.Struct(">Q")
_PROBE: Final = struct.Struct(">IQ")
_BEAT: Final = struct.Struct(">QQQQB")


class Expiry(enum.IntEnum):
    """Why records are no longer delivered."""

    SIZE = 1  # the origin's log was trimmed at its bound of bytes
    AGE = 2  # the origin's log was trimmed at its bound of age
    TIME_TO_LIVE = 3  # of the message itself
    ORIGIN_GONE = 4  # no remaining host holds them
    LEFT = 5  # the host was removed from the receivers
    FORGOTTEN = 6  # the host joined again without knowing its position
    COMPACTED = 7  # later records with the same keys replaced them in the origin's log
    UNSENDABLE = 8  # the message is too large to be cut into segments of the origin's path
    FILTERED = 9  # no filter of the host passes them: they count as filtered, not as expired


class Rejection(enum.IntEnum):
    """Why a receiving host refuses records that arrived."""

    INVALID = 1  # not a valid record batch
    OVERSIZED = 2  # larger than the host allows
    UNKNOWN = 3  # the host does not know their topic
    STORAGE = 4  # the disk cannot store them


class Mode(enum.IntEnum):
    """The receiver's mode in a report."""

    LIVE = 1
    CATCHING_UP = 2
    DONE = 3  # a closed stream is settled to its end


class Gap(Struct, frozen=True):
    """Missing records. With `parts`, only that many segments of one message, from number `part` on."""

    first: int
    end: int
    part: int = 0
    parts: int = 0


class Nak(Struct, frozen=True):
    gaps: tuple[Gap, ...]
    round_trip: int = 0  # microseconds, as measured by the receiver

    def encode(self) -> bytes:
        if len(self.gaps) > MAX_GAPS:
            raise ValueError(f"a nak of {len(self.gaps)} gaps: at most {MAX_GAPS}")
        gaps = (_GAP.pack(gap.first, gap.end, gap.part, gap.parts) for gap in self.gaps)
        return b"".join((_NAK.pack(min(self.round_trip, 0xFFFF_FFFF), len(self.gaps)), *gaps))

    @classmethod
    def decode(cls, data: bytes) -> Nak:
        round_trip, count = _read(_NAK, data, 0)
        _fills(data, _NAK.size + count * _GAP.size, count <= MAX_GAPS)
        gaps = tuple(Gap(*_GAP.unpack_from(data, _NAK.size + _GAP.size * at)) for at in range(count))
        if any(gap.first >= gap.end for gap in gaps):
            raise SegmentError(SegmentFault.BODY, "an empty gap")
        if any(gap.part + gap.parts > MAX_SEGMENTS or (gap.part and not gap.parts) for gap in gaps):
            raise SegmentError(SegmentFault.BODY, "parts that no message has")
        return cls(gaps, round_trip)


class Heartbeat(Struct, frozen=True):
    """A stream's position. `end`: the next record's sequence; `oldest`: the first that the sender can repair.

    `echo` is the stamp of the report that this answers; it gives the receiver the round trip. `every` asks
    the receiver to report at once whenever that many bytes have arrived; 0 leaves the number to the receiver,
    as a heartbeat to all does. With `every` and neither `echo` nor `again` it is a question, sent to one
    receiver by unicast: it reports at once.
    `again` is the sequence at which a replay restarts; NOWHERE if none does. In that case `holder` is the
    host to ask for everything missing from there on; 0: the origin sends it.

    In an echo, with `again` NOWHERE, `holder` is an offer to rest (`fabric.core.pairs`), if not 0: the
    checksum of what the origin has announced (`Announce.checksum`), then a bit that says whether the receiver
    counts as resting. Earlier versions ignore it.
    """

    end: int
    oldest: int
    echo: int = 0
    every: int = 0
    again: int = NOWHERE
    holder: int = 0

    @property
    def is_shared(self) -> bool:
        """Whether it has no address: it was sent to all."""
        return not self.echo and not self.every and self.again == NOWHERE

    @property
    def offer(self) -> int:
        """The offer to rest; 0: none."""
        return self.holder if self.echo and self.again == NOWHERE else 0

    @property
    def is_question(self) -> bool:
        """Whether it asks one receiver for a report."""
        return bool(self.every) and not self.echo and self.again == NOWHERE

    def encode(self) -> bytes:
        return _HEARTBEAT.pack(self.end, self.oldest, self.echo, self.every, self.again, self.holder)

    @classmethod
    def decode(cls, data: bytes) -> Heartbeat:
        end, oldest, echo, every, again, holder = _read(_HEARTBEAT, data, 0)
        _fills(data, _HEARTBEAT.size, oldest <= end)
        return cls(end, oldest, echo, every, again, holder)


class Totals(Struct, frozen=True):
    """The outcomes of a receiver's records, counted from its first."""

    live: int = 0
    repaired: int = 0
    replayed: int = 0
    filtered: int = 0
    expired: Mapping[Expiry, int] = MappingProxyType({})
    refused: Mapping[Rejection, int] = MappingProxyType({})

    @property
    def delivered(self) -> int:
        return self.live + self.repaired + self.replayed

    @property
    def settled(self) -> int:
        """The number of all settled records."""
        lost = sum(self.expired.values()) + sum(self.refused.values())
        return self.delivered + self.filtered + lost


class Report(Struct, frozen=True):
    """A receiver's report: the records in [first, next) are settled; `totals` counts them by outcome.

    `room` is the number of bytes that the receiver can take beyond them. `stamp` is the receiver's clock in
    microseconds; with `echo` the origin sends it back.

    `newest` and `parts` give the farthest arrival, whatever is missing before it: the message at sequence
    `newest`, with `parts` of its segments counted from the first (the forward acknowledgement of Mathis and
    Mahdavi, FACK). Everything that the origin sent before it is no longer in flight. `age` is the number of
    microseconds from its arrival to this report.

    `held` is the first record that the receiver can send to others; NOWHERE if it keeps none. `near` is the
    number of whole messages that it has requested from nearer hosts instead of the origin, and `near_bytes`
    the size of all such requests: losses that the origin does not see otherwise.

    `shared` counts the segments sent to all that have arrived, modulo 2^32: data of any first copy, and
    heartbeats without an address. The origin compares it with what it has sent by a carrier.

    `rests` takes up an offer: if the origin's echo accepts, this is the last report until something changes.
    """

    mode: Mode
    first: int = 0
    next: int = 0
    room: int = 0
    stamp: int = 0
    totals: Totals = Totals()
    newest: int = 0
    parts: int = 0
    age: int = 0
    echo: bool = True
    held: int = NOWHERE
    near: int = 0
    near_bytes: int = 0
    shared: int = 0
    rests: bool = False

    def encode(self) -> bytes:
        totals = self.totals
        fixed = _REPORT.pack(
            self.mode | (0 if self.echo else _NO_ECHO) | (_RESTS if self.rests else 0),
            self.first,
            self.next,
            min(self.room, 0xFFFF_FFFF),
            self.stamp,
            self.newest,
            self.parts,
            min(self.age, 0xFFFF_FFFF),
            self.held,
            self.near & 0xFFFF_FFFF,
            self.near_bytes,
            self.shared & 0xFFFF_FFFF,
            totals.live,
            totals.repaired,
            totals.replayed,
            totals.filtered,
        )
        return fixed + _encode_reasons(totals.expired) + _encode_reasons(totals.refused)

    @classmethod
    def decode(cls, data: bytes) -> Report:
        mode, first, following, room, stamp, newest, parts, age, held, *rest = _read(_REPORT, data, 0)
        expired, position = _decode_reasons(Expiry, data, _REPORT.size)
        refused, position = _decode_reasons(Rejection, data, position)
        near, near_bytes, shared, live, repaired, replayed, filtered = rest
        totals = Totals(live, repaired, replayed, filtered, expired, refused)
        _fills(data, position, first <= following and totals.settled == following - first)
        if parts > MAX_SEGMENTS:
            raise SegmentError(SegmentFault.BODY, "more parts than a message has")
        echo = not mode & _NO_ECHO
        which = _member(Mode, mode & ~(_NO_ECHO | _RESTS))
        place = which, first, following, room, stamp, totals, newest, parts, age, echo
        return cls(*place, held, near, near_bytes, shared, bool(mode & _RESTS))


class Skipped(Struct, frozen=True):
    """Records that will no longer come."""

    first: int
    end: int
    reason: Expiry


class Skip(Struct, frozen=True):
    ranges: tuple[Skipped, ...]

    def encode(self) -> bytes:
        if len(self.ranges) > MAX_SKIPS:
            raise ValueError(f"a skip of {len(self.ranges)} ranges: at most {MAX_SKIPS}")
        ranges = (_SKIP.pack(one.first, one.end, one.reason) for one in self.ranges)
        return b"".join((_COUNT.pack(len(self.ranges)), *ranges))

    @classmethod
    def decode(cls, data: bytes) -> Skip:
        (count,) = _read(_COUNT, data, 0)
        _fills(data, _COUNT.size + count * _SKIP.size, count <= MAX_SKIPS)
        ranges = []
        for at in range(count):
            first, end, reason = _SKIP.unpack_from(data, _COUNT.size + _SKIP.size * at)
            if first >= end:
                raise SegmentError(SegmentFault.BODY, "an empty range")
            ranges.append(Skipped(first, end, _member(Expiry, reason)))
        return cls(tuple(ranges))


class Announce(Struct, frozen=True):
    """An announcement. `first`: where the addressed host begins; `end`: the stream's position.

    `members` are hosts that receive the stream and may repair it if the origin is gone. `name` says what the
    stream carries, in the relay's terms.
    """

    first: int
    end: int
    members: tuple[int, ...] = ()
    name: str = ""

    @property
    def checksum(self) -> int:
        """A checksum of name and members, 31 bits and never 0."""
        members = b"".join([_HOST.pack(host) for host in self.members])
        return crc32(self.name.encode(), crc32(members)) >> 1 or 1

    def encode(self) -> bytes:
        name = self.name.encode()
        if len(self.members) > MAX_MEMBERS or len(name) > MAX_NAME:
            raise ValueError(f"at most {MAX_MEMBERS} members, and {MAX_NAME} bytes of name")
        members = (_HOST.pack(host) for host in self.members)
        fixed = _ANNOUNCE.pack(self.first, self.end, len(self.members))
        return b"".join((fixed, *members, _COUNT.pack(len(name)), name))

    @classmethod
    def decode(cls, data: bytes) -> Announce:
        first, end, count = _read(_ANNOUNCE, data, 0)
        at = _ANNOUNCE.size + count * _HOST.size
        (length,) = _read(_COUNT, data, at)
        _fills(data, at + 2 + length, first <= end and count <= MAX_MEMBERS and length <= MAX_NAME)
        members = tuple(host for (host,) in _HOST.iter_unpack(data[_ANNOUNCE.size : at]))
        try:
            return cls(first, end, members, data[at + 2 :].decode())
        except UnicodeDecodeError:
            raise SegmentError(SegmentFault.BODY, "a name that is not UTF-8") from None


class Close(Struct, frozen=True):
    """The end of a stream: no record has sequence `end` or a higher one."""

    end: int

    def encode(self) -> bytes:
        return _CLOSE.pack(self.end)

    @classmethod
    def decode(cls, data: bytes) -> Close:
        (end,) = _read(_CLOSE, data, 0)
        _fills(data, _CLOSE.size, True)
        return cls(end)


class Probe(Struct, frozen=True):
    """A probe sent to the group of `state`, a state id of 22 bits; 0: by a carrier without groups.

    Its receivers answer with `nonce` by another path.
    """

    state: int
    nonce: int

    def encode(self) -> bytes:
        return _PROBE.pack(self.state, self.nonce)

    @classmethod
    def decode(cls, data: bytes) -> Probe:
        state, nonce = _read(_PROBE, data, 0)
        _fills(data, _PROBE.size, state <= LAST_STATE)
        return cls(state, nonce)


class Beat(Struct, frozen=True):
    """A sign of life for all streams that rest between two hosts (`fabric.core.pairs`).

    `run` differs between runs of the sender, and `stamp` rises within one. `served` and `received` are the
    digests of the streams that it serves to the addressed host, and receives from it. `wants` asks for beats
    in return.
    """

    run: int
    stamp: int
    served: int
    received: int
    wants: bool

    def encode(self) -> bytes:
        return _BEAT.pack(self.run, self.stamp, self.served, self.received, self.wants)

    @classmethod
    def decode(cls, data: bytes) -> Beat:
        run, stamp, served, received, wants = _read(_BEAT, data, 0)
        _fills(data, _BEAT.size, wants <= 1)
        return cls(run, stamp, served, received, bool(wants))


_Reason = TypeVar("_Reason", Expiry, Rejection, Mode)


def _member(kind: type[_Reason], number: int) -> _Reason:
    try:
        return kind(number)
    except ValueError:
        raise SegmentError(SegmentFault.BODY, f"{number} is no {kind.__name__}") from None


def _encode_reasons(counts: Mapping[Expiry, int] | Mapping[Rejection, int]) -> bytes:
    pairs = sorted((int(reason), count) for reason, count in counts.items())
    return b"".join((bytes([len(pairs)]), *(_REASON.pack(*pair) for pair in pairs)))


def _decode_reasons(kind: type[_Reason], data: bytes, position: int) -> tuple[Mapping[_Reason, int], int]:
    if position >= len(data) or position + 1 + data[position] * _REASON.size > len(data):
        raise SegmentError(SegmentFault.BODY, "the body ends inside its counts")
    counts: dict[_Reason, int] = {}
    for at in range(data[position]):
        number, count = _REASON.unpack_from(data, position + 1 + at * _REASON.size)
        counts[_member(kind, number)] = count
    if len(counts) != data[position]:
        raise SegmentError(SegmentFault.BODY, "a reason stands twice")
    return MappingProxyType(counts), position + 1 + data[position] * _REASON.size


def _read(layout: struct.Struct, data: bytes, position: int) -> tuple[int, ...]:
    if position + layout.size > len(data):
        raise SegmentError(SegmentFault.BODY, "the body ends too early")
    return layout.unpack_from(data, position)


def _fills(data: bytes, size: int, sound: bool) -> None:
    if size != len(data) or not sound:
        raise SegmentError(SegmentFault.BODY)
