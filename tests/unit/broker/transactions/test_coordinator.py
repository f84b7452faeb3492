"""The transaction coordinator: the order of writes, fencing, and completion after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.transactions.home import Bench
from tests.unit.refusals import refusal

from treecast.middleware.broker.transactions.producer_ids import BLOCK
from treecast.middleware.broker.transactions.records import TRANSACTIONS, decode
from treecast.middleware.broker.transactions.state import State
from treecast.middleware.broker.values import InitProducer
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Tables

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
MISSING = TopicPartition("gone", 0)


class Home(Bench):
    """Adds the calls that these tests make."""

    async def init(self, known: ProducerIdentity = NO_PRODUCER, tid: str = "tx") -> ProducerIdentity:
        return await self.home.init_producer(InitProducer(tid, 60_000, known))

    async def begun(self, *partitions: TopicPartition, groups: tuple[str, ...] = ()) -> ProducerIdentity:
        producer = await self.init()
        assert await self.home.add_partitions("tx", producer, partitions) == {}
        for group in groups:
            await self.home.add_offsets("tx", producer, group)
        return producer

    def stored(self, tid: str = "tx") -> State:
        return decode(tid, self.tables.load(TRANSACTIONS)[tid]).state


@pytest.fixture
async def bench(tables: Tables, recording_cluster: Any, clock: Any) -> Home:
    made = Home(tables, recording_cluster, clock)
    await made.restart()
    return made


# --- identities


async def test_producer_ids_are_never_used_twice(bench: Home) -> None:
    seen = set()
    for _ in range(3):
        await bench.restart()
        for _ in range(BLOCK + 1):
            identity = await bench.home.init_producer(InitProducer(None, 0))
            assert identity.epoch == 0
            seen.add(identity.producer_id)
    assert len(seen) == 3 * (BLOCK + 1)


async def test_producer_ids_asked_for_at_once_differ(bench: Home) -> None:
    requests = [bench.home.init_producer(InitProducer(None, 0)) for _ in range(2 * BLOCK)]
    assert len({identity.producer_id for identity in await asyncio.gather(*requests)}) == 2 * BLOCK


async def test_a_transactional_id_keeps_its_producer_id(bench: Home) -> None:
    first = await bench.init()
    await bench.restart()
    second = await bench.init()
    assert second == ProducerIdentity(first.producer_id, first.epoch + 1)
    assert (await bench.init(tid="other")).producer_id != first.producer_id


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
async def test_time_outs_are_bounded(bench: Home, timeout_ms: int) -> None:
    with refusal(Fault.INVALID_TRANSACTION_TIMEOUT):
        await bench.home.init_producer(InitProducer("tx", timeout_ms))


async def test_an_empty_transactional_id_is_refused(bench: Home) -> None:
    with refusal(Fault.INVALID_REQUEST):
        await bench.init(tid="")


# --- the life of a transaction


@pytest.mark.parametrize("committed", [True, False])
async def test_a_decision_reaches_all(bench: Home, committed: bool) -> None:
    producer = await bench.begun(P0, P1, groups=("g",))
    await bench.home.end("tx", producer, committed=committed)
    assert sorted(bench.cluster.deeds) == [(what, producer, committed) for what in ("g", "t-0", "t-1")]
    assert bench.stored() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert bench.counters.transactions_committed == committed
    assert bench.counters.transactions_aborted == (not committed)


async def test_the_decision_is_on_disk_before_the_first_marker(bench: Home) -> None:
    producer = await bench.begun(P0, P1, groups=("g",))
    states: list[State] = []
    bench.cluster.on_deed = lambda: states.append(bench.stored())
    await bench.home.end("tx", producer, committed=True)
    assert states == [State.PREPARE_COMMIT] * 3


async def test_a_repeated_decision_is_answered_and_not_repeated(bench: Home) -> None:
    producer = await bench.begun(P0)
    for _ in range(3):
        await bench.home.end("tx", producer, committed=True)
    assert len(bench.cluster.deeds) == 1
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        await bench.home.end("tx", producer, committed=False)


async def test_nothing_to_end(bench: Home) -> None:
    producer = await bench.init()
    for committed in (True, False):
        with refusal(Fault.INVALID_TRANSACTION_STATE):
            await bench.home.end("tx", producer, committed=committed)


async def test_unknown_partitions_are_refused_and_the_others_taken(bench: Home) -> None:
    producer = await bench.init()
    refused = await bench.home.add_partitions("tx", producer, [P0, MISSING])
    assert {partition: error.fault for partition, error in refused.items()} == {MISSING: Fault.UNKNOWN_TOPIC}
    bench.home.verify("tx", producer, P0)
    with refusal(Fault.NOT_IN_TRANSACTION):
        bench.home.verify("tx", producer, MISSING)


async def test_a_topic_deleted_meanwhile_does_not_hold_the_decision_up(bench: Home) -> None:
    producer = await bench.begun(P0, P1)
    bench.cluster.partitions.remove(P1)
    await bench.home.end("tx", producer, committed=True)
    assert bench.cluster.deeds == [("t-0", producer, True)]


async def test_verify(bench: Home) -> None:
    producer = await bench.begun(P0)
    bench.home.verify("tx", producer, P0)
    for tid, identity, partition, fault in [
        ("tx", producer, P1, Fault.NOT_IN_TRANSACTION),
        ("no", producer, P0, Fault.INVALID_PRODUCER_MAPPING),
        ("tx", ProducerIdentity(999, 0), P0, Fault.INVALID_PRODUCER_MAPPING),
        ("tx", ProducerIdentity(producer.producer_id, 7), P0, Fault.INVALID_PRODUCER_EPOCH),
    ]:
        with refusal(fault):
            bench.home.verify(tid, identity, partition)
    await bench.home.end("tx", producer, committed=True)
    with refusal(Fault.NOT_IN_TRANSACTION):
        bench.home.verify("tx", producer, P0)


async def test_strangers_are_refused(bench: Home) -> None:
    producer = await bench.begun(P0)
    for tid, identity, fault in [
        ("no", producer, Fault.INVALID_PRODUCER_MAPPING),
        ("tx", ProducerIdentity(999, 0), Fault.INVALID_PRODUCER_MAPPING),
        ("tx", ProducerIdentity(producer.producer_id, 1), Fault.PRODUCER_FENCED),
    ]:
        with refusal(fault):
            await bench.home.add_partitions(tid, identity, [P0])
        with refusal(fault):
            await bench.home.add_offsets(tid, identity, "g")
        with refusal(fault):
            await bench.home.end(tid, identity, committed=True)
    with refusal(Fault.INVALID_GROUP):
        await bench.home.add_offsets("tx", producer, "")


# --- taking over


async def test_a_new_producer_aborts_what_the_old_one_left(bench: Home) -> None:
    old = await bench.begun(P0, P1, groups=("g",))
    new = await bench.init()
    assert new == ProducerIdentity(old.producer_id, old.epoch + 2)
    marker = ProducerIdentity(old.producer_id, old.epoch + 1)
    assert sorted(bench.cluster.deeds) == [(what, marker, False) for what in ("g", "t-0", "t-1")]
    with refusal(Fault.PRODUCER_FENCED):
        await bench.home.end("tx", old, committed=True)
    with refusal(Fault.INVALID_PRODUCER_EPOCH):
        bench.home.verify("tx", old, P0)


async def test_taking_over_at_once_gives_each_an_identity_of_its_own(bench: Home) -> None:
    await bench.begun(P0)
    identities = await asyncio.gather(*(bench.init() for _ in range(5)))
    assert len(set(identities)) == 5
    newest = max(identities, key=lambda identity: identity.epoch)
    await bench.home.add_partitions("tx", newest, [P0])


async def test_the_producer_itself_may_abort_by_a_new_epoch(bench: Home) -> None:
    old = await bench.begun(P0)
    new = await bench.init(old)
    assert new == ProducerIdentity(old.producer_id, old.epoch + 2)
    assert await bench.init(old) == new  # the answer was lost
    await bench.home.add_partitions("tx", new, [P0])
    with refusal(Fault.PRODUCER_FENCED):
        await bench.init(old)


# --- time


async def test_a_transaction_that_is_open_too_long_is_aborted(bench: Home) -> None:
    producer = await bench.begun(P0)
    bench.clock.now += 59.9
    await bench.home.expire()
    bench.home.verify("tx", producer, P0)
    bench.clock.now += 0.2
    await bench.home.expire()
    assert [(what, committed) for what, _, committed in bench.cluster.deeds] == [("t-0", False)]
    assert (bench.counters.transactions_timed_out, bench.counters.transactions_aborted) == (1, 1)
    with refusal(Fault.PRODUCER_FENCED):
        await bench.home.end("tx", producer, committed=True)


async def test_time_outs_go_on_after_a_restart(bench: Home) -> None:
    await bench.begun(P0)
    bench.clock.now += 61
    await bench.restart()
    await bench.home.expire()
    assert bench.stored() is State.COMPLETE_ABORT


async def test_idle_ids_are_forgotten(bench: Home) -> None:
    producer = await bench.begun(P0)
    await bench.home.end("tx", producer, committed=True)
    await bench.init(tid="young")
    bench.clock.now += 7 * 86_400
    await bench.init(tid="young")
    await bench.home.expire()
    assert set(bench.tables.load(TRANSACTIONS)) == {"young"}
    with refusal(Fault.INVALID_PRODUCER_MAPPING):
        await bench.home.add_partitions("tx", producer, [P0])
    assert (await bench.init(producer)).producer_id != producer.producer_id


async def test_an_open_transaction_is_never_idle(bench: Home) -> None:
    await bench.begun(P0)
    bench.cluster.fail["t-0"] = TreecastError(Fault.STORAGE)
    bench.clock.now += 8 * 86_400
    await bench.home.expire()
    assert bench.stored() is State.PREPARE_ABORT


# --- when the disk refuses, or the process dies


async def test_markers_that_were_refused_are_written_later(bench: Home) -> None:
    producer = await bench.begun(P0, P1)
    bench.cluster.fail["t-0"] = TreecastError(Fault.STORAGE)
    with refusal(Fault.STORAGE):
        await bench.home.end("tx", producer, committed=True)
    assert bench.cluster.deeds == [("t-1", producer, True)]
    with refusal(Fault.CONCURRENT_TRANSACTIONS):
        await bench.home.add_partitions("tx", producer, [P0])
    with refusal(Fault.CONCURRENT_TRANSACTIONS):
        await bench.init()
    await bench.home.expire()
    assert ("t-0", producer, True) in bench.cluster.deeds
    await bench.home.end("tx", producer, committed=True)
    await bench.home.add_partitions("tx", producer, [P0])


async def test_a_repeat_of_the_decision_writes_what_was_refused(bench: Home) -> None:
    producer = await bench.begun(P0)
    bench.cluster.fail["t-0"] = TreecastError(Fault.STORAGE)
    with refusal(Fault.STORAGE):
        await bench.home.end("tx", producer, committed=True)
    await bench.home.end("tx", producer, committed=True)
    assert bench.stored() is State.COMPLETE_COMMIT


async def test_a_decision_that_cannot_be_written_was_not_taken(bench: Home) -> None:
    producer = await bench.begun(P0)
    bench.tables._database.execute("PRAGMA query_only = ON")
    with refusal(Fault.STORAGE):
        await bench.home.end("tx", producer, committed=True)
    assert bench.cluster.deeds == []
    bench.tables._database.execute("PRAGMA query_only = OFF")
    await bench.home.end("tx", producer, committed=False)
    assert bench.cluster.deeds == [("t-0", producer, False)]


@pytest.mark.parametrize("where", ["t-0", "t-1", "g"])
@pytest.mark.parametrize("committed", [True, False])
async def test_a_restart_completes_the_decision(
    bench: Home, kill: type[BaseException], where: str, committed: bool
) -> None:
    producer = await bench.begun(P0, P1, groups=("g",))
    bench.cluster.fail[where] = kill()
    with pytest.raises(kill):
        await bench.home.end("tx", producer, committed=committed)
    await bench.restart()
    assert {(what, committed) for what, _, committed in bench.cluster.deeds} == {
        (what, committed) for what in ("t-0", "t-1", "g")
    }
    await bench.home.end("tx", producer, committed=committed)


async def test_a_cancelled_request_leaves_a_whole_state(bench: Home) -> None:
    producer = await bench.begun(P0)
    ending = asyncio.ensure_future(bench.home.end("tx", producer, committed=True))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await bench.home.end("tx", producer, committed=True)
    assert bench.stored() is State.COMPLETE_COMMIT
