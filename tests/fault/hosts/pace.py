"""Waiting with progress reports."""

from __future__ import annotations

import time
from collections.abc import Callable

from .result import Options


def progress(options: Options, what: Callable[[], str], seconds: float) -> None:
    """Waits `seconds` and reports progress from time to time."""
    deadline = time.monotonic() + seconds
    every = max(2.0, seconds / 30)
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(every, left))
        options.say(f"{what()}, {max(0.0, deadline - time.monotonic()):.0f} s to go")
