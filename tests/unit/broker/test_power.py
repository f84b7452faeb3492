"""A power loss: what each fsync policy promises holds for every store of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import SetClock
from tests.unit.broker.house import COMMITTED, House
from tests.unit.loops import holds
from tests.unit.power import Power

from treecast.middleware.broker import TRANSACTIONS
from treecast.middleware.broker.pubsub import Message
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import FsyncPolicy

INTERVAL, BATCH, NEVER = FsyncPolicy.INTERVAL, FsyncPolicy.BATCH, FsyncPolicy.NEVER
PROMISING = [INTERVAL, BATCH]


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    made = Power(monkeypatch)
    yield made
    made.close()


class Lossy:
    """A house whose power fails."""

    def __init__(self, house: House, power: Power, folder: Path) -> None:
        self.house = house
        self._power = power
        self._folder = folder
        self._losses = 0

    async def open(self, fsync: FsyncPolicy) -> House:
        self._power.sqlite_forces = fsync is BATCH
        await self.house.open(fsync=fsync)
        await self.house.broker.begin_events()
        return self.house

    async def wait(self) -> None:
        """Housekeeping as the daemon calls it, for one interval."""
        self.house.clock.now += 1.0
        await self.house.keep_house()
        parts: Any = self.house.broker._parts
        await holds(lambda: parts.tables._forcing is None)
        await parts.pubsub._edge.settled()

    async def lose(self) -> House:
        """Loses the power, and starts a daemon on what is left."""
        self._losses += 1
        left = self._power.lose(self.house.path, self._folder / f"left-{self._losses}")
        parts: Any = self.house.broker._parts
        parts.abandon()
        self.house.broker._parts = None
        self.house.path = left
        await self.house.open()
        return self.house


@pytest.fixture
async def lossy(tmp_path: Path, clock: SetClock, power: Power) -> AsyncIterator[Lossy]:
    made = Lossy(House(tmp_path / "data", clock), power, tmp_path)
    yield made
    await made.house.broker.close()


async def appended(house: House, value: bytes, name: str = "t") -> None:
    answer = house.append(value, name)
    if asyncio.isfuture(answer):
        await answer


async def stored(house: House, change: Callable[[], Any]) -> None:
    """Makes a change of the hub, and returns once a client would be answered."""
    said = asyncio.Event()

    class Speaker:
        def gather(self) -> None: ...

        def say(self) -> None:
            said.set()

        def refuse(self) -> None:
            raise AssertionError("the journal refuses")

    speaker = Speaker()
    change()
    house.broker.pubsub.turn.ask(speaker)
    await said.wait()


@pytest.mark.parametrize("fsync", PROMISING)
async def test_topic_records_offsets_and_retained_messages(lossy: Lossy, fsync: FsyncPolicy) -> None:
    house = await lossy.open(fsync)
    await house.create("t", 2)
    for number in range(10):
        await appended(house, b"%d" % number)
    await house.commit("g", 7)
    hub = house.broker.pubsub.hub
    await stored(house, lambda: hub.retain(Message(b"a", b"x", 1, retain=True)))
    if fsync is INTERVAL:
        await lossy.wait()
    house = await lossy.lose()
    assert house.values() == [b"%d" % number for number in range(10)]
    assert await house.committed("g") == {TopicPartition("t", 0): 7}
    assert [one.payload for one in house.broker.pubsub.hub.retained.all()] == [b"x"]
    assert house.broker.cluster.definitions.topics()["t"].partitions == 2


async def test_the_interval_forces_what_is_older_and_no_more(lossy: Lossy) -> None:
    house = await lossy.open(INTERVAL)
    await house.create()
    await lossy.wait()
    await appended(house, b"young")
    await house.commit("g", 1)
    house = await lossy.lose()
    assert house.values() == []
    assert await house.committed("g") == {}


async def test_what_a_killed_daemon_left_unforced_is_forced_by_the_next(lossy: Lossy) -> None:
    house = await lossy.open(INTERVAL)
    await house.create()
    await appended(house, b"a")
    await house.commit("g", 1)
    hub = house.broker.pubsub.hub
    await stored(house, lambda: hub.retain(Message(b"a", b"x", 1, retain=True)))
    parts: Any = house.broker._parts
    parts.pubsub.turn.remove_store(parts.pubsub.journal)
    parts.pubsub.hub.use_journal(None)  # so that it is left as it is
    parts.pubsub._timer.cancel()
    await house.kill()
    await lossy.wait()
    house = await lossy.lose()
    assert house.values() == [b"a"]
    assert await house.committed("g") == {TopicPartition("t", 0): 1}
    assert [one.payload for one in house.broker.pubsub.hub.retained.all()] == [b"x"]


@pytest.mark.parametrize("fsync", PROMISING)
async def test_a_transaction_with_its_end(lossy: Lossy, fsync: FsyncPolicy) -> None:
    house = await lossy.open(fsync)
    await house.create()
    producer = await house.transaction()
    answer = house.append(b"paid", tid="tx", producer=producer, base_sequence=0, transactional=True)
    if asyncio.isfuture(answer):
        await answer
    home = house.broker.cluster.home(TRANSACTIONS, "tx")
    await home.end("tx", producer, committed=True)
    if fsync is INTERVAL:
        await lossy.wait()
    house = await lossy.lose()
    assert house.values(isolation=COMMITTED) == [b"paid"]


@pytest.mark.parametrize("fsync", PROMISING)
async def test_a_deleted_topic_stays_deleted_and_its_successor_is_empty(
    lossy: Lossy, fsync: FsyncPolicy
) -> None:
    house = await lossy.open(fsync)
    await house.create()
    await appended(house, b"of the first")
    await lossy.wait()
    await house.broker.cluster.definitions.delete_topic("t")
    await house.create()
    await house.create("u")
    await house.broker.cluster.definitions.delete_topic("u")
    if fsync is INTERVAL:
        await lossy.wait()
    house = await lossy.lose()
    assert set(house.broker.cluster.definitions.topics()) == {"t"}
    assert house.values() == []
    await appended(house, b"of the second")
    assert house.values() == [b"of the second"]


@pytest.mark.parametrize("fsync", list(FsyncPolicy))
async def test_deleted_records_stay_deleted_whatever_is_written_later(
    lossy: Lossy, fsync: FsyncPolicy
) -> None:
    house = await lossy.open(fsync)
    await house.create()
    await house.restart()  # now the topic is on the disk
    for number in range(5):
        await appended(house, b"%d" % number)
    log: PartitionLog = house.leader().log
    log.flush(0)
    house.leader().delete_before(3)
    log.flush(0, checkpoint=True)
    house = await lossy.lose()
    assert house.leader().log.start_offset == 3
    assert house.values(offset=3) == [b"3", b"4"]


@pytest.mark.parametrize("end", ["close", "lose"])
async def test_never_starts_and_has_what_an_orderly_stop_left(lossy: Lossy, end: str) -> None:
    house = await lossy.open(NEVER)
    await house.create()
    await appended(house, b"a")
    await house.commit("g", 1)
    hub = house.broker.pubsub.hub
    await stored(house, lambda: hub.retain(Message(b"a", b"x", 1, retain=True)))
    if end == "close":
        await house.restart()
    house = await lossy.lose()
    if end == "close":
        assert house.values() == [b"a"]
        assert await house.committed("g") == {TopicPartition("t", 0): 1}
        assert [one.payload for one in house.broker.pubsub.hub.retained.all()] == [b"x"]
    else:
        assert set(house.broker.cluster.definitions.topics()) in (set(), {"t"})
    await house.create("after")
    await appended(house, b"b", "after")
    assert house.values("after") == [b"b"]


async def test_the_number_of_a_run_is_never_given_twice(lossy: Lossy) -> None:
    house = await lossy.open(NEVER)
    runs = []
    for _ in range(3):
        runs.append(house.broker._open._directory.run)
        house = await lossy.lose()
    assert runs == [1, 2, 3]
