"""Transactional ids whose home is on another host, or moves; and the ids of producers."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.groups.host import fault_of
from tests.unit.relay.homes.town import TAKEOVER, Town, TownHost, until

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.broker.transactions.producer_ids import BLOCK, STRIDE
from treecast.middleware.broker.transactions.state import State
from treecast.middleware.broker.values import CommittedOffset, InitProducer, MemberIdentity
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity, TopicPartition

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
NOBODY = MemberIdentity()
TX = HomeKind.TRANSACTION


async def init(host: TownHost, known: ProducerIdentity = NO_PRODUCER, timeout_ms: int = 60_000):
    return await host.transaction.init_producer(InitProducer("tx", timeout_ms, known))


async def begun(host: TownHost, *partitions: TopicPartition, timeout_ms: int = 60_000) -> ProducerIdentity:
    producer = await init(host, timeout_ms=timeout_ms)
    assert await host.transaction.add_partitions("tx", producer, partitions) == {}
    for partition in partitions:
        waiting = host.homes.guards.verify("tx", producer, partition)
        if waiting is not None:
            await waiting
        host.town.partitions[partition].open[producer.producer_id] = producer
    return producer


async def committed(host: TownHost, group: str = "g") -> dict[TopicPartition, int]:
    found = await host.group.fetch_offsets(group, None, require_stable=False)
    return {where: value.offset for where, value in found.items()}


@pytest.fixture(autouse=True)
def partitions(town: Town) -> None:
    town.add_partitions(P0, P1)


def state(host: TownHost) -> State:
    (transaction,) = host.parts.transactions.transactions()
    return transaction.state


@pytest.mark.parametrize("decision", [True, False])
async def test_a_transaction_by_way_of_another_host(town: Town, decision: bool) -> None:
    a, b = await town.host("a"), await town.host("b")
    await init(a)
    producer = await begun(b, P0, P1)
    assert a.is_home("tx", TX)
    assert producer.epoch == 1
    await b.transaction.end("tx", producer, committed=decision)
    for partition in town.partitions.values():
        ((who, how, epoch),) = partition.markers
        assert (who, how) == (producer, decision)
        assert epoch == a.homes.keeper.owned[next(iter(a.homes.keeper.owned))]
    await b.transaction.end("tx", producer, committed=decision)  # the answer was lost
    assert await fault_of(b.transaction.end("tx", producer, committed=not decision)) is (
        Fault.INVALID_TRANSACTION_STATE
    )


async def test_the_leader_asks_the_home(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0)
    assert a.homes.guards.verify("tx", producer, P0) is None
    with pytest.raises(TreecastError):
        a.homes.guards.verify("tx", producer, P1)
    await b.homes.guards.verify("tx", producer, P0)
    assert await fault_of(b.homes.guards.verify("tx", producer, P1)) is Fault.NOT_IN_TRANSACTION
    old = ProducerIdentity(producer.producer_id, producer.epoch - 1)
    assert await fault_of(b.homes.guards.verify("tx", old, P0)) is Fault.INVALID_PRODUCER_EPOCH


async def test_offsets_in_a_transaction_whose_group_lives_elsewhere(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0)
    assert await b.group.commit_offsets("g", NOBODY, {P1: CommittedOffset(1)}) == {}
    offsets = {P1: CommittedOffset(5)}
    early = a.group.commit_transaction_offsets("g", NOBODY, "tx", producer, offsets)
    assert await fault_of(early) is Fault.NOT_IN_TRANSACTION
    await a.transaction.add_offsets("tx", producer, "g")
    assert await a.group.commit_transaction_offsets("g", NOBODY, "tx", producer, offsets) == {}
    assert await committed(b) == {P1: 1}
    unstable = await a.group.fetch_offsets("g", None, require_stable=True)
    assert isinstance(unstable[P1], TreecastError)
    await a.transaction.end("tx", producer, committed=True)
    assert await committed(a) == {P1: 5}


async def test_a_decided_transaction_is_completed_by_the_next_home(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0, P1)
    await a.transaction.add_offsets("tx", producer, "g")
    assert (
        await b.group.commit_transaction_offsets("g", NOBODY, "tx", producer, {P1: CommittedOffset(5)}) == {}
    )
    town.partitions[P1].refuses = TreecastError(Fault.LEADER_UNAVAILABLE)
    await a.transaction.end("tx", producer, committed=True)  # the decision is stored; the markers follow
    assert state(a) is State.PREPARE_COMMIT
    assert town.partitions[P1].markers == []
    assert await fault_of(a.transaction.add_partitions("tx", producer, [P0])) is (
        Fault.CONCURRENT_TRANSACTIONS
    )
    a.kill()
    town.partitions[P1].refuses = None
    await town.pass_time(TAKEOVER + 10)
    await b.transaction.end("tx", producer, committed=True)  # the answer was lost
    await until(lambda: state(b) is State.COMPLETE_COMMIT)
    ((who, how, _),) = town.partitions[P1].markers
    assert (who, how) == (producer, True)
    assert len(town.partitions[P0].markers) == 1
    assert await committed(b) == {P1: 5}


async def test_pending_offsets_move_with_their_group(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0)
    await a.transaction.add_offsets("tx", producer, "g")
    await b.group.commit_transaction_offsets("g", NOBODY, "tx", producer, {P1: CommittedOffset(5)})
    assert b.is_home("g")
    b.kill()
    await town.pass_time(TAKEOVER + 10)
    unstable = await a.group.fetch_offsets("g", [P1], require_stable=True)
    assert isinstance(unstable[P1], TreecastError)
    assert a.is_home("g")
    await a.transaction.end("tx", producer, committed=True)
    assert await committed(a) == {P1: 5}


async def test_a_leader_that_comes_back_gets_its_marker(town: Town) -> None:
    a = await town.host("a")
    producer = await begun(a, P0)
    town.partitions[P0].refuses = TreecastError(Fault.LEADER_UNAVAILABLE)
    await a.transaction.end("tx", producer, committed=True)
    assert await fault_of(init(a)) is Fault.CONCURRENT_TRANSACTIONS
    town.partitions[P0].refuses = None
    await a.parts.transactions.expire()
    await until(lambda: state(a) is State.COMPLETE_COMMIT)  # the markers are written in the background
    assert len(town.partitions[P0].markers) == 1


async def test_a_transaction_of_a_home_that_died_times_out_at_the_next(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0, timeout_ms=50_000)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    again = await b.transaction.add_partitions("tx", producer, [P1])
    assert again == {}
    await town.pass_time(60)
    await b.parts.transactions.expire()
    await until(lambda: state(b) is State.COMPLETE_ABORT)
    ((who, how, _),) = town.partitions[P0].markers
    assert (who.producer_id, how) == (producer.producer_id, False)
    assert await fault_of(b.transaction.end("tx", producer, committed=True)) is Fault.PRODUCER_FENCED


async def test_an_old_home_cannot_decide(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0)
    a.cut_off = True
    await town.pass_time(TAKEOVER + 10)
    town.cut.add(frozenset((a.host_id, b.host_id)))
    fresh = await init(b)  # aborts the open transaction
    assert fresh.epoch == producer.epoch + 2
    a._watching.cancel()
    a.cut_off = False
    late = await fault_of(a.transaction.end("tx", producer, committed=True))
    assert late in (Fault.NOT_COORDINATOR, Fault.COORDINATOR_UNAVAILABLE)
    assert [how for _, how, _ in town.partitions[P0].markers] == [False]
    town.cut.clear()
    assert await fault_of(a.transaction.end("tx", producer, committed=True)) is Fault.PRODUCER_FENCED


async def test_no_marker_before_the_store_has_the_decision(town: Town) -> None:
    """Otherwise a home that takes over could decide differently."""
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0)
    asked, held = asyncio.Event(), asyncio.Event()
    put = a.homes.mirror._coordinator.put

    async def hold(writes):
        asked.set()
        await held.wait()
        return await put(writes)

    a.homes.mirror._coordinator.put = hold
    ending = asyncio.create_task(a.transaction.end("tx", producer, committed=True))
    await until(asked.is_set)
    assert town.partitions[P0].markers == []
    a.kill()
    ending.cancel()
    await town.pass_time(TAKEOVER + 10)
    await b.transaction.end("tx", producer, committed=False)
    assert [how for _, how, _ in town.partitions[P0].markers] == [False]


async def test_a_decision_whose_answer_was_lost_is_stored_before_a_restart_completes_it(town: Town) -> None:
    a = await town.host("a")
    producer = await begun(a, P0)
    asked, held = asyncio.Event(), asyncio.Event()

    async def hold(writes):
        asked.set()
        await held.wait()

    a.homes.mirror._coordinator.put = hold
    ending = asyncio.create_task(a.transaction.end("tx", producer, committed=True))
    await until(asked.is_set)
    await a.restart()
    ending.cancel()
    await until(lambda: state(a) is State.COMPLETE_COMMIT)
    assert len(town.partitions[P0].markers) == 1


# --- producer ids


async def test_producer_ids_of_all_hosts_differ_over_kills(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    seen: list[int] = []
    for _ in range(4):
        for host in (a, b):
            seen += [(await host.homes.new_producer()).producer_id for _ in range(STRIDE + 7)]
        await a.restart()
    assert len(set(seen)) == len(seen)


async def test_the_next_block_is_there_before_it_is_needed(town: Town) -> None:
    a = await town.host("a")
    for _ in range(BLOCK // 2 + STRIDE + 1):
        await a.homes.new_producer()
    fetching = a.parts.producer_ids._fetching
    if fetching is not None:
        await fetching
    town.up = False
    taken = 0
    while True:
        try:
            await a.homes.new_producer()
        except TreecastError as error:
            refused = error.fault
            break
        taken += 1
    assert refused is Fault.COORDINATOR_UNAVAILABLE
    assert taken >= BLOCK
    town.up = True
    assert (await a.homes.new_producer()).producer_id >= taken


async def test_a_restart_goes_on_within_its_block_while_the_coordinator_is_away(town: Town) -> None:
    a = await town.host("a")
    first = (await a.homes.new_producer()).producer_id
    town.up = False
    await a.restart()
    assert (await a.homes.new_producer()).producer_id == first + STRIDE


async def stage(host: TownHost, name: str, where: TopicPartition) -> dict[str, ProducerIdentity]:
    producer = await host.transaction.init_producer(InitProducer(name, 60_000, NO_PRODUCER))
    assert await host.transaction.add_partitions(name, producer, [where]) == {}
    waiting = host.homes.guards.verify(name, producer, where)
    if waiting is not None:
        await waiting
    host.town.partitions[where].open[producer.producer_id] = producer
    return {name: producer}


async def test_parts_have_the_home_of_their_whole(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    parts = await stage(a, "q//0/a", P0) | await stage(b, "q//0/b", P1)
    lost = await stage(b, "q//0/c", P0)
    assert a.is_home("q", TX)
    assert list(a.homes.keeper.owned) == [HomeName(TX, "q")]
    await b.transaction.end_parts("q", 0, parts, committed=True)
    told = {who: how for where in town.partitions.values() for who, how, _ in where.markers}
    assert [how for who, how in told.items() if who in parts.values()] == [True, True]
    assert [how for who, how in told.items() if who not in parts.values()] == [False]
    assert await fault_of(stage(b, "q//0/d", P0)) is Fault.INVALID_TRANSACTION_STATE
    assert await fault_of(b.transaction.end_parts("q", 1, lost, committed=True)) is Fault.INVALID_REQUEST


async def test_what_a_batch_holds_is_compared_at_its_home_and_at_the_next(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    parts = await stage(a, "q//3/a", P0)
    await b.transaction.end_parts("q", 3, parts, committed=True, content="5 rows")
    for kill in (False, True):
        if kill:
            a.kill()
            await town.pass_time(TAKEOVER + 10)
        await b.transaction.end_parts("q", 3, {}, committed=True, content="5 rows")
        for batch, content in ((3, "6 rows"), (2, "5 rows")):
            other = b.transaction.end_parts("q", batch, {}, committed=True, content=content)
            assert await fault_of(other) is Fault.INVALID_TRANSACTION_STATE


async def test_the_next_home_completes_a_batch_and_repeats_none(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    parts = await stage(a, "q//0/a", P0) | await stage(b, "q//0/b", P1)
    town.partitions[P1].refuses = TreecastError(Fault.LEADER_UNAVAILABLE)
    await a.transaction.end_parts("q", 0, parts, committed=True)  # the decision is stored; the markers follow
    a.kill()
    town.partitions[P1].refuses = None
    await town.pass_time(TAKEOVER + 10)
    await b.transaction.end_parts("q", 0, parts, committed=True)  # the answer was lost
    for where, (name, who) in zip((P0, P1), parts.items(), strict=True):
        assert [(who, True)] == [marker[:2] for marker in town.partitions[where].markers], name
    assert await fault_of(stage(b, "q//0/again", P0)) is Fault.INVALID_TRANSACTION_STATE
    await b.transaction.end_parts("q", 1, await stage(b, "q//1/a", P0), committed=True)


async def test_transactions_are_listed_from_all_hosts(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0)
    await b.transaction.init_producer(InitProducer("other", 5_000, NO_PRODUCER))
    await town.settle()
    for host in (a, b):
        found = {one.transactional_id: one for one in await host.homes.list_transactions()}
        assert {id: one.state for id, one in found.items()} == {"tx": "Ongoing", "other": "Empty"}
        assert (found["tx"].producer, found["tx"].partitions) == (producer, (P0,))
        (one,) = await host.homes.list_transactions(["other", "none"])
        assert (one.transactional_id, one.timeout_ms, one.started_ms) == ("other", 5_000, -1)
    town.cut.add(frozenset((a.host_id, b.host_id)))
    states = {one.transactional_id: one.state for one in await b.homes.list_transactions()}
    assert states == {"tx": "Unknown", "other": "Empty"}
