"""The segment: Treecast's own header, inside every carrier except bare STARE states.

All numbers are big-endian. A message is one record batch or a few; it is cut into `total` segments.

     0  version (4 bits, 1) | kind (4 bits)       24  records uint32: how many the message holds
     1  flags: bit 0 protected, bit 1 sealed      28  number uint16: this segment's, from 0
     2  key id uint16 (0 without a tag)           30  total uint16: segments of the message, from 1
     4  origin uint32: the stream's host          32  length uint16: bytes of payload
     8  stream uint32                             34  content uint8: 4-byte words of content header
    12  epoch uint32                              35  after uint8: number of `after` entries
    16  sequence uint64: the first record's       36  sender uint32: the host that sent this segment
    40  tag, 16 bytes; if sealed, a nonce of 12 bytes; nothing if not protected
     .  `after` entries of 16 bytes: stream uint32, epoch uint32, sequence uint64
     .  content header (4 x content bytes)
     .  payload (length bytes); if sealed, encrypted
     .  tag, 16 bytes, if sealed

Sequences count records: a message with n records at sequence s is followed by one at s + n. The width of a
gap is therefore the number of missing records, even if nothing else is known about them.

`after` lists streams of the same origin. Everything below the given sequences has to be settled before this
message is delivered. Only the first segment of a message carries the list. The content header is opaque here.

Kinds other than data, repair and replay carry a body of `segment_bodies` as payload. They consist of one
segment with 0 records and `sequence` 0.

A tag authenticates all of a segment. A seal also encrypts the payload; header, `after` list and content
header stay readable, for switches and for hosts that forward. `segment_keys` has both, and the key ring. The
key id selects a key of it, so that two keys can be valid while a cluster changes its key.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from hmac import compare_digest
from typing import Final

from msgspec import Struct

from .segment_faults import SegmentError as SegmentError
from .segment_faults import SegmentFault as SegmentFault
from .segment_keys import NO_KEYS as NO_KEYS
from .segment_keys import NONCE_SIZE, Data
from .segment_keys import TAG_SIZE as TAG_SIZE
from .segment_keys import KeyRing as KeyRing

VERSION: Final = 1
HEADER_SIZE: Final = 40
SEAL_MORE: Final = NONCE_SIZE  # bytes of a sealed segment beyond a tagged one
AFTER_SIZE: Final = 16
MAX_AFTER: Final = 16
MAX_CONTENT: Final = 255 * 4
MAX_PAYLOAD: Final = 0xFFFF
MAX_SEGMENTS: Final = 0xFFFF
MAX_SEQUENCE: Final = 2**64 - 1

_HEADER: Final = struct.Struct(">BBHIIIQIHHHBBI")
_NUMBERS: Final = struct.Struct(">HHH")  # number, total, length
_NUMBERS_AT: Final = 28
_AFTER: Final = struct.Struct(">IIQ")
_TAGGED: Final = 0x01
_SEALED: Final = 0x02
_LARGE: Final = 8192  # bytes of a part whose copy costs more than another piece in the system call


class Kind(enum.IntEnum):
    """The segment kind, the low four bits of the first byte."""

    DATA = 0  # a segment of a message, sent for the first time
    REPAIR = 1  # the same, sent again to receivers that missed it
    NAK = 2  # what a receiver lacks
    HEARTBEAT = 3  # the position of a stream
    REPORT = 4  # the outcome of all records at a receiver so far
    SKIP = 5  # records that will no longer come
    ANNOUNCE = 6  # a stream, its first sequence and its members
    CLOSE = 7  # a stream's end
    PROBE = 8  # of no stream: shows that a carrier reaches its receiver
    REPLAY = 9  # like a repair, for a receiver that catches up
    BEAT = 10  # of no stream: shows a host that another is there, for all streams that rest between them


_KINDS: Final = tuple(Kind)  # by number
_LAST_OF_DATA: Final = 1  # DATA, REPAIR and REPLAY are parts of messages
_REPLAY: Final = 9

StreamKey = tuple[int, int, int]  # origin, stream, epoch

# The header's fields in order.
Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]


class After(Struct, frozen=True):
    """A dependency: all records of `stream` in `epoch` below `sequence` come first."""

    stream: int
    epoch: int
    sequence: int


class Segment:
    """One segment; immutable by convention. A plain class, because creating one is the main cost of a
    packet."""

    __slots__ = (
        "after",
        "content",
        "epoch",
        "kind",
        "number",
        "origin",
        "payload",
        "records",
        "sender",
        "sequence",
        "stream",
        "total",
    )

    def __init__(
        self,
        kind: Kind,
        origin: int,
        stream: int,
        epoch: int,
        sequence: int,
        records: int,
        number: int,
        total: int,
        sender: int,
        payload: bytes,
        after: tuple[After, ...] = (),
        content: bytes = b"",
    ) -> None:
        self.kind = kind
        self.origin = origin
        self.stream = stream
        self.epoch = epoch
        self.sequence = sequence
        self.records = records
        self.number = number
        self.total = total
        self.sender = sender
        self.payload = payload
        self.after = after
        self.content = content

    @property
    def end(self) -> int:
        """The sequence after the message's last record."""
        return self.sequence + self.records

    def fields(self) -> tuple[object, ...]:
        """The fields in the order of the constructor."""
        place = (self.kind, self.origin, self.stream, self.epoch, self.sequence, self.records)
        return (*place, self.number, self.total, self.sender, self.payload, self.after, self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Segment) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"Segment{self.fields()!r}"


