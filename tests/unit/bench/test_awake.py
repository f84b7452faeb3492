"""Cores are kept awake by what gives way to everything, for as long as it is wanted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.core.awake import awake, is_on

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the system has no SCHED_IDLE")
WAIT_S = 60.0


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(what: Callable[[int], bool], pid: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def idle(pid: int) -> bool:
    return os.sched_getscheduler(pid) == os.SCHED_IDLE


def test_one_process_of_the_lowest_kind_on_each_core() -> None:
    with awake() as spinning:
        for pid in spinning:
            wait_for(idle, pid)
        cores = [os.sched_getaffinity(pid) for pid in spinning]
        assert sorted(next(iter(core)) for core in cores) == sorted(os.sched_getaffinity(0))
        assert all(len(core) == 1 for core in cores)
        assert all(os.getsid(pid) == pid for pid in spinning)
        groups = [Path(f"/proc/{pid}/autogroup") for pid in spinning]
        assert all(group.read_text().endswith("nice 19\n") for group in groups if group.exists())
        assert is_on()
        with awake() as twice:
            assert twice == []
        assert is_on()
    assert not is_on()
    assert not any(runs(pid) for pid in spinning)


def test_nothing_spins_where_it_is_not_wanted() -> None:
    with awake(False) as spinning:
        assert (spinning, is_on()) == ([], False)


def test_who_is_killed_leaves_nothing_spinning() -> None:
    program = (
        "from bench.core.awake import awake\nwith awake() as spinning: print(*spinning, flush=True); input()"
    )
    begun = [sys.executable, "-c", program]
    process = subprocess.Popen(begun, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        spinning = [int(pid) for pid in process.stdout.readline().split()]
        assert spinning
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pid in spinning:
            wait_for(lambda pid: not runs(pid), pid)
