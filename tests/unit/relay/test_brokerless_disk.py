"""A host without a broker forces what it has written to the disk, also after a refusal."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.loops import holds

from treecast.middleware.relay.brokerless import _keep_forced


class Store:
    """Refuses the first time, as a process without a free descriptor does."""

    def __init__(self) -> None:
        self.asked = 0

    def force(self) -> None:
        self.asked += 1
        if self.asked == 1:
            raise OSError(24, "Too many open files")


class Logs:
    def __init__(self) -> None:
        self.asked = 0

    def flush_due(self, logs: list[object], now_ms: int) -> int:
        self.asked += 1
        return 0


async def test_a_refusal_neither_ends_the_syncs_nor_keeps_other_stores_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("treecast.middleware.relay.brokerless.LOOK_MS", 0)
    tables, pubsub, flusher = Store(), Store(), Logs()
    keeping = asyncio.ensure_future(_keep_forced(tables, pubsub, [], flusher))  # type: ignore[arg-type]
    await holds(lambda: min(tables.asked, pubsub.asked, flusher.asked) > 3)
    assert tables.asked == pubsub.asked == flusher.asked
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
