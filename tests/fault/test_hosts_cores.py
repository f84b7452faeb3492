"""The placement and priority of a fault run's processes on cores."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.hosts.cores import Place, halves, keep_to

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")


@contextlib.contextmanager
def running() -> Iterator[int]:
    """Yields a process with two threads, one of which spins."""
    spin = "import threading; threading.Thread(target=input).start(); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def threads(process: int) -> list[int]:
    return [int(thread) for thread in os.listdir(f"/proc/{process}/task")]


def test_only_who_rests_soon_has_a_real_time_policy() -> None:
    core = max(os.sched_getaffinity(0))
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    with running() as at_once, running() as soon, running() as shared:
        keep_to({core}, [shared], Place.SHARED)
        keep_to({core}, [soon], Place.SOON)
        keep_to({core}, [at_once], Place.AT_ONCE)
        wanted = {at_once: (os.SCHED_RR, nice), soon: (os.SCHED_OTHER, -20), shared: (os.SCHED_OTHER, -10)}
        for process, policy in wanted.items():
            assert len(threads(process)) == 2
            for thread in threads(process):
                assert os.sched_getaffinity(thread) == {core}
                assert (os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)) == policy


def test_a_place_can_be_given_up_for_another() -> None:
    core = max(os.sched_getaffinity(0))
    with running() as process:
        for place, policy in (
            (Place.AT_ONCE, os.SCHED_RR),
            (Place.SOON, os.SCHED_OTHER),
            (Place.AT_ONCE, os.SCHED_RR),
            (Place.SHARED, os.SCHED_OTHER),
        ):
            keep_to({core}, [process], place)
            assert {os.sched_getscheduler(thread) for thread in threads(process)} == {policy}


def slice_ns(folder: str) -> str:
    """Returns the slice of a process or thread; empty if the kernel does not report it."""
    told = Path(folder, "sched")
    return "".join(re.findall(r"se.slice\s*:\s*(\d+)", told.read_text())) if told.exists() else ""


@pytest.mark.skipif(not slice_ns("/proc/self"), reason="the kernel does not tell of slices")
def test_its_slice_is_short() -> None:
    with running() as first:
        keep_to({max(os.sched_getaffinity(0))}, [first], Place.SOON)
        for thread in threads(first):
            assert slice_ns(f"/proc/{first}/task/{thread}") == "100000"


def test_halves_are_of_all_cores_and_given_back() -> None:
    before = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    with halves(True) as (own, rest):
        assert own | rest == before[0]
        assert os.sched_getaffinity(0) == rest
        assert not own & rest
    assert (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)) == before
    with halves(False) as (own, rest):
        assert (own, rest) == (set(), before[0])
