"""Accounts over restarts of their origin: they stay exact to the record."""

from __future__ import annotations

import json

import pytest
from tests.unit.relay.world import TestHost, World, content, until

from treecast.middleware.fabric.core.accounting import Account, Ledger, Row
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.partitions import calls
from treecast.middleware.relay.partitions.accounts import ACCOUNTS, decode, encode
from treecast.middleware.storage.tables import Change
from treecast.middleware.wire.segment_bodies import Expiry, Mode, Rejection, Report, Totals

ACCOUNT = Account(
    7,
    Totals(1, 2, 3, 4, {Expiry.SIZE: 5}, {Rejection.STORAGE: 6}),
    Totals(live=2, repaired=1, replayed=4, expired={Expiry.COMPACTED: 2}),
    16,
    None,
)


def row(host: TestHost, of: int, topic: str = "t") -> Row:
    (stream,) = host.relay.leading.of_topic(topic)
    return stream.origin.rows()[of]


def delivered(one: Row) -> tuple[int, int, dict[Expiry, int]]:
    assert one.balanced
    return one.addressed, one.live + one.repaired + one.replayed, dict(one.expired)


async def produced(host: TestHost, count: int) -> None:
    for number in range(count):
        await host.produce(b"%d" % number)


async def account_closes(host: TestHost, of: int, records: int) -> None:
    """Each of the partition's records was addressed once, and was delivered."""
    await until(lambda: row(host, of).closed and row(host, of).addressed == records)
    assert delivered(row(host, of)) == (records, records, {})


async def followed(world: World) -> tuple[TestHost, TestHost]:
    """Host 1 leads; host 2 has received the first 20 records live."""
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await b.read(0)
    await until(lambda: b.partition().replica.current)
    await produced(a, 20)
    await until(b.copied())
    return a, b


async def test_an_origin_that_was_killed_goes_on_counting_where_it_was(world: World) -> None:
    _, b = await followed(world)
    for run in range(1, 4):
        before = b.partition().replica.joined.progress.totals
        world.kill(1)
        (a,) = await world.start(1)
        await produced(a, 10)
        await until(b.copied())
        await account_closes(a, 2, 20 + 10 * run)
        assert row(a, 2).live >= before.live
    assert content(a.log()) == content(b.log())


async def test_what_a_receiver_had_counted_is_taken_over_as_it_was(world: World) -> None:
    """All was replayed here, and the origin is killed before it has stored any of it."""
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await produced(a, 20)
    await b.read(0)
    await until(b.copied())
    assert b.partition().replica.joined.progress.totals == Totals(replayed=20)
    world.kill(1)
    (a,) = await world.start(1)
    await until(lambda: row(a, 2).closed and row(a, 2).addressed == 20)
    assert row(a, 2).replayed == 20


async def test_both_were_killed(world: World) -> None:
    await followed(world)
    world.kill(1)
    world.kill(2)
    a, b = await world.start(1, 2)
    await produced(a, 10)
    await until(b.copied())
    await account_closes(a, 2, 30)


async def test_a_host_that_is_away_when_its_origin_comes_back_is_not_forgotten(world: World) -> None:
    a, _ = await followed(world)
    await until(lambda: row(a, 2).closed)
    await a.relay.accounts.write()
    world.kill(2)
    await produced(a, 5)
    world.kill(1)
    (a,) = await world.start(1)  # its stream exists, though nobody follows
    await produced(a, 5)
    assert (row(a, 2).addressed, row(a, 2).outstanding) == (30, 10)
    (b,) = await world.start(2)
    await until(b.copied())
    await account_closes(a, 2, 30)


async def test_an_origin_that_stops_in_order_keeps_its_accounts(world: World) -> None:
    a, _ = await followed(world)
    await until(lambda: row(a, 2).closed)
    before = row(a, 2)
    await world.stop(1)
    world.kill(2)
    (a,) = await world.start(1)
    assert row(a, 2) == before


async def test_accounts_go_with_their_topic(world: World) -> None:
    a, _ = await followed(world)
    await a.relay.accounts.write()
    assert len(a.tables.load(ACCOUNTS)) == 1
    await world.delete("t")
    await until(lambda: not a.tables.load(ACCOUNTS))


