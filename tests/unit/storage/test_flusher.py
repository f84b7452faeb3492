"""Group commit and background work beside a real event loop, on a disk that waits on demand."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.segment import SharedFiles
from treecast.middleware.storage.settings import FsyncPolicy, LogSettings

Kit = Any


@pytest.fixture
async def flusher() -> AsyncIterator[Flusher]:
    flusher = Flusher()
    yield flusher
    await flusher.close()


@pytest.fixture
def gated(kit: Kit) -> Any:
    """A disk whose fsync waits at a gate."""

    class Gated(type(kit.FaultyDisk())):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.entered = threading.Semaphore(0)
            self.gate = threading.Semaphore(0)

        def sync(self, descriptor: int) -> None:
            self.entered.release()
            assert self.gate.acquire(timeout=10)
            super().sync(descriptor)

    return Gated()


async def entered(disk: Any) -> None:
    assert await asyncio.to_thread(disk.entered.acquire, True, 10)


async def test_appends_share_an_fsync(kit: Kit, path: Path, flusher: Flusher, gated: Any) -> None:
    log = kit.open(path, settings=LogSettings(FsyncPolicy.BATCH), disk=gated)
    kit.append(log, kit.batch())
    first = flusher.acknowledged(log, 1000)
    assert first is not None
    await entered(gated)
    waiting = []
    for _ in range(10):
        kit.append(log, kit.batch())
        waiting.append(flusher.acknowledged(log, 1000))
    gated.gate.release()
    await first
    assert log.flushed_offset == 1
    assert not any(done.done() for done in waiting if done is not None)
    await entered(gated)
    gated.gate.release()
    await asyncio.gather(*(done for done in waiting if done is not None))
    assert log.flushed_offset == 11
    assert log.counters.fsyncs == 2
    assert flusher.acknowledged(log, 1000) is None
    check_invariants(log)


@pytest.mark.parametrize("policy", [FsyncPolicy.NEVER, FsyncPolicy.INTERVAL])
async def test_other_policies_do_not_wait(
    kit: Kit, path: Path, flusher: Flusher, policy: FsyncPolicy
) -> None:
    log = kit.open(path, settings=LogSettings(policy))
    kit.append(log, kit.batch())
    assert flusher.acknowledged(log, 1000) is None


async def test_flush_messages_makes_every_so_many_wait(kit: Kit, path: Path, flusher: Flusher) -> None:
    log = kit.open(path, kit.config(flush_messages=3), LogSettings(FsyncPolicy.NEVER))
    kit.append(log, kit.batch(2))
    assert flusher.acknowledged(log, 1000) is None
    kit.append(log, kit.batch(1))
    done = flusher.acknowledged(log, 1000)
    assert done is not None
    await done
    assert log.flushed_offset == 3


async def test_the_interval(kit: Kit, path: Path, flusher: Flusher) -> None:
    log = kit.open(path, settings=LogSettings(FsyncPolicy.INTERVAL, fsync_interval_ms=3000))
    kit.append(log, kit.batch(), now_ms=1000)
    assert flusher.flush_due([log], 2999) == 0
    assert flusher.flush_due([log], 3000) == 1  # the next look, a second later, would be too late
    await flusher.settle()
    assert log.flushed_offset == 1
    assert flusher.flush_due([log], 9000) == 0


async def test_however_many_are_due_few_files_are_open(kit: Kit, tmp_path: Path, flusher: Flusher) -> None:
    shared, most = SharedFiles(open_files=16), []
    logs = [
        kit.open(tmp_path / f"t-{n}", settings=LogSettings(FsyncPolicy.INTERVAL), shared=shared)
        for n in range(700)
    ]
    for log in logs:
        kit.append(log, kit.batch(), now_ms=1000)
    assert shared.to_flush() == logs
    assert flusher.flush_due(shared.to_flush(), 9000) == 700
    most.append(shared.pool.open_files)
    assert flusher.flush_due(shared.to_flush(), 9001) == 0  # they are under way, or queued
    while any(log.flushed_offset == 0 for log in logs):
        await asyncio.sleep(0)
        most.append(shared.pool.open_files)
    await flusher.settle()
    assert max(most) <= 16 + 16 * 16
    assert shared.to_flush() == []
    for log in logs:
        log.close(9002)


async def test_never_still_flushes_rolled_segments_and_flush_ms(
    kit: Kit, path: Path, flusher: Flusher
) -> None:
    log = kit.open(path, kit.config(flush_ms=500), LogSettings(FsyncPolicy.NEVER))
    kit.append(log, kit.batch(), now_ms=1000)
    assert flusher.flush_due([log], 1499) == 0
    log.roll(1000)
    kit.append(log, kit.batch(), now_ms=1000)
    assert flusher.flush_due([log], 1000) == 1
    await flusher.settle()
    assert log.durability.checkpointed_base == 1
    kit.append(log, kit.batch(), now_ms=2000)
    assert flusher.flush_due([log], 2500) == 1


async def test_an_error_reaches_all_who_wait(kit: Kit, path: Path, flusher: Flusher, gated: Any) -> None:
    log = kit.open(path, settings=LogSettings(FsyncPolicy.BATCH), disk=gated)
    other = kit.open(path.parent / "o-0", settings=LogSettings(FsyncPolicy.BATCH))
    kit.append(log, kit.batch())
    kit.append(other, kit.batch())
    first = flusher.acknowledged(log, 1000)
    await entered(gated)
    kit.append(log, kit.batch())
    second = flusher.acknowledged(log, 1000)
    gated.fail = {"sync"}
    gated.gate.release()
    assert first is not None
    assert second is not None
    for done in (first, second):
        with pytest.raises(TreecastError) as refused:
            await done
        assert refused.value.fault is Fault.STORAGE
    healthy = flusher.acknowledged(other, 1000)
    assert healthy is not None
    await healthy


async def test_a_log_deleted_meanwhile_answers_who_waits(
    kit: Kit, path: Path, flusher: Flusher, gated: Any
) -> None:
    log = kit.open(path, settings=LogSettings(FsyncPolicy.BATCH), disk=gated)
    kit.append(log, kit.batch())
    done = flusher.acknowledged(log, 1000)
    await entered(gated)
    log.delete()
    assert log.shared.pool.open_files == 1
    gated.gate.release()
    assert done is not None
    with pytest.raises(TreecastError):
        await done
    assert log.shared.pool.open_files == 0


async def test_a_waiter_that_gave_up_harms_no_one(kit: Kit, path: Path, flusher: Flusher, gated: Any) -> None:
    log = kit.open(path, settings=LogSettings(FsyncPolicy.BATCH), disk=gated)
    kit.append(log, kit.batch())
    first, second = flusher.acknowledged(log, 1000), flusher.acknowledged(log, 1000)
    assert first is not None
    assert second is not None
    first.cancel()
    gated.gate.release()
    gated.gate.release()
    await second


async def test_a_roll_during_a_flush_keeps_the_new_index(
    kit: Kit, path: Path, flusher: Flusher, gated: Any
) -> None:
    """The checkpoint's index must not replace that of a segment sealed in the meantime."""
    config = kit.config({"index.interval.bytes": 0})
    log = kit.open(path, config, LogSettings(FsyncPolicy.BATCH, checkpoint_bytes=1), disk=gated)
    for number in range(5):
        kit.append(log, kit.batch(timestamp=1000 + number))
    done = flusher.acknowledged(log, 1000)
    await entered(gated)
    for number in range(5, 10):
        kit.append(log, kit.batch(timestamp=1000 + number))
    log.roll(1000)
    for _ in range(10):
        gated.gate.release()
    assert done is not None
    await done
    check_invariants(log)
    log.delete()
    again = kit.open(path, config)
    assert again.end_offset == 10
    check_invariants(again)
    assert again.held.all[0].max_timestamp == 1009