class Parted:
    """An encoded segment in two pieces: `head`, then `part`, a view into its message, which is not copied."""

    __slots__ = ("head", "part", "size")

    def __init__(self, head: bytes, part: memoryview) -> None:
        self.head = head
        self.part = part
        self.size = len(head) + len(part)

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join((self.head, self.part))


Datagram = bytes | Parted


def overhead(keys: KeyRing, content: bytes = b"", after: int = 0) -> int:
    """Bytes that a segment needs besides its payload."""
    protection = TAG_SIZE if keys.current is not None else 0
    return HEADER_SIZE + protection + more_for(keys) + len(content) + after * AFTER_SIZE


def more_for(keys: KeyRing) -> int:
    """Bytes of each segment that `part_size` does not leave room for: whoever sends leaves it."""
    return SEAL_MORE if keys.sealing is not None else 0


def encode(segment: Segment, keys: KeyRing = NO_KEYS) -> bytes:
    """Encodes a segment. Raises ValueError if a field does not fit its width."""
    if len(segment.payload) > MAX_PAYLOAD:
        raise ValueError(f"a payload of {len(segment.payload)} bytes: at most {MAX_PAYLOAD}")
    _check_meaning(segment)
    header = _pack_header(segment, len(segment.payload), keys)
    clear = _pack_after(segment.after) + segment.content if segment.after or segment.content else b""
    if keys.sealing is not None:
        key = (segment.origin, segment.stream, segment.epoch)
        nonce, sealed = _seal(keys, key, segment.sender, header + clear, segment.payload)
        return b"".join((header, nonce, clear, sealed))
    rest = clear + segment.payload if clear else segment.payload
    if keys.current is None:
        return header + rest
    return b"".join((header, keys.tag(keys.current, header, rest), rest))


def encode_parts(message: Segment, size: int, numbers: range, keys: KeyRing) -> list[Datagram]:
    """Encodes the segments of a message with the given numbers, each of `size` bytes; the last one may be
    shorter. Large parts are not copied.

    `message` has the fields of any of them, but the whole payload. It has no `after` list and no content
    header. The bytes equal those of `encode` for each segment; the header is packed only once.
    """
    if size > MAX_PAYLOAD or message.after or message.content:
        raise ValueError("such a message is encoded segment by segment")
    template = _pack_header(message, 0, keys)
    begin, end = template[:_NUMBERS_AT], template[_NUMBERS_AT + _NUMBERS.size :]
    payload, total, key_id = memoryview(message.payload), message.total, keys.current
    key = (message.origin, message.stream, message.epoch)
    found: list[Datagram] = []
    for number in numbers:
        part = payload[number * size : (number + 1) * size]
        header = begin + _NUMBERS.pack(number, total, len(part)) + end
        if keys.sealing is not None:
            tag, sealed = _seal(keys, key, message.sender, header, part)
            part = memoryview(sealed)
        else:
            tag = b"" if key_id is None else keys.tag(key_id, header, part)
        found.append(Parted(header + tag, part) if len(part) >= _LARGE else b"".join((header, tag, part)))
    return found


def _seal(keys: KeyRing, key: StreamKey, sender: int, header: bytes, data: Data) -> tuple[bytes, bytes]:
    """Returns the nonce and the sealed data."""
    assert keys.current is not None
    return keys.seal(keys.current, key[0], key[1], key[2], sender, header, data)


