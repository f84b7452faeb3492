"""Why bytes are not a valid segment."""

from __future__ import annotations

import enum


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
    SEALED = "it is sealed, and this host opens no seals: give all hosts the same --fabric-protection"
    UNSEALED = "it is not sealed, and this host asks for seals: give all hosts the same --fabric-protection"
    REPLAYED = "it has come before, or long after what was sent later"


class SegmentError(ValueError):
    """Refused bytes; `fault` is the reason to count."""

    def __init__(self, fault: SegmentFault, detail: str = "") -> None:
        super().__init__(detail or fault.value)
        self.fault = fault
