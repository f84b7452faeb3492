"""The segment: Treecast's own header, inside every carrier except bare STARE states.

All numbers are big-endian. A message is one record batch or a few; it is cut into `total` segments.

     0  version (4 bits, 1) | kind (4 bits)       24  records uint32: how many the message holds
     1  flags: bit 0 tag present, others 0        28  number uint16: this segment's, from 0
     2  key id uint16 (0 without a tag)           30  total uint16: segments of the message, from 1
     4  origin uint32: the stream's host          32  length uint16: bytes of payload
     8  stream uint32                             34  content uint8: 4-byte words of content header
    12  epoch uint32                              35  after uint8: number of `after` entries
    16  sequence uint64: the first record's       36  sender uint32: the host that sent this segment
    40  tag, 16 bytes, if flag bit 0 is set
     .  `after` entries of 16 bytes: stream uint32, epoch uint32, sequence uint64
     .  content header (4 x content bytes)
     .  payload (length bytes)

Sequences count records: a message with n records at sequence s is followed by one at s + n. The width of a
gap is therefore the number of missing records, even if nothing else is known about them.

`after` lists streams of the same origin. Everything below the given sequences has to be settled before this
message is delivered. Only the first segment of a message carries the list. The content header is opaque here.

Kinds other than data, repair and replay carry a body of `segment_bodies` as payload. They consist of one
segment with 0 records and `sequence` 0.

The tag is the first 128 bits of keyed BLAKE3 over everything after it, then the header. Its key is derived
from the cluster's key (BLAKE3's `derive_key` with TAG_CONTEXT). For 16 KiB it takes a third of the time of
BLAKE2b, because it hashes several blocks at once; see docs/decisions. The key id selects a key of the key
ring, so that two keys can be valid while a cluster changes its key.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping
from hmac import compare_digest
from typing import Final

from blake3 import blake3
from msgspec import Struct

VERSION: Final = 1
HEADER_SIZE: Final = 40
TAG_SIZE: Final = 16
TAG_CONTEXT: Final = "treecast 2026-11-21 tag of a segment"
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
_LARGE: Final = 8192  # bytes of a part whose copy costs more than another piece in the system call

Data = bytes | bytearray | memoryview


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


_KINDS: Final = tuple(Kind)  # by number
_LAST_OF_DATA: Final = 1  # DATA, REPAIR and REPLAY are parts of messages
_REPLAY: Final = 9

StreamKey = tuple[int, int, int]  # origin, stream, epoch

# The header's fields in order.
Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]


class SegmentFault(enum.Enum):
    """Why bytes are not a valid segment. Counted by name."""

    TRUNCATED = "the bytes end before the segment does"
    VERSION = "a version that is not spoken here"
    KIND = "an unknown kind"
    FLAGS = "an unknown flag, or a key id without a tag"
    NUMBERS = "segment number, total, records or sequence contradict each other"
    AFTER = "an `after` list that is too long, or not on a first segment"
    BODY = "the body does not fit the segment's kind"
    UNAUTHENTICATED = "no tag, where one is asked for"
    UNKNOWN_KEY = "a key id that is not in the key ring"
    FORGED = "the tag is not that of these bytes"


class SegmentError(ValueError):
    """Refused bytes; `fault` is the reason to count."""

    def __init__(self, fault: SegmentFault, detail: str = "") -> None:
        super().__init__(detail or fault.value)
        self.fault = fault


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


class KeyRing:
    """The cluster's keys by id. Outgoing segments are tagged with the `current` key; None: without a tag.

    If there is a current key, segments without a tag are refused. Keys are 16 to 32 bytes long.
    """

    def __init__(self, keys: Mapping[int, bytes], current: int | None) -> None:
        for key_id, key in keys.items():
            if not 0 <= key_id <= 0xFFFF:
                raise ValueError(f"key id {key_id} is not of 16 bits")
            if not 16 <= len(key) <= 32:
                raise ValueError(f"key {key_id} has {len(key)} bytes instead of 16 to 32")
        if current is not None and current not in keys:
            raise ValueError(f"the current key {current} is not in the key ring")
        self.current = current
        # Copying a hash that has absorbed its key is cheaper than creating a keyed one.
        self._hashes: dict[int, blake3] = {
            number: blake3(key=blake3(key, derive_key_context=TAG_CONTEXT).digest())
            for number, key in keys.items()
        }

    def __contains__(self, key_id: int) -> bool:
        return key_id in self._hashes

    def tag(self, key_id: int, header: Data, rest: Data) -> bytes:
        """Returns the tag of a segment: over `rest`, then over the header.

        The header comes last, because BLAKE3 hashes several chunks of 1 KiB at once only where long data
        begins at a chunk: for 65,000 bytes this takes 15 us instead of 20, and no copy of them.
        """
        hashed = self._hashes[key_id].copy()
        hashed.update(rest)
        hashed.update(header)
        return hashed.digest(length=TAG_SIZE)


NO_KEYS: Final = KeyRing({}, None)


def overhead(keys: KeyRing, content: bytes = b"", after: int = 0) -> int:
    """Bytes that a segment needs besides its payload."""
    return HEADER_SIZE + (TAG_SIZE if keys.current is not None else 0) + len(content) + after * AFTER_SIZE


def encode(segment: Segment, keys: KeyRing = NO_KEYS) -> bytes:
    """Encodes a segment. Raises ValueError if a field does not fit its width."""
    if len(segment.payload) > MAX_PAYLOAD:
        raise ValueError(f"a payload of {len(segment.payload)} bytes: at most {MAX_PAYLOAD}")
    _check_meaning(segment)
    header = _pack_header(segment, len(segment.payload), keys.current)
    rest = segment.payload
    if segment.after or segment.content:
        rest = b"".join((_pack_after(segment.after), segment.content, segment.payload))
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
    template = _pack_header(message, 0, keys.current)
    begin, end = template[:_NUMBERS_AT], template[_NUMBERS_AT + _NUMBERS.size :]
    payload, total, key_id = memoryview(message.payload), message.total, keys.current
    found: list[Datagram] = []
    for number in numbers:
        part = payload[number * size : (number + 1) * size]
        header = begin + _NUMBERS.pack(number, total, len(part)) + end
        tag = b"" if key_id is None else keys.tag(key_id, header, part)
        found.append(Parted(header + tag, part) if len(part) >= _LARGE else b"".join((header, tag, part)))
    return found


def _pack_header(segment: Segment, length: int, key_id: int | None) -> bytes:
    if len(segment.content) % 4 or len(segment.content) > MAX_CONTENT:
        raise ValueError(f"a content header of {len(segment.content)} bytes: whole words, at most 255")
    try:
        return _HEADER.pack(
            VERSION << 4 | int(segment.kind),
            0 if key_id is None else _TAGGED,
            key_id or 0,
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
    data: Data, keys: KeyRing = NO_KEYS, position: int = 0, limit: int | None = None
) -> tuple[Segment, int]:
    """Returns the segment at `position` and where it ends; anything after it (a frame's padding) is left to
    the caller.

    It has to end by `limit`, the end of its datagram if `data` holds several. Raises SegmentError if it is
    not a valid segment or its tag is wrong. Nothing is copied before all lengths are known to lie inside, and
    nothing beyond the lengths is interpreted before the tag is checked.
    """
    view = memoryview(data)
    limit = len(view) if limit is None else min(limit, len(view))
    if position < 0 or limit - position < HEADER_SIZE:
        raise SegmentError(SegmentFault.TRUNCATED)
    fields: Fields = _HEADER.unpack_from(view, position)
    first, flags, key_id, _, _, _, _, _, _, _, length, words, afters, _ = fields
    if first >> 4 != VERSION:
        raise SegmentError(SegmentFault.VERSION, f"version {first >> 4}")
    if flags & ~_TAGGED or (key_id and not flags):
        raise SegmentError(SegmentFault.FLAGS)
    if afters > MAX_AFTER:
        raise SegmentError(SegmentFault.AFTER)
    start = position + HEADER_SIZE + (TAG_SIZE if flags else 0)
    body = start + AFTER_SIZE * afters + 4 * words
    end = body + length
    if end > limit:
        raise SegmentError(SegmentFault.TRUNCATED)
    if keys.current is not None:  # otherwise ignore tags, so that a cluster can be switched over
        _authenticate(view, position, start, end, key_id if flags else None, keys)
    after = _read_after(view, start, afters) if afters else ()
    content = bytes(view[body - 4 * words : body]) if words else b""
    return _interpret(fields, bytes(view[body:end]), after, content), end


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
    """A unit of a stream: `records` records from `sequence` on, opaque here. Immutable by convention."""

    __slots__ = ("after", "content", "end", "payload", "records", "sequence")

    def __init__(
        self,
        sequence: int,
        records: int,
        payload: bytes,
        after: tuple[After, ...] = (),
        content: bytes = b"",
    ) -> None:
        self.sequence = sequence
        self.records = records
        self.end = sequence + records
        self.payload = payload
        self.after = after
        self.content = content

    def fields(self) -> tuple[object, ...]:
        """The fields in the order of the constructor."""
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
            0 if key_id is None else _TAGGED,
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
    return header + payload if key_id is None else header + keys.tag(key_id, header, payload) + payload
