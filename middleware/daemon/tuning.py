"""What is set for the whole process at start: glibc's malloc, open files, the event loop, the collector.

mallopt: received and read chunks are a few MiB at most. By default glibc takes such buffers with mmap
and hands them back with munmap at each free, and trims the heap's top: page faults for every chunk,
measured as a factor 2.3 in throughput. With the thresholds raised they stay in the heap. The price is
memory that stays with the process after a peak, at most `TRIM` beside what is in use.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Callable, Mapping

M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3

MMAP = 32 * 1024 * 1024  # glibc's upper bound on 64 bits; larger buffers are mapped one by one
TRIM = 64 * 1024 * 1024
PAD = 1 * 1024 * 1024

OLDEST = 2  # generation
SLOW_COLLECTION = 0.05  # seconds of the processor: 50,000 objects and more


def tune_malloc() -> bool:
    """Sets the three; answers whether the C library took them. Other libraries than glibc lack mallopt.

    Importing ctypes makes a callback, which hardened systems may refuse to allocate (MemoryError).
    """
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, OSError, AttributeError, MemoryError):
        return False
    settings = ((M_MMAP_THRESHOLD, MMAP), (M_TRIM_THRESHOLD, TRIM), (M_TOP_PAD, PAD))
    return all(mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings)


def raise_open_files() -> int:
    """Raises the number of open files to the hard limit; answers the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def freeze_heap() -> None:
    """Takes what start-up made out of the garbage collector's sight, and lets it look at the rest.

    No collection before: it finds a few hundred of 50,000 objects, and the first clients wait 15 ms for it.
    What is made later and stays (a partition that was written is some 20 objects) would make collections
    longer and longer; so one that took `SLOW_COLLECTION` is the last to look at what it left.
    """
    gc.freeze()
    gc.callbacks.append(SlowCollections(time.thread_time))  # not what others take the processor for
    gc.enable()


class SlowCollections:
    """Called by the collector. After a slow whole collection, what it found in use is out of its sight: it is
    freed when nothing refers to it, and only a cycle of it that is given up later stays."""

    def __init__(self, clock: Callable[[], float], most: float = SLOW_COLLECTION) -> None:
        self._clock, self._most = clock, most
        self._begun = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            self._begun = self._clock()
        elif self._clock() - self._begun >= self._most:
            gc.freeze()
