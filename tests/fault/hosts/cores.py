"""Which processes run on which cores, and which of them come first there.

Who comes first has a short slice and a high weight: Linux's scheduler (EEVDF, since 6.12) takes the core from
who has a longer one as soon as such a thread has something to do, and gives it back where the thread does
not rest. A real-time policy would not: what spins in it keeps the others from their core for 0.95 s at a
time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator

_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}  # sched_setattr(2); there is no call for it in libc 2.36
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # struct sched_attr, its first version
_OTHER = 0
_SLICE_NS = 100_000  # the shortest there is
_FIRST, _BEFORE_MOST, _BEFORE_OTHERS = -20, -19, -10  # nice values


@contextlib.contextmanager
def halves(apart: bool) -> Iterator[tuple[set[int], set[int]]]:
    """(cores for some, those of all else, which is what is started meanwhile); the former empty where
    nothing is to be kept `apart`, or cannot be."""
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


def keep_to(cores: set[int], processes: Iterable[int], *, first: bool) -> None:
    """These processes, with all their threads, run on these cores from now on; those that come `first` as
    soon as they have something to do, and others before most of what runs there."""
    for process in processes:
        for thread in map(int, os.listdir(f"/proc/{process}/task")):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, cores)
                os.setpriority(os.PRIO_PROCESS, thread, _FIRST if first else _BEFORE_MOST)
                if first:
                    _shorten_slice(thread)


def _shorten_slice(thread: int) -> None:
    """OSError where the kernel refuses. Older kernels do not, and have one slice for all."""
    number = _SET_ATTRIBUTES.get(platform.machine())
    if number is None:
        return
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, _OTHER, 0, _FIRST, 0, _SLICE_NS, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, thread, attributes, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"sched_setattr: {os.strerror(error)}")
