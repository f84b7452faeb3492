"""The signals between STARE's middleware and the replica controller.

A signal is one message between the two hosts; big-endian:

  kind (8) | count (16) | count entries

| kind      | from       | an entry                         | meaning                                      |
| --------- | ---------- | -------------------------------- | -------------------------------------------- |
| WANT      | host       | state (32)                       | the state has subscribers on the host        |
| UNWANT    | both       | state                            | it has none left; the answer is the same     |
| LASTS     | controller | state, VNF (16), first, end (64) | answers WANT: the contents of the backlog    |
| TAIL      | host       | state, VNF, first, end           | the host holds these, published or received  |
| QUERY     | controller | state, VNF, first, end           | these exist; does the host hold them?        |
| REPORT    | host       | state, VNF, first, end, flags (8) | the host has settled these, up to `end`     |
| RECOVER   | both       | state, VNF, first, end           | send these updates                           |
| UPDATE    | both       | state, VNF, number, length, value | one whole update                            |
| GONE      | both       | state, VNF, first, end           | nothing before `first` is available          |
| OPEN      | host       | token (32)                       | a VNF requests an id                         |
| OPENED    | controller | token, VNF, first (64)           | its id; 0 if none is left                    |
| CLOSED    | both       | VNF, end (64)                    | the VNF has ended; the answer is the same    |

`first`, `end` and `number` are whole update numbers (`stare_numbers`) of 64 bits; `end` is the next one. A
length has 32 bits. In LASTS, an entry with VNF 0 means that the state is known and nothing is published. Any
signal may be lost, duplicated or reordered: each is repeated until its purpose is achieved.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from msgspec import Struct

from .stare import LAST_STATE, LAST_VNF

MOST_ENTRIES: Final = 512
LARGEST_VALUE: Final = 1 << 22
_HEAD: Final = struct.Struct(">BH")
_STATE: Final = struct.Struct(">I")
_SPAN: Final = struct.Struct(">IHQQ")
_REPORT: Final = struct.Struct(">IHQQB")
_UPDATE: Final = struct.Struct(">IHQI")
_OPENED: Final = struct.Struct(">IHQ")
_CLOSED: Final = struct.Struct(">HQ")


class SignalKind(enum.IntEnum):
    """The first byte."""

    WANT = 1
    UNWANT = 2
    LASTS = 3
    TAIL = 4
    QUERY = 5
    REPORT = 6
    RECOVER = 7
    UPDATE = 8
    GONE = 9
    OPEN = 10
    OPENED = 11
    CLOSED = 12


class ReportFlag(enum.IntFlag):
    """The host's role for the (state, VNF) pair."""

    NOTHING = 0
    SUBSCRIBER = 1
    PUBLISHER = 2


class SignalError(ValueError):
    """Bytes that are not a signal."""


class Span(Struct, frozen=True):
    """Updates of one VNF for one state, from `first` up to but not including `end`."""

    state: int
    vnf: int
    first: int
    end: int
    flags: int = 0  # of a REPORT


class Update(Struct, frozen=True):
    """One whole update."""

    state: int
    vnf: int
    number: int
    value: bytes


class Opened(Struct, frozen=True):
    """A VNF's id, requested with `token`; its updates begin at `first`."""

    token: int
    vnf: int
    first: int


class Closed(Struct, frozen=True):
    """A VNF that has ended; all its update numbers are below `end`."""

    vnf: int
    end: int


class Signal(Struct, frozen=True):
    """One signal. Its kind determines which of the tuples is filled."""

    kind: SignalKind
    numbers: tuple[int, ...] = ()  # states of WANT and UNWANT, tokens of OPEN
    spans: tuple[Span, ...] = ()
    updates: tuple[Update, ...] = ()
    opened: tuple[Opened, ...] = ()
    closed: tuple[Closed, ...] = ()


_NUMBERS: Final = frozenset({SignalKind.WANT, SignalKind.UNWANT, SignalKind.OPEN})
_SPANS: Final = frozenset(
    {SignalKind.LASTS, SignalKind.TAIL, SignalKind.QUERY, SignalKind.RECOVER, SignalKind.GONE}
)


def encode_signal(signal: Signal) -> bytes:
    """Returns the bytes. Raises ValueError for more than 512 entries or one that does not fit."""
    entries = _encode_entries(signal)
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"{len(entries)} entries; a signal has at most {MOST_ENTRIES}")
    return b"".join([_HEAD.pack(signal.kind, len(entries)), *entries])