async def test_compaction_and_removal_beside_the_loop(kit: Kit, path: Path, flusher: Flusher) -> None:
    config = kit.config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    log = kit.open(path, config)
    for number in range(50):
        kit.append(log, kit.keyed((b"a", b"%d" % number)))
    log.roll(1000)
    log.flush(1000)
    assert await flusher.compact(log, 1000)
    assert not await flusher.compact(log, 1000)
    await flusher.settle()
    assert [record.offset for record in kit.records(log)] == [49]
    assert not [name for name in os.listdir(path) if name.endswith(".deleted")]
    check_invariants(log)


async def test_closing_stops_a_round(kit: Kit, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flusher = Flusher()
    config = kit.config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    log = kit.open(path, config)
    kit.append(log, kit.keyed((b"a", b"1")), kit.keyed((b"a", b"2")))
    log.roll(1000)
    log.flush(1000)
    started, go_on = threading.Event(), threading.Event()

    def wait(self: object) -> None:
        started.set()
        assert go_on.wait(10)

    monkeypatch.setattr("treecast.middleware.storage.flusher._Throttle.__call__", wait)
    running = asyncio.ensure_future(flusher.compact(log, 1000))
    assert await asyncio.to_thread(started.wait, 10)
    closing = asyncio.ensure_future(flusher.close())
    await asyncio.sleep(0)
    go_on.set()
    assert not await running
    await closing
    assert not await flusher.compact(log, 1000)
    assert len(kit.records(log)) == 2
    check_invariants(log)


async def test_nothing_is_promised_while_closing(kit: Kit, path: Path) -> None:
    flusher = Flusher()
    log = kit.open(path, settings=LogSettings(FsyncPolicy.BATCH))
    await flusher.close()
    kit.append(log, kit.batch())
    with pytest.raises(TreecastError) as refused:
        flusher.acknowledged(log, 1000)
    assert refused.value.fault is Fault.STORAGE
