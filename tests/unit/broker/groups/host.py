"""A coordinator with its own tables and a clock that stands still."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from treecast.middleware.broker.groups import GroupCoordinator, GroupSettings, LoadedGroups
from treecast.middleware.broker.values import (
    JoinGroup,
    MemberIdentity,
    SyncGroup,
    Topic,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId, TopicPartition
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOBODY = MemberIdentity()
DAY = 86_400.0
START = 1_700_000_000.0


def joining(member_id: str = "", group: str = "g", **how: object) -> JoinGroup:
    """Makes a consumer's join; `how` overrides its fields."""
    values = {
        "group_id": group,
        "member_id": member_id,
        "instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"meta"),),
        "require_known_member_id": False,
    }
    return JoinGroup(**{**values, **how})


class Topics:
    """The topics of a cluster, as groups see them."""

    def __init__(self) -> None:
        self.revision = 0
        self._topics: dict[str, Topic] = {}

    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        for topic in self._topics.values():
            if topic.topic_id == topic_id:
                return topic
        raise TreecastError(Fault.UNKNOWN_TOPIC_ID)

    def make(self, name: str, partitions: int) -> TopicId:
        """Creates a topic, or adds partitions to it."""
        self.revision += 1
        known = self._topics.get(name)
        topic_id = known.topic_id if known else uuid.UUID(int=self.revision)
        self._topics[name] = Topic(name, topic_id, partitions, TopicConfig.of({}))
        return topic_id

    def delete(self, name: str) -> None:
        self.revision += 1
        del self._topics[name]


class Host:
    """A coordinator whose time only the test moves; `restart` continues with what is stored."""

    def __init__(self, path: Path, fsync: FsyncPolicy = FsyncPolicy.NEVER) -> None:
        self.path = path
        self.fsync = fsync
        self.now = START
        self.settings = GroupSettings(initial_rebalance_delay_ms=0)
        self.counters = BrokerCounters()
        self.seed = 0
        self.topics = Topics()
        self.coordinator: GroupCoordinator

    async def start(self) -> GroupCoordinator:
        self.tables = Tables(self.path, self.fsync)
        self.seed += 1
        loaded = LoadedGroups(
            self.settings,
            self.tables,
            self.counters,
            clock=lambda: self.now,
            rng=random.Random(self.seed),
            timer=lambda: self.now - START,
        )
        loaded.look_at(self.topics)
        await loaded.start()
        self.coordinator = GroupCoordinator(loaded)
        return self.coordinator

    async def restart(self) -> GroupCoordinator:
        await self.coordinator.loaded.close()
        self.tables.close()
        return await self.start()

    def join(self, member_id: str = "", group: str = "g", **how: object) -> asyncio.Task:
        return asyncio.create_task(self.coordinator.join(joining(member_id, group, **how)))

    def sync(self, member_id: str, generation: int, assignments=(), group: str = "g") -> asyncio.Task:
        request = SyncGroup(group, generation, member_id, None, None, None, tuple(assignments))
        return asyncio.create_task(self.coordinator.sync(request))

    async def member(self, group: str = "g", **how: object) -> MemberIdentity:
        """Makes a stable group of one member."""
        joined = await self.join(group=group, **how)
        assignments = [(m.member_id, b"all") for m in joined.members]
        await self.sync(joined.member_id, joined.generation, assignments, group)
        return MemberIdentity(joined.member_id, None, joined.generation)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.loaded.expire()


async def fault_of(awaitable) -> Fault:
    with pytest.raises(TreecastError) as refused:
        await awaitable
    return refused.value.fault


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
