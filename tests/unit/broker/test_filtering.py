"""Batches that filters have left are kept within a bound, and reading them gives the loop its turns."""

from __future__ import annotations

import asyncio
from typing import Any

from treecast.middleware.broker.filtering import FilteredReads, KeptBatches
from treecast.middleware.broker.schemas import TopicSchemas
from treecast.middleware.broker.values import PartitionRead
from treecast.middleware.model.counters import BrokerCounters, FaceCounters
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch, patch_batch


class NoTopics:
    revision = 0

    def topics(self) -> dict[str, Any]:
        return {}


def batch(offset: int) -> bytes:
    made = bytearray(build_batch([Record(None, b'{"n": 1}', (), 0, 0)]))
    patch_batch(memoryview(made), 0, offset, 0)
    return bytes(made)


def test_batches_without_records_are_bounded_as_well() -> None:
    kept = KeptBatches(10_000)
    keys = [("t", 0, number, 0, "n == 1", None) for number in range(1_000)]
    for key in keys:
        for _ in range(3):
            kept.put(key, b"")
    found = [kept.get(key) for key in keys]
    assert 0 < len(found) - found.count(None) <= 20
    assert found[-1] == b""


async def test_known_batches_give_the_loop_its_turns() -> None:
    reads = FilteredReads("n == 1", FaceCounters(), TopicSchemas(NoTopics(), BrokerCounters()), KeptBatches())
    data = b"".join(batch(number) for number in range(2_000))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await reads.filtered("t", 0, PartitionRead([data], len(data), 2_000, 2_000, 0))
    beside = asyncio.create_task(others())
    found = await reads.filtered("t", 0, PartitionRead([data], len(data), 2_000, 2_000, 0))
    beside.cancel()
    assert b"".join(found.chunks) == data
    assert turns >= 3
