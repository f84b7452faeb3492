"""Waiting in tests whose parts all run in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_PASSES = 1_000_000  # of the event loop


async def holds(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds. Counts passes of the loop: a slow machine only takes longer."""
    for _ in range(_PASSES):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("waited in vain")
