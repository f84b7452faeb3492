"""Keeps cores from halting during a measurement.

An idle core halts until it is interrupted. A virtual machine must then request the core from the host again,
which takes long on a busy host; docs/benchmarks.md gives numbers. There are two ways to avoid it.

The kernel's own: a process that holds /dev/cpu_dma_latency open may set the microseconds within which a core
must be back (PM QoS, Documentation/power/pm_qos_interface.rst); with 0 an idle core polls for work instead of
halting, and needs no interrupt to wake. That requires root, and a system with selectable idle states
(cpuidle).

Otherwise a process of the lowest class (SCHED_IDLE) spins on each core. Linux first shares a core between
sessions (autogroups, sched(7)), and in its own session a spinning process would get as much as a server in
another: so it has a separate session of the least weight. Even so it keeps a core for up to three
milliseconds at times, and waking a process that takes the core from it costs an interrupt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_SET = "TREECAST_BENCH_AWAKE"
SPINNING = "idle processes spin"
_LATENCY = Path("/dev/cpu_dma_latency")
_IDLE_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")
_SPIN = """
import os, pathlib, sys
group = pathlib.Path("/proc/self/autogroup")
if group.exists():
    group.write_text("19")
core, parent = map(int, sys.argv[1:])
os.sched_setaffinity(0, {core})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextlib.contextmanager
def awake(wanted: bool = True) -> Iterator[str]:
    """Keeps cores from halting, by the better available method; `how` then names it.

    Does nothing if not `wanted` or done already.
    """
    if not wanted or how():
        yield how()
        return
    with contextlib.ExitStack() as stack:
        if stack.enter_context(polling()):
            os.environ[_SET] = "idle cores poll"
        elif stack.enter_context(spinning()):
            os.environ[_SET] = SPINNING
        try:
            yield how()
        finally:
            os.environ.pop(_SET, None)


def how() -> str:
    """Returns how this process, or one that started it, keeps the cores awake; empty if it doesn't."""
    return os.environ.get(_SET, "")


@contextlib.contextmanager
def polling() -> Iterator[bool]:
    """Makes the kernel poll when idle; yields False if that is impossible or not permitted."""
    with contextlib.ExitStack() as stack:
        try:
            if _IDLE_DRIVER.read_text().strip() in ("", "none"):
                raise OSError
            request = stack.enter_context(open(_LATENCY, "wb", buffering=0))
            request.write(struct.pack("=i", 0))
        except OSError:
            yield False
        else:
            yield True  # for as long as the file is open


@contextlib.contextmanager
def spinning() -> Iterator[list[int]]:
    """Yields the process ids of spinners on the cores that this process may use; none without SCHED_IDLE."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "SCHED_IDLE") else []
    command = [sys.executable, "-S", "-c", _SPIN]
    processes = [
        subprocess.Popen(
            [*command, str(core), str(os.getpid())], stdin=subprocess.DEVNULL, start_new_session=True
        )
        for core in cores
    ]
    try:
        yield [one.pid for one in processes]
    finally:
        for one in processes:
            one.send_signal(signal.SIGKILL)
            one.wait()
