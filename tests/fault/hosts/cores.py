"""Assigns processes to cores, and decides which of them have priority there.

Real hosts have their own cores and wait for nobody; here they share two. Linux has two ways to set
priorities, and neither suits all processes:

A real-time policy takes the core at once from any other process, from the other core too. But a process that
spins under it blocks the others for 0.95 s at a time, and librdkafka's producer does spin (poll with a
time-out of 0) while five requests wait for a reply: so the leader could not reply.

A short slice and a high weight (EEVDF, since 6.12) give the core back while a thread keeps running. But a
thread that has just had more than its share waits for its core until the next tick, a millisecond; and where
the kernel preempts lazily (since 6.13), a core is not interrupted for a thread that another core has woken.
With this alone, waiting for a core was nearly all that a catch-up added to latencies.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import platform
import struct
from collections.abc import Iterable, Iterator

_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}  # sched_setattr(2); libc 2.36 has no call for it
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # struct sched_attr, its first version
_SHORTEST_NS, _USUAL_NS = 100_000, 0  # slices; 0: the system's default
_FIRST, _BEFORE_OTHERS = -20, -10  # nice values


class Place(enum.Enum):
    """The priority of a process on a core that others want as well."""

    FIRST = "at once and without limit, also before AT_ONCE; for readers"
    AT_ONCE = "at once and without limit; for processes that rest soon"
    SOON = "mostly at once; yields the core again"
    SHARED = "shared with all others"


_REAL_TIME = {Place.FIRST: 2, Place.AT_ONCE: 1}  # priorities


@contextlib.contextmanager
def halves(apart: bool) -> Iterator[tuple[set[int], set[int]]]:
    """Yields (the reserved cores, all other cores); processes started meanwhile use the latter. The former is
    empty if `apart` is false or the machine has too few cores."""
    usable = os.sched_getaffinity(0)
    rest = set(sorted(usable)[len(usable) // 2 :])
    if not apart or rest == usable:
        yield set(), usable
        return
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.sched_setaffinity(0, rest)
    os.setpriority(os.PRIO_PROCESS, 0, _BEFORE_OTHERS)
    try:
        yield usable - rest, rest
    finally:
        os.sched_setaffinity(0, usable)
        os.setpriority(os.PRIO_PROCESS, 0, before)


def keep_to(cores: set[int], processes: Iterable[int], place: Place) -> None:
    """Moves these processes, with all their threads, to these cores from now on."""
    for process in processes:
        for thread in map(int, os.listdir(f"/proc/{process}/task")):
            with contextlib.suppress(ProcessLookupError):  # the thread has ended
                os.sched_setaffinity(thread, cores)
                if place in _REAL_TIME:
                    os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(_REAL_TIME[place]))
                elif place is Place.SOON:
                    _share(thread, _FIRST, _SHORTEST_NS)
                else:
                    _share(thread, _BEFORE_OTHERS, _USUAL_NS)


def _share(thread: int, nice: int, slice_ns: int) -> None:
    """Lets a thread share its core by weight. Raises OSError if the kernel refuses; older kernels have one
    slice for all."""
    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, thread, nice)
    number = _SET_ATTRIBUTES.get(platform.machine())
    if number is None:
        return
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, thread, attributes, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"sched_setattr: {os.strerror(error)}")
