"""A disk that is full, or that cannot flush: some calls are refused, the others go on."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from tests.unit.broker.house import COMMITTED, House
from tests.unit.refusals import refusal

from treecast.middleware.broker import TRANSACTIONS
from treecast.middleware.model.errors import Fault
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.settings import FsyncPolicy


class FullDisk:
    """Refuses every write to the logs while `full`, but none to the tables: what they decide is stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        write = Disk.write

        def refusing(disk: Disk, descriptor: int, *args: Any) -> int:
            if self.full and "/logs/" in os.readlink(f"/proc/self/fd/{descriptor}"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(disk, descriptor, *args)

        monkeypatch.setattr(Disk, "write", refusing)


def broken_sync(disk: Disk, descriptor: int) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


# --- a full disk


async def test_a_full_disk_refuses_appends_and_serves_reads(house: House, disk: FullDisk) -> None:
    await house.create()
    house.append(b"a")
    disk.full = True
    for _ in range(3):
        with refusal(Fault.STORAGE):
            house.append(b"refused")
    assert house.values() == [b"a"]
    disk.full = False
    assert house.append(b"b").base_offset == 1
    await house.kill()
    assert house.values() == [b"a", b"b"]


async def test_an_idempotent_producer_goes_on_after_a_full_disk(house: House, disk: FullDisk) -> None:
    await house.create()
    producer = await house.broker.cluster.new_producer()
    house.append(b"a", producer=producer, base_sequence=0)
    disk.full = True
    with refusal(Fault.STORAGE):
        house.append(b"b", producer=producer, base_sequence=1)
    disk.full = False
    assert house.append(b"b", producer=producer, base_sequence=1).base_offset == 1


async def test_markers_wait_for_room_on_the_disk(house: House, disk: FullDisk) -> None:
    await house.create()
    home = house.broker.cluster.home(TRANSACTIONS, "tx")
    producer = await house.transaction()
    house.append(b"a", tid="tx", producer=producer, base_sequence=0, transactional=True)
    disk.full = True
    with refusal(Fault.STORAGE):
        await home.end("tx", producer, committed=True)
    await house.keep_house()
    assert house.values(isolation=COMMITTED) == []
    disk.full = False
    house.clock.now += 2
    await house.keep_house()
    assert house.values(isolation=COMMITTED) == [b"a"]
    assert house.counters.broker.transactions_committed == 1


async def test_a_disk_that_cannot_flush_makes_no_clean_shutdown(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await house.create()
    await house.create("u")
    house.append(b"a")
    with monkeypatch.context() as broken_disk:
        broken_disk.setattr(Disk, "sync", broken_sync)
        await house.broker.close()
    assert "Input/output error" in caplog.text
    assert not (house.path / "clean-shutdown").exists()
    await house.restart()
    assert house.values() == [b"a"]
    await house.broker.close()
    assert (house.path / "clean-shutdown").exists()
    await house.open()


async def test_a_disk_that_cannot_flush_promises_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.restart(fsync=FsyncPolicy.BATCH)
    await house.create()
    await house.append(b"a")
    monkeypatch.setattr(Disk, "sync", broken_sync)
    with refusal(Fault.STORAGE):
        await house.append(b"b")
    monkeypatch.undo()
    with refusal(Fault.STORAGE):  # until the log is opened again, as the kernel may have dropped the page
        house.append(b"c")
    assert house.values()[:1] == [b"a"]
    await house.kill()
    await house.append(b"d")