def _encode_entries(signal: Signal) -> list[bytes]:
    try:
        if signal.kind in _NUMBERS:
            return [_STATE.pack(number) for number in signal.numbers]
        if signal.kind in _SPANS:
            return [_SPAN.pack(span.state, span.vnf, span.first, span.end) for span in signal.spans]
        if signal.kind is SignalKind.REPORT:
            return [_REPORT.pack(s.state, s.vnf, s.first, s.end, s.flags) for s in signal.spans]
        if signal.kind is SignalKind.OPENED:
            return [_OPENED.pack(one.token, one.vnf, one.first) for one in signal.opened]
        if signal.kind is SignalKind.CLOSED:
            return [_CLOSED.pack(one.vnf, one.end) for one in signal.closed]
        return [_UPDATE.pack(u.state, u.vnf, u.number, len(u.value)) + u.value for u in signal.updates]
    except struct.error as error:
        raise ValueError(f"an entry does not fit: {error}") from error


def decode_signal(data: bytes | bytearray | memoryview) -> Signal:
    """Returns the signal that consists of all the bytes. Raises SignalError if they are not one."""
    if len(data) < _HEAD.size:
        raise SignalError("the bytes end before the signal's head does")
    number, count = _HEAD.unpack_from(data)
    try:
        kind = SignalKind(number)
    except ValueError:
        raise SignalError(f"kind {number} is unknown") from None
    if count > MOST_ENTRIES:
        raise SignalError(f"{count} entries; a signal has at most {MOST_ENTRIES}")
    if kind is SignalKind.UPDATE:
        return _decode_updates(data, count)
    return _decode_fixed(kind, data, count)


def _decode_fixed(kind: SignalKind, data: bytes | bytearray | memoryview, count: int) -> Signal:
    layout = _layout(kind)
    if len(data) != _HEAD.size + count * layout.size:
        raise SignalError(f"{len(data)} bytes are not {count} entries of {layout.size}")
    rows = [layout.unpack_from(data, _HEAD.size + n * layout.size) for n in range(count)]
    if kind is SignalKind.OPEN:
        return Signal(kind, numbers=tuple([row[0] for row in rows]))
    if kind in _NUMBERS:
        return Signal(kind, numbers=tuple([_state(row[0]) for row in rows]))
    if kind is SignalKind.OPENED:
        return Signal(kind, opened=tuple([Opened(row[0], _vnf(row[1]), row[2]) for row in rows]))
    if kind is SignalKind.CLOSED:
        return Signal(kind, closed=tuple([Closed(_vnf(row[0]), row[1]) for row in rows]))
    return Signal(kind, spans=tuple([_span(row) for row in rows]))


def _layout(kind: SignalKind) -> struct.Struct:
    if kind in _NUMBERS:
        return _STATE
    if kind in _SPANS:
        return _SPAN
    return {SignalKind.REPORT: _REPORT, SignalKind.OPENED: _OPENED, SignalKind.CLOSED: _CLOSED}[kind]


def _span(row: tuple[int, ...]) -> Span:
    if row[2] > row[3]:
        raise SignalError(f"updates from {row[2]} to {row[3]}")
    return Span(_state(row[0]), _vnf(row[1]), row[2], row[3], row[4] if len(row) > 4 else 0)


def _state(number: int) -> int:
    if number > LAST_STATE:
        raise SignalError(f"state id {number} does not fit 22 bits")
    return number


def _vnf(number: int) -> int:
    if number > LAST_VNF:
        raise SignalError(f"VNF id {number} does not fit 14 bits")
    return number


def _decode_updates(data: bytes | bytearray | memoryview, count: int) -> Signal:
    at, updates = _HEAD.size, []
    for _ in range(count):
        if len(data) - at < _UPDATE.size:
            raise SignalError("the bytes end before an update's head does")
        state, vnf, number, length = _UPDATE.unpack_from(data, at)
        at += _UPDATE.size
        if length > LARGEST_VALUE or length > len(data) - at:
            raise SignalError(f"an update of {length} bytes: the bytes end before, or it is too long")
        updates.append(Update(_state(state), _vnf(vnf), number, bytes(data[at : at + length])))
        at += length
    if at != len(data):
        raise SignalError(f"{len(data) - at} bytes follow the last update")
    return Signal(SignalKind.UPDATE, updates=tuple(updates))
