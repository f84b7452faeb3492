"""Cores are kept awake on request, by the best way that works on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.core import awake as module
from bench.core.awake import awake, how, polling, spinning

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


def open_files() -> set[str]:
    """Returns the open files of this process."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


def refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Simulates a user without root's rights: neither kernel interface is available."""
    monkeypatch.setattr(module, "_LATENCY", folder / "cpu_dma_latency" / "refused")


def test_one_process_of_the_lowest_kind_on_each_core() -> None:
    with spinning() as pids:
        for pid in pids:
            wait_for(idle, pid)
        cores = [os.sched_getaffinity(pid) for pid in pids]
        assert sorted(next(iter(core)) for core in cores) == sorted(os.sched_getaffinity(0))
        assert all(len(core) == 1 for core in cores)
        assert all(os.getsid(pid) == pid for pid in pids)
        groups = [Path(f"/proc/{pid}/autogroup") for pid in pids]
        assert all(group.read_text().endswith("nice 19\n") for group in groups if group.exists())
    assert not any(runs(pid) for pid in pids)


def test_the_kernel_is_asked_for_no_latency_for_as_long_as_the_file_is_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, driver = tmp_path / "cpu_dma_latency", tmp_path / "current_driver"
    monkeypatch.setattr(module, "_LATENCY", asked)
    monkeypatch.setattr(module, "_IDLE_DRIVER", driver)
    for kind, expected in (("haltpoll\n", True), ("none\n", False)):
        driver.write_text(kind)
        asked.unlink(missing_ok=True)
        with polling() as polls:
            assert polls is expected
            assert (asked.exists() and asked.read_bytes() == bytes(4)) is expected
            assert (str(asked) in open_files()) is expected
        assert str(asked) not in open_files()
    driver.unlink()  # as on a kernel without cpuidle
    with polling() as polls:
        assert not polls


def test_it_is_said_how_and_done_once() -> None:
    with awake() as way:
        assert how() == way != ""
        with awake() as twice:
            assert twice == way
        assert how() == way
    assert how() == ""


def test_where_the_kernel_may_not_be_asked_processes_spin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused(monkeypatch, tmp_path)
    with awake() as way:
        assert way == "idle processes spin"


def test_nothing_is_done_where_it_is_not_wanted() -> None:
    with awake(False) as way:
        assert (way, how()) == ("", "")


def test_who_is_killed_leaves_nothing_spinning() -> None:
    program = (
        "from bench.core.awake import spinning\nwith spinning() as pids: print(*pids, flush=True); input()"
    )
    begun = [sys.executable, "-c", program]
    process = subprocess.Popen(begun, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        begun_pids = [int(pid) for pid in process.stdout.readline().split()]
        assert begun_pids
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pid in begun_pids:
            wait_for(lambda pid: not runs(pid), pid)
