"""The primitive types of Kafka's protocol messages.

Source: Kafka's protocol guide, "Protocol Primitive Types"; KIP-482 (compact lengths, tagged fields).

| type              | bytes                                                                            |
| ----------------- | -------------------------------------------------------------------------------- |
| int8 ... int64    | big-endian, signed                                                               |
| unsigned varint   | 7 bits a byte, lowest first; up to 5 bytes                                       |
| string, bytes     | a length (int16, int32), then that many bytes; -1 is null                        |
| array             | a count (int32), then the elements; -1 is null                                   |
| compact ...       | the length or count + 1 as an unsigned varint; 0 is null                         |
| tagged fields     | a count, then for each: tag, size (unsigned varints), that many bytes            |

Text is UTF-8. Invalid UTF-8 is replaced, as Kafka's broker does.
"""

from __future__ import annotations

import struct
from typing import Final

from mypy_extensions import i64

from treecast.middleware.model.buffers import Buffer

WINDOW: Final = 512  # bytes that a reader copies at a time, for fast access
NAMES: Final = 4096  # limit of names cached in decoded and in encoded form
LONGEST_KEPT: Final = 255  # bytes of the longest name that is cached


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_BYTE: Final = [bytes([number]) for number in range(256)]


class CodecError(Exception):
    """A message that cannot be read or written. The text states the reason."""


class RemoteCodecError(CodecError):
    """The peer's bytes are not a message of the expected type and version."""


class LocalCodecError(CodecError):
    """A value that the caller passed does not fit the message."""


KNOWN_NAMES: Final[dict[bytes, str]] = {}  # by UTF-8: names that occur often; see `name_of`
_encoded: Final[dict[str, bytes]] = {}
COMPACT_NAMES: Final[dict[str, bytes]] = {}  # see `compact_name`


def name_of(raw: bytes) -> str:
    """Returns the text of `raw`: the same object each time while it is cached."""
    name = KNOWN_NAMES.get(raw)
    if name is None:
        name = raw.decode("utf-8", "replace")
        if len(raw) <= LONGEST_KEPT:
            if len(KNOWN_NAMES) >= NAMES:
                KNOWN_NAMES.clear()
            KNOWN_NAMES[raw] = name
    return name


def _raw_name(name: str) -> bytes:
    raw = _encoded.get(name)
    if raw is None:
        raw = name.encode()
        if len(raw) <= LONGEST_KEPT:
            if len(_encoded) >= NAMES:
                _encoded.clear()
            _encoded[name] = raw
    return raw


def compact_name(name: str) -> bytes:
    """Returns the encoding of a compact string that occurs often."""
    raw = COMPACT_NAMES.get(name)
    if raw is None:
        encoded = _raw_name(name)
        raw = uvarint(len(encoded) + 1) + encoded
        if len(encoded) <= LONGEST_KEPT:
            if len(COMPACT_NAMES) >= NAMES:
                COMPACT_NAMES.clear()
            COMPACT_NAMES[name] = raw
    return raw


