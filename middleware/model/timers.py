"""Deadlines that never come, and rounding of event-loop timers, so that they never fire early."""

from __future__ import annotations

from math import ceil
from typing import Final

NEVER: Final = float("inf")  # a deadline, in seconds of any clock


def no_sooner(seconds: float) -> float:
    """Returns `seconds` rounded up to whole milliseconds; 0 if the time has passed.

    uvloop's clock and timers count milliseconds and round to the nearest one, so a timer of 0.4 ms fires at
    once. A caller that then finds nothing due and asks again would keep a core busy until the clock advances.
    asyncio's own loop waits for whole milliseconds anyway.
    """
    return ceil(seconds * 1000) / 1000 if seconds > 0 else 0.0
