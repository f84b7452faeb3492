"""Process-wide settings at start: glibc's malloc, open files, the event loop, the collector.

mallopt: received and read chunks are a few MiB at most. By default glibc allocates such buffers with mmap and
returns them with munmap at each free, and trims the heap's top: that causes page faults for every chunk,
measured as a factor 2.3 in throughput. With raised thresholds they stay in the heap. The price is memory that
the process keeps after a peak, at most `TRIM` beyond what is in use.
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

MMAP = 32 * 1024 * 1024  # glibc's upper bound on 64 bits; larger buffers are mapped individually
TRIM = 64 * 1024 * 1024
PAD = 1 * 1024 * 1024

OLDEST = 2  # generation
SLOW_COLLECTION = 0.05  # seconds of processor time: 50,000 objects and more


def tune_malloc() -> bool:
    """Sets the three thresholds; returns whether the C library accepted them. Only glibc has mallopt.

    Importing ctypes allocates a callback, which hardened systems may refuse (MemoryError).
    """
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, OSError, AttributeError, MemoryError):
        return False
    settings = ((M_MMAP_THRESHOLD, MMAP), (M_TRIM_THRESHOLD, TRIM), (M_TOP_PAD, PAD))
    return all(mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings)


def give_back() -> None:
    """Returns free memory of the heap to the system, which a peak has left there, with glibc."""
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (ImportError, OSError, AttributeError, MemoryError):
        return


def raise_open_files() -> int:
    """Raises the number of open files to the hard limit. Returns the effective limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns uvloop's event loop if installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def freeze_heap() -> None:
    """Excludes objects created at start-up from garbage collection, then enables it.

    There is no collection first: it finds a few hundred of 50,000 objects, and the first clients would wait
    15 ms for it. Later objects that stay (a written partition has some 20) would make collections longer and
    longer; so after one that took `SLOW_COLLECTION`, its survivors are excluded as well.
    """
    gc.freeze()
    # thread time excludes other processes' use of the processor
    gc.callbacks.append(SlowCollections(time.thread_time))
    gc.enable()


class SlowCollections:
    """A callback of the collector. After a slow full collection it excludes the survivors. These are still
    freed when their reference count drops to 0; only later cycles among them leak.
    """

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
