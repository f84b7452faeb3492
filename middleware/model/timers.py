"""How long an event loop is asked to wait, so that it does not call before the time has come."""

from __future__ import annotations

from math import ceil


def no_sooner(seconds: float) -> float:
    """`seconds`, rounded up to whole milliseconds; 0 where they are over.

    uvloop's clock and its timers go by milliseconds, and it rounds to the nearest one: what is asked for in
    0.4 ms is called at once. Who finds that nothing is due then, and asks again, keeps a core busy until the
    clock goes on. asyncio's own loop waits for whole milliseconds anyway.
    """
    return ceil(seconds * 1000) / 1000 if seconds > 0 else 0.0