async def test_unreadable_accounts_and_those_of_lost_partitions_are_dropped(world: World) -> None:
    a, _ = await followed(world)
    await a.relay.accounts.write()
    gone = f"{'0' * 32}.0.2"
    a.tables.write([Change(ACCOUNTS, gone, encode(ACCOUNT)), Change(ACCOUNTS, "x", b"{")])
    world.kill(1)
    (a,) = await world.start(1)
    assert row(a, 2).addressed == 20
    await until(lambda: gone not in a.tables.load(ACCOUNTS))


async def test_a_disk_that_refuses_costs_no_account(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = await followed(world)
    commit = a.tables.commit

    async def refuse(changes: list[Change]) -> None:
        raise TreecastError(Fault.STORAGE, "full")

    monkeypatch.setattr(a.tables, "commit", refuse)
    await produced(a, 1)
    await until(lambda: row(a, 2).closed)
    await a.relay.accounts.write()
    monkeypatch.setattr(a.tables, "commit", commit)
    await a.relay.accounts.write()
    (value,) = a.tables.load(ACCOUNTS).values()
    assert decode(value).next == 21


async def test_an_invalid_report_is_refused_and_the_account_stays(world: World) -> None:
    a, b = await followed(world)
    await until(lambda: row(a, 2).closed)
    receiving = calls.ReceivingStream(0, 0, b"nonsense")
    request = calls.FollowRequest(b.partition().leader.ref, 20, receiving=receiving)
    with pytest.raises(TreecastError, match="the report cannot be read"):
        a.relay.leading.follow(2, request, memoryview(b""))
    assert row(a, 2).addressed == 20


def test_an_account_in_json_and_back() -> None:
    assert decode(encode(ACCOUNT)) == ACCOUNT
    left = Account(0, Totals(), Totals(), 0, 3)
    assert decode(encode(left)) == left


@pytest.mark.parametrize(
    ("field", "value"),
    [("next", 17), ("totals", [1, 1]), ("left_at", "x"), ("totals", [9, 0, 0, 0, {"NO": 0}, {}])],
)
def test_an_account_that_makes_no_sense_is_refused(field: str, value: object) -> None:
    entry = json.loads(encode(ACCOUNT))
    entry[field] = value
    with pytest.raises((ValueError, KeyError)):
        decode(json.dumps(entry).encode())


# --- the ledger


def report(first: int, following: int, **totals: int) -> Report:
    return Report(Mode.LIVE, first, following, totals=Totals(**totals))


def test_the_last_word_on_an_earlier_epoch() -> None:
    ledger = Ledger()
    ledger.restore(2, Account(0, Totals(), Totals(live=50), 50))
    ledger.resume(2, report(0, 60, live=50, repaired=10), 100)
    assert (ledger.next(2), ledger.account(2).totals) == (60, Totals(live=50, repaired=10))
    ledger.resume(2, report(0, 55, live=55), 100)  # older
    ledger.resume(2, report(0, 70, live=70), 100)  # the repaired records are missing
    ledger.resume(2, report(0, 101, live=91, repaired=10), 100)  # beyond the end
    assert (ledger.next(2), ledger.account(2).totals) == (60, Totals(live=50, repaired=10))


def test_a_life_that_was_not_kept() -> None:
    """The host followed again from 80 on, just before its origin was killed."""
    ledger = Ledger()
    ledger.restore(2, Account(0, Totals(), Totals(repaired=50), 50))
    ledger.resume(2, report(80, 90, replayed=10), 100)
    account = ledger.account(2)
    assert (account.first, account.next, account.totals) == (80, 90, Totals(replayed=10))
    assert (account.earlier.repaired, account.earlier.live) == (50, 30)
    ledger.resume(2, report(0, 60, live=60), 100)  # a report of an earlier run no longer counts
    assert ledger.account(2) == account


def test_a_host_that_nobody_has_heard_of() -> None:
    ledger = Ledger()
    ledger.resume(2, report(10, 30, live=15, replayed=5), 100)
    assert ledger.account(2) == Account(10, Totals(), Totals(live=15, replayed=5), 30)