class Reader:
    """Reads primitives from a frame, one after the other. Raises RemoteCodecError if they do not fit.

    Nothing is allocated for a length before that many bytes are known to be present.
    """

    def __init__(self, data: Buffer, position: int = 0) -> None:
        self._data: Final = data if isinstance(data, memoryview) else memoryview(data)
        self._size: i64 = len(self._data)
        self._base: i64 = position  # start of the window in the frame
        self._at: i64 = 0  # read position in the window
        self._window = b""
        self._loaded: i64 = 0

    @property
    def position(self) -> int:
        return self._base + self._at

    def end(self) -> None:
        """Raises RemoteCodecError if bytes are left."""
        left = self._size - self._base - self._at
        if left:
            raise RemoteCodecError(f"{left} bytes are left after the message")

    def _take(self, count: i64) -> i64:
        """Returns the position in the window of the next `count` bytes, and moves past them."""
        at: i64 = self._at
        if count > self._loaded - at:
            start: i64 = self._base + at
            if count < 0 or count > self._size - start:
                raise RemoteCodecError(f"the message ends but needs {count} more bytes")
            self._window = self._data[start : start + (count if count > WINDOW else WINDOW)].tobytes()
            self._loaded = len(self._window)
            self._base = start
            at = 0
        self._at = at + count
        return at

    def int8(self) -> i64:
        at: i64 = self._take(1)
        byte: i64 = self._window[at]
        return byte - 256 if byte >= 128 else byte

    def int16(self) -> i64:
        at: i64 = self._take(2)
        window = self._window
        high: i64 = window[at]
        if high >= 128:
            high -= 256
        low: i64 = window[at + 1]
        return high << 8 | low

    def int32(self) -> i64:
        at: i64 = self._take(4)
        window = self._window
        a: i64 = window[at]
        b: i64 = window[at + 1]
        c: i64 = window[at + 2]
        d: i64 = window[at + 3]
        if a >= 128:
            a -= 256
        return a << 24 | b << 16 | c << 8 | d

    def int64(self) -> i64:
        at: i64 = self._take(8)
        window = self._window
        number: i64 = window[at]
        if number >= 128:
            number -= 256
        index: i64 = at + 1
        while index < at + 8:
            byte: i64 = window[index]
            number = number << 8 | byte
            index += 1
        return number

    def uvarint(self) -> i64:
        number: i64 = 0
        shift: i64 = 0
        while shift < 35:
            at: i64 = self._take(1)
            byte: i64 = self._window[at]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise RemoteCodecError("an unsigned varint is longer than 5 bytes")

    def _length(self, size: i64, what: str) -> i64:
        """Returns `size` if it is -1 or that many bytes are present. Raises RemoteCodecError."""
        if size < -1 or size > self._size - self._base - self._at:
            raise RemoteCodecError(f"{what} of {size} bytes does not fit the message")
        return size

    def _text(self, length: i64) -> str:
        at: i64 = self._take(length)
        return name_of(self._window[at : at + length])

    def uuid(self) -> bytes:
        """Returns the 16 bytes of a UUID."""
        at: i64 = self._take(16)
        return self._window[at : at + 16]

    def nullable_string(self, compact: bool) -> str | None:
        length: i64 = self._length(self.uvarint() - 1 if compact else self.int16(), "a string")
        return None if length < 0 else self._text(length)

    def string(self, compact: bool) -> str:
        length: i64 = self._length(self.uvarint() - 1 if compact else self.int16(), "a string")
        if length < 0:
            raise RemoteCodecError("a non-nullable string is null")
        return self._text(length)

    def nullable_bytes(self, compact: bool) -> memoryview | None:
        """Returns the bytes as a view of the frame, not copied."""
        length: i64 = self._length(self.uvarint() - 1 if compact else self.int32(), "a byte string")
        if length < 0:
            return None
        start: i64 = self._base + self._at
        if length <= self._loaded - self._at:
            self._at += length
        else:
            self._base = start + length
            self._at = 0
            self._loaded = 0
        return self._data[start : start + length]

    def nullable_count(self, smallest: i64, compact: bool) -> i64:
        """Returns an array's count, -1 for null. `smallest` is the minimum size of an element in bytes."""
        count: i64 = self.uvarint() - 1 if compact else self.int32()
        left: i64 = self._size - self._base - self._at
        if count < -1 or count > left // smallest:
            raise RemoteCodecError(f"an array of {count} elements does not fit the message")
        return count

    def count(self, smallest: i64, compact: bool) -> i64:
        count: i64 = self.nullable_count(smallest, compact)
        if count < 0:
            raise RemoteCodecError("a non-nullable array is null")
        return count

    def skip_tagged_fields(self) -> None:
        fields: i64 = self.uvarint()
        while fields > 0:
            self.uvarint()
            self._skip(self.uvarint())
            fields -= 1

    def tagged_field(self, wanted: i64) -> str | None:
        """Skips the tagged fields; returns the text of the last one with tag `wanted`, or None."""
        found: str | None = None
        fields: i64 = self.uvarint()
        while fields > 0:
            tag: i64 = self.uvarint()
            length: i64 = self.uvarint()
            if tag == wanted:
                found = self._text(self._length(length, "a tagged field"))
            else:
                self._skip(length)
            fields -= 1
        return found

    def _skip(self, length: i64) -> None:
        self._length(length, "a tagged field")
        if length <= self._loaded - self._at:
            self._at += length
        else:
            self._base += self._at + length
            self._at = 0
            self._loaded = 0


def put_uvarint(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out += _BYTE[number & 0x7F | 0x80]
        number >>= 7
    out += _BYTE[number]


def uvarint(number: int) -> bytes:
    """Returns `number` as an unsigned varint."""
    out = b""
    while number >= 0x80:
        out += _BYTE[number & 0x7F | 0x80]
        number >>= 7
    return out + _BYTE[number]


def put_name(out: bytearray, name: str, compact: bool) -> None:
    """Appends a string that occurs often, such as a topic's or client's name."""
    raw = _raw_name(name)
    put_length(out, len(raw), compact)
    out += raw


def put_string(out: bytearray, text: str | None, compact: bool) -> None:
    if text is None:
        put_length(out, -1, compact)
        return
    raw = text.encode()
    put_length(out, len(raw), compact)
    out += raw


def put_length(out: bytearray, length: int, compact: bool) -> None:
    """Appends a string's length, -1 for null."""
    if compact:
        put_uvarint(out, length + 1)
    elif length > 0x7FFF:
        raise LocalCodecError(f"a string of {length} bytes is too long")
    else:
        out += _INT16.pack(length)


def put_count(out: bytearray, count: int, compact: bool) -> None:
    """Appends an array's count or a byte string's length, -1 for null."""
    if compact:
        put_uvarint(out, count + 1)
    else:
        out += _INT32.pack(count)
