"""Waiting for what commands of running daemons show in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT = 60.0  # seconds until something has to have happened


def until(condition: Callable[[], Any]) -> Any:
    """What `condition` returns as soon as that is true."""
    end = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)  # each look starts a command: none shows a change by itself
    return found
