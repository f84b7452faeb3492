"""A broker on a real directory, and a cluster that records the calls that it gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.house import House

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables


class Kill(BaseException):
    """The process ends here."""


@dataclass
class RecordingCluster:
    """`deeds` are (what, who, committed), in order. `fail` raises once, at the partition or group that it
    names.
    """

    partitions: set[TopicPartition] = field(default_factory=set)
    deeds: list[tuple[str, ProducerIdentity, bool]] = field(default_factory=list)
    fail: dict[str, BaseException] = field(default_factory=dict)
    on_deed: Callable[[], None] = lambda: None

    def partition(self, topic: str, index: int) -> RecordingPartition:
        if TopicPartition(topic, index) not in self.partitions:
            raise TreecastError(Fault.UNKNOWN_TOPIC)
        return RecordingPartition(self, f"{topic}-{index}")

    def home(self, kind: Any, id: str) -> Any:
        return RecordingGroupHome(self)

    def record(self, what: str, producer: ProducerIdentity, committed: bool) -> None:
        self.on_deed()
        error = self.fail.pop(what, None)
        if error is not None:
            raise error
        self.deeds.append((what, producer, committed))


@dataclass
class RecordingPartition:
    cluster: RecordingCluster
    name: str

    def append_marker(self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int) -> None:
        self.cluster.record(self.name, producer, committed)


@dataclass
class RecordingGroupHome:
    cluster: RecordingCluster

    async def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> None:
        self.cluster.record(group_id, producer, committed)


class SetClock:
    """A wall clock in seconds that only the test moves."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def recording_cluster() -> RecordingCluster:
    return RecordingCluster({TopicPartition("t", index) for index in range(3)})


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    tables = Tables(tmp_path / "tables.sqlite", FsyncPolicy.NEVER)
    yield tables
    tables.close()


@pytest.fixture
def kill() -> type[BaseException]:
    return Kill


@pytest.fixture
async def house(tmp_path: Path, clock: Any) -> AsyncIterator[House]:
    house = await House(tmp_path / "data", clock).open()
    yield house
    await house.broker.close()
