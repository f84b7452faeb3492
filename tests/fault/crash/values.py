"""The values of the load: each states its producer and number, and has a checksum."""

from __future__ import annotations

import random
import zlib

WORDS = b"acknowledged batch carrier daemon epoch fabric gap host interest kill log offset partition replay"


class NotOurs(ValueError):
    """No producer of this run wrote these bytes."""


def make_value(stream: str, sequence: int, rng: random.Random) -> bytes:
    """Returns `stream|sequence|filling|crc32` with 0 to 400 bytes of filling that compresses well."""
    start, size = rng.randrange(40), rng.randrange(400)
    head = b"%s|%d|%s" % (stream.encode(), sequence, (WORDS * 5)[start : start + size])
    return b"%s|%08x" % (head, zlib.crc32(head))


def read_value(value: bytes | None) -> tuple[str, int]:
    """Returns the stream and the sequence; raises NotOurs for other values."""
    head, bar, check = (value or b"").rpartition(b"|")
    if not bar or check != b"%08x" % zlib.crc32(head):
        raise NotOurs(f"the bytes {value!r:.80} fail their checksum")
    stream, sequence, _ = head.split(b"|", 2)
    return stream.decode(), int(sequence)
