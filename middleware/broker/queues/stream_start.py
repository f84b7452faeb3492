"""The places where consumers of streams start, and the ages that streams are declared with.

`x-stream-offset` is `first`, `last` (the last chunk: here, record batch), `next`, an offset, a timestamp, or
an interval such as `1h` before now. Without it, a consumer starts at the next message.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from .refusals import precondition, text

_AGE: Final = re.compile(r"(\d{1,12})([YMDhms])")
_SECONDS: Final = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3600, "m": 60, "s": 1}
OFFSET: Final = "x-stream-offset"


class StartKind(enum.Enum):
    """The kind of place where a consumer starts."""

    FIRST = "first"
    LAST = "last"
    NEXT = "next"
    OFFSET = "offset"
    TIME = "timestamp"


class StreamStart(Struct, frozen=True):
    """The place where a consumer starts. `value`: an offset, or milliseconds since the Unix epoch."""

    kind: StartKind
    value: int = 0


NEXT: Final = StreamStart(StartKind.NEXT)
_WORDS: Final = {one.value: StreamStart(one) for one in (StartKind.FIRST, StartKind.LAST, StartKind.NEXT)}


def age_of(said: str) -> int:
    """Returns an age such as `7D` in seconds. Raises ValueError."""
    found = _AGE.fullmatch(said)
    if found is None:
        raise ValueError(said)
    return int(found[1]) * _SECONDS[found[2]]


def start_of(arguments: Mapping[str, object], wall: float) -> StreamStart:
    """Returns where a consumer with these arguments starts. `wall`: now, in seconds since the Unix epoch.
    Refuses anything else with PRECONDITION_FAILED."""
    value = arguments.get(OFFSET)
    if value is None:
        return NEXT
    if isinstance(value, bytes):
        value = text(value)
    if isinstance(value, str):
        if value in _WORDS:
            return _WORDS[value]
        if _AGE.fullmatch(value):
            return StreamStart(StartKind.TIME, int((wall - age_of(value)) * 1000))
    elif isinstance(value, datetime):
        return StreamStart(StartKind.TIME, int(value.timestamp() * 1000))
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return StreamStart(StartKind.OFFSET, value)
    raise precondition(f"invalid arg '{OFFSET}': {value!r}")
