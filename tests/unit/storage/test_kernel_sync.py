"""fdatasync by the kernel's own queue, and the flusher that uses it if it can."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage import kernel_sync
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.kernel_sync import KernelSync
from treecast.middleware.storage.settings import FsyncPolicy, LogSettings

Kit = Any
BATCH = LogSettings(FsyncPolicy.BATCH)
NO_QUEUE = "the kernel has no queue for fdatasync, or gives this process none"  # for example in a sandbox


@pytest.fixture
async def kernel() -> AsyncIterator[KernelSync]:
    found = KernelSync.begin(asyncio.get_running_loop())
    if found is None:
        pytest.skip(NO_QUEUE)
    yield found
    found.close()


@pytest.fixture
def descriptor(tmp_path: Path) -> Any:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


class Told:
    """Collects the results; `all` is set after the last expected one."""

    def __init__(self, expected: int) -> None:
        self.errors: list[OSError | None] = []
        self._expected = expected
        self.all = asyncio.Event()

    def __call__(self, error: OSError | None) -> None:
        self.errors.append(error)
        if len(self.errors) == self._expected:
            self.all.set()


async def test_each_is_told_of_once(kernel: KernelSync, descriptor: int) -> None:
    for many in (1, 2, 10, 64):
        told = Told(many)
        for _ in range(many):
            os.pwrite(descriptor, b"data", 0)
            assert kernel.sync(descriptor, told)
        await asyncio.wait_for(told.all.wait(), 30)
        await asyncio.sleep(0.01)
        assert told.errors == [None] * many


async def test_what_is_full_or_refused_is_left_to_the_caller(
    kernel: KernelSync, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(1)
    reading, writing = os.pipe()
    assert not kernel.sync(reading, told)  # a pipe has no data on a disk
    os.close(reading)
    os.close(writing)
    assert not kernel.sync(reading, told)
    monkeypatch.setattr(kernel_sync, "_ROOM", 1)
    assert kernel.sync(descriptor, told)
    assert not kernel.sync(descriptor, told)
    await asyncio.wait_for(told.all.wait(), 30)
    assert told.errors == [None]


def refuse(monkeypatch: pytest.MonkeyPatch, kernel: KernelSync, refused: int) -> None:
    """Makes the kernel report an error for the first finished request."""
    call, pending = kernel._call, [refused]

    def failing(number: object, *arguments: object) -> int:
        found = call(number, *arguments)
        if number == kernel._numbers.getevents and found and pending:
            event = kernel_sync._EVENT
            of, request, _, _ = event.unpack_from(kernel._events)
            event.pack_into(kernel._events, 0, of, request, -pending.pop(), 0)
        return found

    monkeypatch.setattr(kernel, "_call", failing)


async def test_what_the_disk_refuses_is_told(
    kernel: KernelSync, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, kernel, errno.EIO)
    told = Told(2)
    assert kernel.sync(descriptor, told)
    assert kernel.sync(descriptor, told)
    await asyncio.wait_for(told.all.wait(), 30)
    assert [error and error.errno for error in told.errors] == [errno.EIO, None]


async def test_one_who_fails_takes_no_other_with_it(kernel: KernelSync, descriptor: int) -> None:
    told, failures = Told(10), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def fail(error: OSError | None) -> None:
        told(error)
        raise ZeroDivisionError

    for number in range(10):  # in any order of completion
        assert kernel.sync(descriptor, told if number % 2 else fail)
    await asyncio.wait_for(told.all.wait(), 30)
    await asyncio.sleep(0)
    assert [type(failure) for failure in failures] == [ZeroDivisionError] * 5


async def test_closing_waits_for_what_is_under_way(descriptor: int) -> None:
    kernel = KernelSync.begin(asyncio.get_running_loop())
    if kernel is None:
        pytest.skip(NO_QUEUE)
    assert kernel.sync(descriptor, Told(1))
    kernel.close()


@pytest.mark.parametrize("machine", ["riscv64", "x86_64", "aarch64"])
async def test_systems_without_the_queue_get_none(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)

    def refuse(*_: object) -> int:
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(KernelSync, "_call", refuse)
    assert KernelSync.begin(asyncio.get_running_loop()) is None


# --- the flusher


@pytest.fixture
async def flusher() -> AsyncIterator[Flusher]:
    flusher = Flusher()
    yield flusher
    await flusher.close()


async def acknowledge(kit: Kit, flusher: Flusher, log: Any) -> None:
    kit.append(log, kit.batch())
    done = flusher.acknowledged(log, 1000)
    assert done is not None
    await done


@pytest.mark.usefixtures("kernel")
async def test_a_flush_of_one_file_takes_no_thread(kit: Kit, path: Path, flusher: Flusher) -> None:
    log = kit.open(path, settings=BATCH, disk=Disk())
    await acknowledge(kit, flusher, log)  # the first one also syncs the directory entry
    threads = set(flusher._executor._threads)
    submitted = flusher._executor._work_queue.qsize()
    for expected in range(2, 30):
        await acknowledge(kit, flusher, log)
        assert (log.flushed_offset, log.counters.fsyncs) == (expected, expected)
    await flusher.settle()
    assert set(flusher._executor._threads) == threads
    assert flusher._executor._work_queue.qsize() == submitted
    assert flusher._kernel is not None
    assert flusher._kernel._number == 28


@pytest.mark.parametrize("refused", ["the queue", "ctypes"])
async def test_without_the_kernel_it_takes_a_thread(
    kit: Kit, path: Path, flusher: Flusher, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    if refused == "ctypes":
        monkeypatch.setitem(sys.modules, kernel_sync.__name__, None)
    else:
        monkeypatch.setattr(KernelSync, "begin", lambda _: None)
    log = kit.open(path, settings=BATCH, disk=Disk())
    for _ in range(3):
        await acknowledge(kit, flusher, log)
    assert log.flushed_offset == 3


async def test_a_disk_that_refuses_stops_the_log(
    kit: Kit, path: Path, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kit.open(path, settings=BATCH, disk=Disk())
    for _ in range(2):
        await acknowledge(kit, flusher, log)
    if flusher._kernel is None:
        pytest.skip(NO_QUEUE)
    refuse(monkeypatch, flusher._kernel, errno.EIO)
    with pytest.raises(TreecastError) as refused:
        await acknowledge(kit, flusher, log)
    assert refused.value.fault is Fault.STORAGE
    with pytest.raises(TreecastError):
        kit.append(log, kit.batch())


async def test_a_disk_of_its_own_kind_is_asked_itself(kit: Kit, path: Path, flusher: Flusher) -> None:
    asked: list[int] = []

    class Counting(Disk):
        def sync(self, descriptor: int) -> None:
            asked.append(descriptor)
            super().sync(descriptor)

    log = kit.open(path, settings=BATCH, disk=Counting())
    for _ in range(3):
        await acknowledge(kit, flusher, log)
    assert len(asked) == 4  # one of them for the file of leader epochs
