"""Cores that do not halt while something is measured.

Where nothing runs, a core halts until it is interrupted. In a virtual machine that means to ask the host for
it again, and on a busy host that takes long: a process that slept for 2 ms woke 0.2 ms late at the median,
4 ms in a tenth of all cases and 24 ms in a hundredth. With a process of the lowest kind (SCHED_IDLE) that
spins on each core it was 0.07, 0.08 and 0.1 ms. Whatever else becomes ready takes the core from it at once,
so that nobody has less of it; all servers and loads have the same. Linux shares a core between sessions first
(autogroups, sched(7)), and in its own, a spinning process would have as much as a server in another: so it
has a session of its own, of the least weight.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

_SET = "TREECAST_BENCH_AWAKE"
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
def awake(wanted: bool = True) -> Iterator[list[int]]:
    """Keeps the cores that this process may use from halting; the process ids of what spins on them.

    None where it is not `wanted`, is done already, or the system has no SCHED_IDLE.
    """
    if not wanted or is_on() or not hasattr(os, "SCHED_IDLE"):
        yield []
        return
    command = [sys.executable, "-S", "-c", _SPIN]
    spinning = [
        subprocess.Popen(
            [*command, str(core), str(os.getpid())], stdin=subprocess.DEVNULL, start_new_session=True
        )
        for core in sorted(os.sched_getaffinity(0))
    ]
    os.environ[_SET] = "1"
    try:
        yield [one.pid for one in spinning]
    finally:
        del os.environ[_SET]
        for one in spinning:
            one.send_signal(signal.SIGKILL)
            one.wait()


def is_on() -> bool:
    """Whether this process, or one that started it, keeps the cores awake."""
    return _SET in os.environ