def _flags(keys: KeyRing) -> int:
    if keys.current is None:
        return 0
    return _TAGGED if keys.sealing is None else _TAGGED | _SEALED


def _pack_header(segment: Segment, length: int, keys: KeyRing) -> bytes:
    if len(segment.content) % 4 or len(segment.content) > MAX_CONTENT:
        raise ValueError(f"a content header of {len(segment.content)} bytes: whole words, at most 255")
    try:
        return _HEADER.pack(
            VERSION << 4 | int(segment.kind),
            _flags(keys),
            keys.current or 0,
            segment.origin,
            segment.stream,
            segment.epoch,
            segment.sequence,
            segment.records,
            segment.number,
            segment.total,
            length,
            len(segment.content) // 4,
            len(segment.after),
            segment.sender,
        )
    except struct.error as error:
        raise ValueError(f"a field does not fit the segment's header: {error}") from error


def _pack_after(after: tuple[After, ...]) -> bytes:
    try:
        return b"".join([_AFTER.pack(entry.stream, entry.epoch, entry.sequence) for entry in after])
    except struct.error as error:
        raise ValueError(f"an entry of `after` does not fit: {error}") from error


def decode(
    data: Data,
    keys: KeyRing = NO_KEYS,
    position: int = 0,
    limit: int | None = None,
    counted: bool = True,
) -> tuple[Segment, int]:
    """Returns the segment at `position` and where it ends; anything after it (a frame's padding) is left to
    the caller.

    It has to end by `limit`, the end of its datagram if `data` holds several. Raises SegmentError if it is
    not a valid segment or its tag is wrong. Nothing is copied before all lengths are known to lie inside, and
    nothing beyond the lengths is interpreted before the tag is checked. `counted`: False for a look at a
    segment that comes here once more, since a sealed one is accepted once.
    """
    view = memoryview(data)
    limit = len(view) if limit is None else min(limit, len(view))
    if position < 0 or limit - position < HEADER_SIZE:
        raise SegmentError(SegmentFault.TRUNCATED)
    fields: Fields = _HEADER.unpack_from(view, position)
    first, flags, key_id, _, _, _, _, _, _, _, length, words, afters, _ = fields
    if first >> 4 != VERSION:
        raise SegmentError(SegmentFault.VERSION, f"version {first >> 4}")
    if flags & ~(_TAGGED | _SEALED) or flags == _SEALED or (key_id and not flags):
        raise SegmentError(SegmentFault.FLAGS)
    if afters > MAX_AFTER:
        raise SegmentError(SegmentFault.AFTER)
    sealed = flags & _SEALED != 0
    start = position + HEADER_SIZE + (NONCE_SIZE if sealed else TAG_SIZE if flags else 0)
    body = start + AFTER_SIZE * afters + 4 * words
    end = body + length + (TAG_SIZE if sealed else 0)
    if end > limit:
        raise SegmentError(SegmentFault.TRUNCATED)
    if keys.sealing is not None or sealed:
        payload = _open(view, position, start, body, end, fields, keys, counted)
    else:
        if keys.current is not None:  # otherwise ignore tags, so that a cluster can be switched over
            _authenticate(view, position, start, end, key_id if flags else None, keys)
        payload = bytes(view[body:end])
    after = _read_after(view, start, afters) if afters else ()
    content = bytes(view[body - 4 * words : body]) if words else b""
    return _interpret(fields, payload, after, content), end


def _interpret(fields: Fields, payload: bytes, after: tuple[After, ...], content: bytes) -> Segment:
    first, _, _, origin, stream, epoch, sequence, records, number, total, _, _, _, sender = fields
    kind = first & 0x0F
    if kind >= len(_KINDS):
        raise SegmentError(SegmentFault.KIND, f"kind {kind}")
    fault = _contradiction(kind, sequence, records, number, total, len(after))
    if fault is not None:
        raise SegmentError(fault)
    return Segment(
        _KINDS[kind],
        origin,
        stream,
        epoch,
        sequence,
        records,
        number,
        total,
        sender,
        payload,
        after,
        content,
    )


def _read_after(view: memoryview, start: int, count: int) -> tuple[After, ...]:
    return tuple(After(*_AFTER.unpack_from(view, start + AFTER_SIZE * index)) for index in range(count))


