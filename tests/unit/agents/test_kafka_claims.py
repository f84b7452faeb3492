"""When an agent of Kafka leads a partition that another directory had."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from treecast.agents.kafka.cluster import KafkaCluster
from treecast.agents.kafka.following import _LOST_AFTER, Following
from treecast.agents.kafka.settings import KafkaSettings
from treecast.middleware.model.identity import TopicPartition

NAME = TopicPartition("orders", 0)


class Waiting:
    """A leading host with one partition that waits, and the copy of it."""

    def __init__(self) -> None:
        self.claimed: list[int] = []
        self.copy = SimpleNamespace(end=0, session=SimpleNamespace(high_watermark=-1, trouble=""))

    def waiting(self) -> list[tuple[TopicPartition, object]]:
        return [] if self.claimed else [(NAME, None)]

    async def claim(self, name: TopicPartition, entry: object) -> None:
        self.claimed.append(self.copy.end)


async def test_a_copy_is_led_once_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of (seconds, end of the copy, end of the cluster). A cluster that has less for a moment has all again;
    one that has less for long has lost the rest."""
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now, raising=False)

    async def led(*looks: tuple[float, int, int]) -> list[int]:
        nonlocal now
        one = Waiting()
        cluster, settings = cast(KafkaCluster, None), KafkaSettings(bootstrap=("127.0.0.1:1",))
        following = Following(cluster, settings, cast(Any, None))
        following.host = cast(Any, one)
        following.partitions[NAME] = cast(Any, one.copy)
        for at, end, there in looks:
            now, one.copy.end, one.copy.session.high_watermark = at, end, there
            await following._claim()
        return one.claimed

    late = _LOST_AFTER
    assert await led((0, 0, -1), (1, 0, 100), (2, 99, 200)) == []
    assert await led((0, 0, -1), (1, 0, 100), (2, 100, 200), (3, 150, 200)) == [100]
    assert await led((0, 0, 100), (1, 80, 80), (2, 80, 120), (late + 1, 80, 80), (late + 1.5, 100, 120)) == [
        100
    ]
    assert await led((0, 0, 100), (1, 80, 80), (late - 1, 80, 80)) == []
    assert await led((0, 0, 100), (1, 80, 80), (late, 80, 80)) == [80]
