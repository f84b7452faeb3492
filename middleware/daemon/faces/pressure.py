"""When AMQP's publishers have to wait: for memory, or for room on the disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .. import tuning
from ..resource_problems import Troubles
from ..settings import Settings

LEAST_FREE = 50_000_000  # free bytes on disk below which publishers wait: RabbitMQ's disk_free_limit
LOW_DISK = "low on disk"  # RabbitMQ's wording, which clients show
LOW_MEMORY = "low on memory"
_GIVE_BACK = 10.0  # seconds
_MEMORY_SHARE = 0.6  # of the machine's memory, as in RabbitMQ


class Pressure:
    """Tells the reason for which publishers have to wait, "" if there is none.

    A peak leaves free memory in the heap. It is given back to the system before publishers have to wait, at
    most every `_GIVE_BACK` s.
    """

    def __init__(
        self,
        most: float,
        troubles: Troubles,
        resident: Callable[[], int],
        give_back: Callable[[], None] = tuning.give_back,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most`: bytes of resident memory above which they wait. `resident`: the present ones."""
        self._most = most
        self._troubles = troubles
        self._resident = resident
        self._give_back = give_back
        self._clock = clock
        self._given_at = -_GIVE_BACK

    def __call__(self) -> str:
        space = self._troubles.space
        if self._troubles.disk.text or (space is not None and space.free < LEAST_FREE):
            return LOW_DISK
        return LOW_MEMORY if self._is_low() else ""

    def _is_low(self) -> bool:
        if self._resident() <= self._most:
            return False
        if self._clock() - self._given_at < _GIVE_BACK:
            return True
        self._given_at = self._clock()
        self._give_back()
        return self._resident() > self._most


def most_memory(settings: Settings) -> float:
    """Returns the resident memory in bytes above which publishers wait."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return settings.amqp_max_memory_bytes or _MEMORY_SHARE * machine