def _authenticate(
    view: memoryview, position: int, start: int, end: int, key_id: int | None, keys: KeyRing
) -> None:
    if key_id is None:
        raise SegmentError(SegmentFault.UNAUTHENTICATED)
    if key_id not in keys:
        raise SegmentError(SegmentFault.UNKNOWN_KEY, f"key id {key_id}")
    header = view[position : position + HEADER_SIZE]
    if not compare_digest(keys.tag(key_id, header, view[start:end]), view[start - TAG_SIZE : start]):
        raise SegmentError(SegmentFault.FORGED)


def _open(
    view: memoryview,
    position: int,
    start: int,
    body: int,
    end: int,
    fields: Fields,
    keys: KeyRing,
    counted: bool,
) -> bytes:
    """Returns the payload of a sealed segment. Raises SegmentError."""
    _, flags, key_id, origin, stream, epoch, _, _, _, _, _, _, _, sender = fields
    if keys.sealing is None:
        raise SegmentError(SegmentFault.SEALED)
    if not flags & _SEALED:
        raise SegmentError(SegmentFault.UNSEALED)
    if key_id not in keys:
        raise SegmentError(SegmentFault.UNKNOWN_KEY, f"key id {key_id}")
    nonce = bytes(view[start - NONCE_SIZE : start])
    header = bytes(view[position : position + HEADER_SIZE])
    clear = header if body == start else header + bytes(view[start:body])
    found = keys.open(key_id, origin, stream, epoch, sender, nonce, clear, view[body:end])
    if found is None:
        raise SegmentError(SegmentFault.FORGED)
    if counted and not keys.take(key_id, sender, nonce):
        raise SegmentError(SegmentFault.REPLAYED)
    return found


def content_of(datagram: bytes) -> bytes:
    """Returns the content header of an encoded segment; empty if it has none."""
    words, afters, flags = datagram[34], datagram[35], datagram[1]
    if not words:
        return b""
    start = HEADER_SIZE + (NONCE_SIZE if flags & _SEALED else TAG_SIZE if flags else 0) + AFTER_SIZE * afters
    return datagram[start : start + 4 * words]


def _contradiction(
    kind: int, sequence: int, records: int, number: int, total: int, afters: int
) -> SegmentFault | None:
    if kind > _LAST_OF_DATA and kind != _REPLAY:
        sound = sequence == 0 and records == 0 and number == 0 and total == 1 and not afters
        return None if sound else SegmentFault.NUMBERS
    if number >= total or not records or sequence + records > MAX_SEQUENCE:
        return SegmentFault.NUMBERS
    if afters and (number or afters > MAX_AFTER):
        return SegmentFault.AFTER
    return None


def _check_meaning(segment: Segment) -> None:
    fault = _contradiction(
        int(segment.kind),
        segment.sequence,
        segment.records,
        segment.number,
        segment.total,
        len(segment.after),
    )
    if fault is not None:
        raise ValueError(fault.value)


def control(kind: Kind, origin: int, stream: int, epoch: int, sender: int, payload: bytes) -> Segment:
    """Returns a segment of a kind that carries a body."""
    return Segment(kind, origin, stream, epoch, 0, 0, 0, 1, sender, payload)


# --- messages, cut to the MTU of a path


