"""Resting logs: a start opens only some, and recovers them after a kill."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.house import COMMITTED, House

from treecast.middleware.broker.values import LATEST_TIMESTAMP
from treecast.middleware.model.records import Record
from treecast.middleware.storage import recovery
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.wire.record_batch import build_batch

# --- logs that rest


def rested(house: House) -> list[bool]:
    parts: Any = house.broker._parts
    return [partition.log.rests for partition in parts.partitions.led()]


async def filled(house: House) -> None:
    await house.create("t", 3)
    for index in range(3):
        for _ in range(index + 1):
            answer = house.leader("t", index).append(
                memoryview(bytearray(build_batch([Record(b"k", b"v", (), int(house.clock.now * 1000))]))),
                -1,
                None,
            )
            if asyncio.isfuture(answer):
                await answer


def seen(house: House) -> list[tuple[int, int, int]]:
    """Returns the values that `Metadata`, status and metrics show of each partition."""
    found = []
    for index in range(3):
        leader = house.leader("t", index)
        end = leader.offset_for_time(LATEST_TIMESTAMP, COMMITTED).offset
        found.append((leader.leader_epoch, end, leader.size))
    return found


async def test_a_stop_and_a_start_open_nothing(house: House) -> None:
    await filled(house)
    before = seen(house)
    for _ in range(2):
        await house.restart()
        assert rested(house) == [True] * 3
        assert seen(house) == before
        await house.keep_house()
        assert rested(house) == [True] * 3
    assert house.values() == [b"v"]
    assert rested(house) == [False, True, True]
    await house.restart()
    assert rested(house) == [True] * 3


async def test_after_a_kill_only_what_was_written_last_is_recovered(house: House) -> None:
    await filled(house)
    await house.restart(fsync=FsyncPolicy.INTERVAL)
    house.append(b"more")
    await house.kill()
    assert rested(house) == [False, True, True]
    assert [end for _, end, _ in seen(house)] == [2, 2, 3]
    house.append(b"again")
    house.clock.now += 2
    await house.keep_house()  # flushes the log
    house.clock.now += 11
    await house.keep_house()  # the log was quiet for long enough and gets its summary
    await house.kill()
    assert rested(house) == [True] * 3
    assert house.values() == [b"v", b"more", b"again"]


async def test_leader_epochs_rise_with_each_kill_and_with_no_stop(house: House) -> None:
    await filled(house)
    first = [epoch for epoch, _, _ in seen(house)]
    await house.kill()
    second = [epoch for epoch, _, _ in seen(house)]
    assert all(new > old for new, old in zip(second, first, strict=True))
    await house.restart()
    assert rested(house) == [True] * 3
    assert [epoch for epoch, _, _ in seen(house)] == second
    house.append(b"more")
    await house.kill()
    third = [epoch for epoch, _, _ in seen(house)]
    assert all(new > old for new, old in zip(third, second, strict=True))


@pytest.mark.parametrize("damage", ["missing", "damaged"])
async def test_epochs_do_not_fall_where_the_summaries_are_gone(house: House, damage: str) -> None:
    await filled(house)
    await house.kill()
    before = seen(house)
    await house.broker.close()
    for path in (house.path / "summaries").iterdir():
        path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1] + b"?")
    await house.open()
    assert rested(house) == [False] * 3
    assert [each[1:] for each in seen(house)] == [each[1:] for each in before]
    assert all(now[0] > then[0] for now, then in zip(seen(house), before, strict=True))


async def test_a_kill_in_the_middle_of_a_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(house)
    await house.restart()
    for index in range(3):
        house.leader("t", index).append(
            memoryview(bytearray(build_batch([Record(b"k", b"w", (), int(house.clock.now * 1000))]))),
            -1,
            None,
        )
    recover, opened = recovery.recover, []

    def killed(*args: Any) -> Any:
        opened.append(args[0])
        if len(opened) == 2:
            raise KeyboardInterrupt
        return recover(*args)

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "recover", killed)
        with pytest.raises(KeyboardInterrupt):
            await house.kill()
    await house.open()
    assert [end for _, end, _ in seen(house)] == [2, 3, 4]
    assert house.values() == [b"v", b"w"]


async def test_a_topic_that_is_deleted_while_its_logs_rest(house: House) -> None:
    await filled(house)
    await house.restart()
    await house.broker.cluster.definitions.delete_topic("t")
    await house.create("t", 3)
    assert [end for _, end, _ in seen(house)] == [0, 0, 0]
    house.append(b"new")
    await house.restart()
    assert house.values() == [b"new"]
