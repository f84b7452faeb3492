"""A daemon limited to a share of the others' processor time: it is stopped while it is ahead of that
share."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from statistics import median

from .site import HostDaemon

_LOOK_S = 0.005
_LEAST_S = 0.002  # minimum processor time before it is stopped
_CPU_CLOCK = 2  # a process's clock, in the encoding of pthread_getcpuclockid(3)


def cpu_seconds(process: int) -> float:
    """Returns the processor time of all threads, in user space and in the kernel. 0 if the process has
    ended."""
    try:
        return time.clock_gettime((~process << 3) | _CPU_CLOCK)
    except OSError:
        return 0.0


class Slowed:
    """A context in which the last daemon has `share` of the median of the other daemons, not counting the
    first, which is the origin. Once these are done, it continues at the same speed. A share of 0 does
    nothing."""

    def __init__(self, daemons: Sequence[HostDaemon], share: float) -> None:
        *others, last = (daemon.process.pid for daemon in daemons[1:])
        self._others, self._slow, self._share = others, last, share
        self._ended = threading.Event()
        # when the others finished, and their processor time by then
        self._done: tuple[float, float] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Slowed:
        self._begun = time.monotonic()
        self._before = {process: cpu_seconds(process) for process in (*self._others, self._slow)}
        if self._share and self._others:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._signal(signal.SIGCONT)

    def others_are_done(self) -> None:
        self._done = time.monotonic(), self._taken()

    def _run(self) -> None:
        stopped = False
        while not self._ended.wait(_LOOK_S):
            ahead = self._spent(self._slow) > max(_LEAST_S, self._share * self._allowed())
            if ahead != stopped:
                self._signal(signal.SIGSTOP if ahead else signal.SIGCONT)
                stopped = ahead

    def _allowed(self) -> float:
        """Returns the others' processor time, extrapolated at the same rate once they have finished."""
        if self._done is None:
            return self._taken()
        when, taken = self._done
        return taken * (time.monotonic() - self._begun) / (when - self._begun)

    def _taken(self) -> float:
        return median(self._spent(process) for process in self._others) if self._others else 0.0

    def _spent(self, process: int) -> float:
        return cpu_seconds(process) - self._before[process]

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._slow, number)