class Message:
    """A unit of a stream: `records` records from `sequence` on, opaque here. Immutable by convention.

    `hosts`: the receivers that it is for, known at its origin alone; None: all of the stream.
    """

    __slots__ = ("after", "content", "end", "hosts", "payload", "records", "sequence")

    def __init__(
        self,
        sequence: int,
        records: int,
        payload: bytes,
        after: tuple[After, ...] = (),
        content: bytes = b"",
        hosts: frozenset[int] | None = None,
    ) -> None:
        self.sequence = sequence
        self.records = records
        self.end = sequence + records
        self.hosts = hosts
        self.payload = payload
        self.after = after
        self.content = content

    def is_for(self, host: int) -> bool:
        """Whether this receiver of the stream gets it; others are told that it was filtered."""
        return self.hosts is None or host in self.hosts

    def fields(self) -> tuple[object, ...]:
        """The fields that segments carry, in the order of the constructor."""
        return (self.sequence, self.records, self.payload, self.after, self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"Message{self.fields()!r}"


def part_size(mtu: int, content: int = 0, after: int = 0) -> int:
    """The maximum payload bytes per segment for segments of `mtu` bytes; the same for every part.

    Each segment leaves room for a tag and for the message's `after` list. A message is therefore cut alike
    whether or not it is tagged, and whichever host repairs it. Raises ValueError if no payload fits.
    """
    size = min(mtu - HEADER_SIZE - TAG_SIZE - AFTER_SIZE * after - content, MAX_PAYLOAD)
    if size <= 0 or content > MAX_CONTENT or content % 4 or after > MAX_AFTER:
        raise ValueError(f"segments of {mtu} bytes with {content} bytes of content header hold nothing")
    return size


def size_of(segment: Segment) -> int:
    """The least size of segments to which the message may have been cut, of which this is the first of
    several segments."""
    after = AFTER_SIZE * len(segment.after)
    return HEADER_SIZE + TAG_SIZE + after + len(segment.content) + len(segment.payload)


def size_for(message: Message, mtu: int) -> int:
    """The payload bytes of each segment of the message except the last.

    All are as equal as possible. Their number alone thus tells the size: parts of two cuts of a message are
    never joined, whichever hosts have cut it for which paths.
    """
    longest = part_size(mtu, len(message.content), len(message.after))
    length = len(message.payload)
    if length <= longest:
        return longest
    total = -(-length // longest)
    return -(-length // total)


def can_be_cut(message: Message, mtu: int) -> bool:
    """Whether its segments can be numbered."""
    longest = part_size(mtu, len(message.content), len(message.after))
    return len(message.payload) <= longest * MAX_SEGMENTS


def parts_of(message: Message, mtu: int) -> int:
    """The number of segments of a message. Raises ValueError beyond the 65,535 that can be numbered."""
    total = max(1, -(-len(message.payload) // size_for(message, mtu)))
    if total > MAX_SEGMENTS:
        raise ValueError(f"a message of {len(message.payload)} bytes is too large for segments of {mtu}")
    return total


def numbers_of(message: Message, mtu: int, only: range | None) -> range:
    """The numbers of the message's segments, or those in `only`, which may extend beyond the last.

    Numbers beyond the last alone are those of another size: then all segments are meant.
    """
    total = parts_of(message, mtu)
    if only is None or only.start >= total:
        return range(total)
    return range(only.start, min(only.stop, total))


def cut(
    message: Message, mtu: int, key: StreamKey, sender: int, kind: Kind = Kind.DATA, only: range | None = None
) -> Iterator[Segment]:
    """Yields the message's segments, or only those with the given numbers."""
    size, total = size_for(message, mtu), parts_of(message, mtu)
    for number in numbers_of(message, mtu, only):
        yield Segment(
            kind,
            key[0],
            key[1],
            key[2],
            message.sequence,
            message.records,
            number,
            total,
            sender,
            message.payload[number * size : (number + 1) * size],
            () if number else message.after,
            message.content,
        )


def cut_encoded(
    message: Message, mtu: int, key: StreamKey, sender: int, kind: Kind, only: range | None, keys: KeyRing
) -> list[Datagram]:
    """Returns the encoded segments that `cut` would yield, but faster."""
    if message.after or message.content:
        return [encode(segment, keys) for segment in cut(message, mtu, key, sender, kind, only)]
    size = size_for(message, mtu)
    if only is None and len(message.payload) <= size:
        return [encode_whole(message, key, sender, kind, keys)]
    whole = Segment(
        kind,
        key[0],
        key[1],
        key[2],
        message.sequence,
        message.records,
        0,
        parts_of(message, mtu),
        sender,
        message.payload,
    )
    return encode_parts(whole, size, numbers_of(message, mtu, only), keys)


def encode_whole(message: Message, key: StreamKey, sender: int, kind: Kind, keys: KeyRing) -> bytes:
    """Encodes a message that fits one segment, without an `after` list and without a content header."""
    payload, key_id = message.payload, keys.current
    try:
        header: bytes = _HEADER.pack(
            VERSION << 4 | int(kind),
            _flags(keys),
            key_id or 0,
            key[0],
            key[1],
            key[2],
            message.sequence,
            message.records,
            0,
            1,
            len(payload),
            0,
            0,
            sender,
        )
    except struct.error as error:
        raise ValueError(f"a field does not fit the segment's header: {error}") from error
    if key_id is None:
        return header + payload
    if keys.sealing is not None:
        nonce, sealed = _seal(keys, key, sender, header, payload)
        return header + nonce + sealed
    return header + keys.tag(key_id, header, payload) + payload
