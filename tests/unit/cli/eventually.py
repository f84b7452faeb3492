"""Waits until commands of running daemons show the expected state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT = 60.0  # seconds


def until(condition: Callable[[], Any]) -> Any:
    """Calls `condition` until it is true, and returns its result."""
    end = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.1)  # each call starts a command, and no command reports a change by itself
    return found
