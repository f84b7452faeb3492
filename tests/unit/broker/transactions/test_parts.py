"""Batches staged in parts: the named parts count all or none, and once, across kills."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.broker.transactions.home import Bench
from tests.unit.refusals import refusal

from treecast.middleware.broker.transactions.parts import ANYTHING, Part, part_of, whole_of
from treecast.middleware.broker.transactions.records import TRANSACTIONS, decode, items_of, rows_of
from treecast.middleware.broker.values import InitProducer
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER, ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Tables

P = [TopicPartition("t", index) for index in range(3)]
Parts = dict[str, ProducerIdentity]


@pytest.mark.parametrize(
    ("transactional_id", "found"),
    [
        ("tx", None),
        ("a/b", None),
        ("a//b/c", None),
        ("//1/c", None),
        ("a//1/", None),
        ("a//1/c", Part("a", 1, "c")),
        ("a//b//17/c//2/d", Part("a//b", 17, "c//2/d")),
        ("a//0/x\ny", Part("a", 0, "x\ny")),
    ],
)
def test_which_ids_are_parts(transactional_id: str, found: Part | None) -> None:
    assert part_of(transactional_id) == found
    assert whole_of(transactional_id) == (found.whole if found else transactional_id)


class Home(Bench):
    """Adds the calls that these tests make."""

    async def stage(self, name: str, *partitions: TopicPartition, lease_ms: int = 60_000) -> Parts:
        producer = await self.home.init_producer(InitProducer(name, lease_ms, NO_PRODUCER))
        assert await self.home.add_partitions(name, producer, partitions) == {}
        return {name: producer}

    async def commit(self, batch: int, parts: Parts, content: str = "") -> None:
        await self.home.end_parts("q", batch, parts, committed=True, content=content)

    async def abort(self, batch: int) -> None:
        await self.home.end_parts("q", batch, {}, committed=False)

    def told(self, committed: bool) -> set[tuple[str, int]]:
        return {(what, who.producer_id) for what, who, how in self.cluster.deeds if how is committed}

    def rows(self) -> set[str]:
        return set(self.tables.load(TRANSACTIONS))


@pytest.fixture
async def bench(tables: Tables, recording_cluster: Any, clock: Any) -> Home:
    made = Home(tables, recording_cluster, clock)
    await made.restart()
    return made


def pid(parts: Parts) -> int:
    (producer,) = parts.values()
    return producer.producer_id


async def test_those_named_count_and_the_others_do_not(bench: Home) -> None:
    one, two = await bench.stage("q//0/1", P[0], P[1]), await bench.stage("q//0/2", P[1])
    loser, left = await bench.stage("q//0/1b", P[0]), await bench.stage("q//1/early", P[2])
    await bench.commit(0, one | two)
    assert bench.told(True) == {("t-0", pid(one)), ("t-1", pid(one)), ("t-1", pid(two))}
    assert bench.told(False) == {("t-0", pid(loser))}
    assert bench.rows() == {"q", "q//1/early"}
    bench.home.verify("q//1/early", left["q//1/early"], P[2])
    assert (bench.counters.transactions_committed, bench.counters.transactions_aborted) == (2, 1)


async def test_a_batch_that_is_committed_is_over(bench: Home) -> None:
    first = await bench.stage("q//3/1", P[0])
    await bench.commit(3, first)
    deeds = list(bench.cluster.deeds)
    for _ in range(2):
        for batch in (0, 3):
            with refusal(Fault.INVALID_TRANSACTION_STATE):
                await bench.stage(f"q//{batch}/again", P[0])
        await bench.commit(3, {"q//3/1": ProducerIdentity(77, 0)})
        await bench.restart()
    assert bench.cluster.deeds == deeds
    await bench.commit(4, await bench.stage("q//4/1", P[0]))
    assert len(bench.cluster.deeds) == 2


async def test_a_batch_before_the_last_one_is_no_repeat(bench: Home) -> None:
    """A new query uses an old name: its batches are not those that were committed."""
    await bench.commit(3, await bench.stage("q//3/1", P[0]), "5 rows")
    for content in ("", "5 rows"):
        for parts in ({}, {"q//2/1": ProducerIdentity(77, 0)}):
            with refusal(Fault.INVALID_TRANSACTION_STATE):
                await bench.commit(2, parts, content)
    assert bench.counters.batches_skipped == 0


@pytest.mark.parametrize(
    ("committed", "repeated", "compared"),
    [
        ("5 rows: t 5; digest 1f", "5 rows: t 5; digest 1f", "rows"),
        ("5 rows: t 5", "5 rows: t 5; digest 1f", "numbers of rows"),  # of an earlier version
        ("5 rows: t 5; digest 1f", "5 rows: t 5", "numbers of rows"),  # by choice
        ("5 rows: t 5; digest 1f", ANYTHING, "nothing"),
        ("5 rows: t 5; digest 1f", "5 rows: t 5; digest 2f", None),
        ("5 rows: t 5; digest 1f", "6 rows: t 6; digest 1f", None),
        ("5 rows: t 5; digest 1f", "6 rows: t 6", None),
        ("5 rows: t 5", "6 rows: t 6; digest 1f", None),
        ("", "5 rows: t 5; digest 1f", None),
    ],
)
async def test_contents_agree_in_what_both_name(
    bench: Home, caplog: pytest.LogCaptureFixture, committed: str, repeated: str, compared: str | None
) -> None:
    """As many rows are no repeat if they are other rows: their digests differ."""
    await bench.commit(3, await bench.stage("q//3/1", P[0]), committed)
    await bench.restart()
    if compared is None:
        with refusal(Fault.INVALID_TRANSACTION_STATE):
            await bench.commit(3, {}, repeated)
    else:
        await bench.commit(3, {}, repeated)
        assert f"compared={compared}" in caplog.text


async def test_a_repeat_holds_what_the_batch_held(bench: Home) -> None:
    """Holds after a restart as well; each batch that is not written again is counted."""
    one = await bench.stage("q//3/1", P[0])
    await bench.commit(3, one, "5 rows")
    await bench.commit(3, one, "5 rows")  # the answer was lost
    assert bench.counters.batches_skipped == 0
    for skipped in (1, 2):
        await bench.restart()
        with refusal(Fault.INVALID_TRANSACTION_STATE):
            await bench.commit(3, {}, "6 rows")
        await bench.commit(3, {}, "5 rows" if skipped == 1 else ANYTHING)
        assert bench.counters.batches_skipped == skipped
    assert len(bench.cluster.deeds) == 1


async def test_what_tasks_took_for_committed_has_to_be(bench: Home) -> None:
    """The tasks wrote nothing, so there are no parts; the home must not accept an empty batch instead."""
    for content in ("5 rows", ANYTHING):
        with refusal(Fault.INVALID_TRANSACTION_STATE):
            await bench.commit(0, {}, content)
    await bench.commit(0, await bench.stage("q//0/1", P[0]), "5 rows")


async def test_what_was_staged_before_a_repeat_does_not_count(bench: Home) -> None:
    """Two drivers stage the same batch: the first to commit wins."""
    mine, theirs = await bench.stage("q//0/a", P[0]), await bench.stage("q//0/b", P[0])
    await bench.commit(0, mine)
    await bench.commit(0, theirs)
    assert (bench.told(True), bench.told(False)) == ({("t-0", pid(mine))}, {("t-0", pid(theirs))})


async def test_a_part_that_is_not_open_refuses_the_whole_batch(bench: Home) -> None:
    one, two = await bench.stage("q//0/1", P[0]), await bench.stage("q//0/2", P[1], lease_ms=1000)
    bench.clock.now += 2
    await bench.home.expire()
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        await bench.commit(0, one | two)
    assert bench.told(True) == set()
    other = {name: ProducerIdentity(producer.producer_id, 9) for name, producer in one.items()}
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        await bench.commit(0, other)
    with refusal(Fault.INVALID_REQUEST):
        await bench.commit(1, one)
    await bench.commit(0, one)
    assert bench.told(True) == {("t-0", pid(one))}


async def test_an_abort_ends_all_that_is_open_and_fences_it(bench: Home) -> None:
    one = await bench.stage("q//2/1", P[0])
    await bench.stage("q//1/old", P[1])
    late = await bench.stage("q//3/late", P[2])
    await bench.abort(2)
    assert bench.told(False) == {("t-0", pid(one)), ("t-1", pid(one) + 1)}
    ((_, marker, _),) = [deed for deed in bench.cluster.deeds if deed[0] == "t-0"]
    assert marker == ProducerIdentity(pid(one), one["q//2/1"].epoch + 1)
    bench.home.verify("q//3/late", late["q//3/late"], P[2])
    await bench.commit(2, await bench.stage("q//2/2", P[0]))


async def test_a_task_may_abort_its_own_part(bench: Home) -> None:
    one = await bench.stage("q//0/1", P[0])
    await bench.home.end("q//0/1", one["q//0/1"], committed=False)
    assert bench.rows() == set()


async def test_parts_that_time_out_leave_nothing(bench: Home) -> None:
    one = await bench.stage("q//0/1", P[0])
    await bench.home.init_producer(InitProducer("q//0/unused", 60_000, NO_PRODUCER))
    bench.clock.now += 61
    await bench.home.expire()
    assert bench.told(False) == {("t-0", pid(one))}
    assert bench.rows() == set()


async def test_producer_ids_of_parts_that_are_done_serve_again(bench: Home) -> None:
    seen: set[ProducerIdentity] = set()
    for batch in range(20):
        parts = await bench.stage(f"q//{batch}/1", P[0]) | await bench.stage(f"q//{batch}/2", P[0])
        assert not seen & set(parts.values())
        seen |= set(parts.values())
        await bench.commit(batch, parts)
    assert len({producer.producer_id for producer in seen}) == 2
    plain = await bench.home.init_producer(InitProducer("tx", 1000, NO_PRODUCER))
    assert plain.epoch == 0


@pytest.mark.parametrize("where", ["t-0", "t-1"])
async def test_a_restart_completes_what_is_decided(
    bench: Home, kill: type[BaseException], where: str
) -> None:
    parts = await bench.stage("q//0/1", P[0]) | await bench.stage("q//0/2", P[1])
    loser = await bench.stage("q//0/3", P[2])
    bench.cluster.fail[where] = kill()
    with pytest.raises(kill):
        await bench.commit(0, parts)
    await bench.restart()
    assert {what for what, _ in bench.told(True)} == {"t-0", "t-1"}
    assert bench.told(False) == {("t-2", pid(loser))}
    assert bench.rows() == {"q"}


async def test_markers_that_wait_outlive_the_next_decision(bench: Home) -> None:
    """The row of the whole names the parts of the last batch only."""
    first = await bench.stage("q//0/1", P[0])
    bench.cluster.fail["t-0"] = TreecastError(Fault.STORAGE)
    with refusal(Fault.STORAGE):
        await bench.commit(0, first)
    bench.cluster.fail["t-0"] = TreecastError(Fault.STORAGE)
    second = await bench.stage("q//1/1", P[1])
    with refusal(Fault.STORAGE):
        await bench.commit(1, second)
    bench.cluster.deeds.clear()
    await bench.restart()
    assert ("t-0", pid(first)) in bench.told(True)
    assert bench.told(False) == set()


async def test_a_whole_is_forgotten_when_it_rests(bench: Home) -> None:
    await bench.commit(0, await bench.stage("q//0/1", P[0]))
    bench.clock.now += 8 * 86_400
    await bench.home.expire()
    assert bench.rows() == set()


async def test_items_for_the_next_home(bench: Home) -> None:
    await bench.commit(5, await bench.stage("q//5/a", P[0]))
    open_part = await bench.stage("q//6/b", P[1])
    items = bench.home.items("q")
    assert set(items) == {b"t", b"p//6/b"}
    rows = bench.home.rows("q", items)
    bench.home.load("q", 0, rows)
    assert bench.home.known() == ["q"]
    await bench.commit(6, open_part)
    assert bench.told(True) >= {("t-1", pid(open_part))}
    assert {change.key for change in bench.home.unload("q")} == {"q"}
    for key in (b"x", b"pzzz", b"p"):
        with pytest.raises(ValueError, match="unknown item"):
            rows_of("q", {key: items[b"t"]})
    stored = decode("q", items[b"t"])
    assert items_of([stored]) == {b"t": items[b"t"]}


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_a_batch_counts_once_and_whole(
    bench: Home, kill: type[BaseException], seed: int
) -> None:
    """Drivers repeat batches, tasks run twice, and kills fall between any two markers."""
    rng = random.Random(seed)
    batch, staged, named = 0, {}, {}
    for step in range(60):
        match rng.randrange(6):
            case 0 | 1:
                name = f"q//{rng.choice([batch, batch, max(0, batch - 1)])}/{step}"
                with suppress(TreecastError):
                    staged |= await bench.stage(name, *rng.sample(P, rng.randrange(1, 3)))
            case 2 | 3:
                mine = {name: who for name, who in staged.items() if part_of(name).batch == batch}
                chosen = {name: mine[name] for name in rng.sample(sorted(mine), min(len(mine), 2))}
                if rng.random() < 0.4:
                    bench.cluster.fail[f"t-{rng.randrange(3)}"] = kill()
                try:
                    await bench.commit(batch, chosen)
                except TreecastError:
                    continue
                except kill:
                    await bench.restart()
                finally:
                    bench.cluster.fail.clear()
                row = decode("q", bench.tables.load(TRANSACTIONS)["q"])
                if row.batch == batch:
                    named.setdefault(batch, {f"q//{batch}/{name}" for name in row.winners})
                    batch += rng.randrange(2)
            case 4:
                await bench.abort(batch)
            case 5:
                await bench.restart()
    await bench.restart()
    identities = {(who.producer_id, who.epoch): name for name, who in staged.items()}
    counted = {identities[who.producer_id, who.epoch] for _, who, how in bench.cluster.deeds if how}
    assert counted == set().union(*named.values()) if named else not counted
    markers = [(what, who) for what, who, how in bench.cluster.deeds if how]
    fenced = {(what, who.producer_id, who.epoch) for what, who, how in bench.cluster.deeds if not how}
    assert not {(what, who.producer_id, who.epoch + 1) for what, who in markers} & fenced
