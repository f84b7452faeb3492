"""Processes seen from the operating system: a server with all that it has started, and their CPU time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2  # how Linux numbers clocks: the complement of the process id, then the kind in 3 bits


def descendants(pid: int) -> list[int]:
    """Returns `pid` and all its living descendants."""
    found = [pid]
    for known in found:
        for task in Path(f"/proc/{known}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found.extend(int(child) for child in task.read_text().split())
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns user and system time of the processes, all their threads and their reaped children.

    A process's own time is read from its CPU-time clock (clock_getcpuclockid, to the nanosecond), that of its
    reaped children from /proc/<pid>/stat (cutime, cstime, to 10 ms).
    """
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[13:15]) / _TICKS
            total += time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return total
