"""The assignment of a member of protocol type "consumer", for display.

The fields that all versions of Kafka's ConsumerProtocolAssignment share:

  version  int16
  topics   int32 count; per topic an int16 length and that many bytes of UTF-8, an int32 count and
           that many int32 partition numbers
"""

from __future__ import annotations

import struct
from collections.abc import Sequence


def assigned_partitions(assignment: bytes) -> Sequence[tuple[str, Sequence[int]]]:
    """Returns topics and partitions; empty if `assignment` is not a consumer assignment."""
    try:
        _version, topics = struct.unpack_from(">hi", assignment)
        position, found = 6, []
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", assignment, position)
            name = assignment[position + 2 : position + 2 + length]
            position += 2 + length
            (count,) = struct.unpack_from(">i", assignment, position)
            if length < 0 or len(name) != length or not 0 <= count <= len(assignment) // 4:
                return ()
            found.append((name.decode(), struct.unpack_from(f">{count}i", assignment, position + 4)))
            position += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return ()
    return found
