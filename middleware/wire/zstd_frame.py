"""The ends of zstd frames, by RFC 8878 section 3.1, found without decompression.

zstandard's reader treats a truncated frame as a short one, so `compression` checks before it reads.

  frame:      magic 0xFD2FB528 | descriptor | [window] | [dictionary id] | [content size] | block...
              | [checksum]
  block:      last (1 bit), type (2 bits, 1: run of one byte), size (21 bits), in 3 bytes | content
  skippable:  magic 0x184D2A50 to 5F | size (4 bytes) | that many bytes
  descriptor: bits 6-7 content size code, 5 single segment (no window byte, at least 1 byte of content
              size), 2 checksum (4 bytes), 0-1 dictionary id code

All numbers are little-endian.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_RUN: Final = 1


def are_whole_frames(data: bytes) -> bool:
    """Returns whether `data` is one or more complete frames."""
    size: i64 = len(data)
    position: i64 = 0
    try:
        while position < size:
            position = _end_of_frame(data, position)
    except IndexError:
        return False
    return size > 0 and position == size


def _end_of_frame(data: bytes, position: i64) -> i64:
    """Returns the end of the frame at `position`, possibly beyond `data`. Raises IndexError if a field is cut
    off.
    """
    if data[position + 1] == 0x2A:
        return position + 8 + _little_endian(data, position + 4, 4)
    descriptor: i64 = data[position + 4]
    position += 5 + _fields(descriptor)
    while True:
        block = _little_endian(data, position, 3)
        position += 3 + (1 if block >> 1 & 3 == _RUN else block >> 3)
        if block & 1:
            return position + (4 if descriptor & 4 else 0)


def _fields(descriptor: i64) -> i64:
    """Returns the size in bytes of window, dictionary id and content size after the descriptor."""
    single: i64 = descriptor >> 5 & 1
    dictionary: i64 = descriptor & 3
    code: i64 = descriptor >> 6
    size = 1 - single
    size += 4 if dictionary == 3 else dictionary
    size += single if code == 0 else 1 << code
    return size


def _little_endian(data: bytes, position: i64, count: i64) -> i64:
    number: i64 = 0
    index: i64 = 0
    while index < count:
        byte: i64 = data[position + index]
        number |= byte << (8 * index)
        index += 1
    return number
