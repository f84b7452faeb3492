"""Accounts of event streams over restarts of both ends, and over successive streams: no count is lost."""

from __future__ import annotations

import random

import pytest
from tests.unit.events.test_kills import count_up, numbers
from tests.unit.events.world import Client, TestHost, World, until

from treecast.middleware.broker.pubsub import Subscription
from treecast.middleware.fabric.core.accounting import Account, Row
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.events.accounts import EVENT_ACCOUNTS
from treecast.middleware.relay.events.earlier import KeptHost, Word, closed, unknown
from treecast.middleware.relay.events.ports import EventSettings
from treecast.middleware.relay.kept_accounts import packed_account
from treecast.middleware.storage.tables import Change
from treecast.middleware.wire.segment_bodies import Expiry, Mode, Report, Totals

SLOW = EventSettings(open_wait=5.0, retry=0.05, tick=0.02, over=0.5, accounts_every=3600.0)


def rows(host: TestHost, of: int) -> list[Row]:
    """Returns all accounts of a receiver: those of streams, and of sets without one."""
    found = [stream.origin.rows().get(of) for stream in host.streams]
    assert host.events is not None
    found += [accounts.get(of) for _, accounts in host.events.sending.accounts.resting()]
    return [row for row in found if row is not None]


def lost(host: TestHost, of: int) -> dict[Expiry, int]:
    found: dict[Expiry, int] = {}
    for row in rows(host, of):
        for reason, count in row.expired.items():
            found[reason] = found.get(reason, 0) + count
    return {reason: count for reason, count in found.items() if count}


def outstanding(host: TestHost, of: int) -> int:
    return sum(row.outstanding for row in rows(host, of))


def addressed(host: TestHost, of: int) -> int:
    assert all(row.balanced for row in rows(host, of))
    return sum(row.addressed for row in rows(host, of))


def delivered(host: TestHost, of: int) -> int:
    return sum(row.live + row.repaired + row.replayed for row in rows(host, of))


async def closes(host: TestHost, of: int, records: int) -> None:
    """Each record was addressed to the host once, and delivered."""
    try:
        await until(lambda: outstanding(host, of) == 0 and addressed(host, of) == records)
    except TimeoutError:
        pytest.fail(f"{records} records to host {of}, but {rows(host, of)}")
    assert (delivered(host, of), lost(host, of)) == (records, {})


async def written(host: TestHost) -> None:
    """Writes the accounts to the disk."""
    assert host.events is not None
    await host.events.sending.accounts.write()


async def both(world: World) -> tuple[TestHost, TestHost, Client]:
    """Starts two hosts; messages of the first go to a client of the second."""
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    return a, b, client


async def started_again(world: World) -> TestHost:
    (a,) = await world.start(1)
    await until(lambda: a.interest.hosts_for(("t",)) == [2])
    return a


async def twenty(world: World, qos: int = 2) -> tuple[TestHost, int]:
    """Returns the first host of `both` after its messages have arrived, and their number."""
    a, _, client = await both(world)
    sent = count_up(a, 0, 20, qos=qos)
    await until(lambda: len(client.got) == sent)
    await closes(a, 2, sent)
    return a, sent


async def received_again(world: World) -> tuple[TestHost, Client]:
    """Starts the second host, which resumes its session."""
    (b,) = await world.start(2, share=False)
    client = b.client()
    b.hub.subscribe(Subscription(client, b"t", 2))
    b.share()
    return b, client


@pytest.mark.parametrize("qos", [0, 2])
async def test_an_origin_that_was_killed_goes_on_counting_where_it_was(world: World, qos: int) -> None:
    a, _, client = await both(world)
    sent = 0
    for _ in range(3):
        sent = count_up(a, sent, 20, qos=qos)
        await until(lambda sent=sent: len(client.got) == sent)
        world.kill(1)
        a = await started_again(world)
    assert numbers(client) == list(range(sent))
    await closes(a, 2, sent)
    sent = count_up(a, sent, 5, qos=qos)
    await closes(a, 2, sent)


async def test_a_receiver_that_was_killed(world: World) -> None:
    a, _, client = await both(world)
    sent, got = 0, 0
    for _ in range(3):
        sent = count_up(a, sent, 20)
        a.end_turn()
        await until(lambda client=client: client.got)
        world.kill(2)
        got += len(client.got)
        sent = count_up(a, sent, 5)
        a.end_turn()
        _, client = await received_again(world)
        await until(lambda client=client, sent=sent, got=got: got + len(client.got) == sent)
    await closes(a, 2, sent)


async def test_both_were_killed(world: World) -> None:
    """Messages after the last written account are known from the journals only."""
    world.settings = SLOW
    a, _, client = await both(world)
    sent, got = count_up(a, 0, 20), 0
    for _ in range(3):
        a.end_turn()
        await until(lambda client=client, sent=sent, got=got: got + len(client.got) == sent)
        await written(a)
        sent = count_up(a, sent, 10)
        a.end_turn()
        await until(lambda client=client, sent=sent, got=got: got + len(client.got) == sent)
        got += len(client.got)
        world.kill(1)
        world.kill(2)
        _, client = await received_again(world)
        a = await started_again(world)
        await closes(a, 2, sent)
        sent = count_up(a, sent, 7)
    await closes(a, 2, sent)
    assert got + len(client.got) == sent


async def test_a_host_that_is_away_when_its_origin_comes_back_is_not_forgotten(world: World) -> None:
    a, sent = await twenty(world)
    world.kill(2)
    sent = count_up(a, sent, 5)
    a.end_turn()
    world.kill(1)
    (a,) = await world.start(1)
    await until(lambda: outstanding(a, 2) >= 5)
    _, client = await received_again(world)
    await until(lambda: len(client.got) == 5)
    await closes(a, 2, sent)


async def test_what_nobody_was_promised_goes_with_its_origin(world: World) -> None:
    a, sent = await twenty(world, qos=0)
    world.kill(2)
    count_up(a, sent, 30, qos=0)
    a.end_turn()
    await until(lambda: addressed(a, 2) == sent + 30)
    await written(a)
    world.kill(1)
    a, b = await world.start(1, 2)
    await b.client().subscribe("t")
    await until(lambda: outstanding(a, 2) == 0)
    assert (addressed(a, 2), delivered(a, 2), lost(a, 2)) == (sent + 30, sent, {Expiry.ORIGIN_GONE: 30})


async def test_an_origin_that_stops_in_order_keeps_its_accounts(world: World) -> None:
    a, sent = await twenty(world, qos=1)
    await world.hosts.pop(1).stop()
    a = await started_again(world)
    await closes(a, 2, sent)
    assert a.counters.sent_again == 0


async def test_a_set_of_hosts_goes_on_with_its_account(world: World) -> None:
    """One stream ends while nothing is published; another follows, also after a restart."""
    world.settings = EventSettings(
        open_wait=5.0, retry=0.05, tick=0.02, over=0.05, accounts_every=0.05, idle=0.1
    )
    a, _, client = await both(world)
    sent = 0
    for _ in range(3):
        sent = count_up(a, sent, 10, qos=1)
        await until(lambda sent=sent: len(client.got) == sent)
        await until(lambda a=a: not a.streams)
        await closes(a, 2, sent)
        world.kill(1)
        a = await started_again(world)
    await closes(a, 2, sent)


async def test_a_host_that_leaves_says_nothing_more(world: World) -> None:
    a, sent = await twenty(world, qos=0)
    world.kill(2)
    count_up(a, sent, 5, qos=0)
    a.end_turn()
    await until(lambda: addressed(a, 2) == sent + 5)
    await written(a)
    world.kill(1)
    (a,) = await world.start(1)
    assert outstanding(a, 2) == 5
    assert a.events is not None
    a.events.host_left(2)
    await until(lambda: outstanding(a, 2) == 0)
    assert (addressed(a, 2), lost(a, 2)) == (sent + 5, {Expiry.LEFT: 5})


@pytest.mark.parametrize("qos", [0, 2])
async def test_a_host_that_left_while_its_origin_was_down(world: World, qos: int) -> None:
    a, sent = await twenty(world, qos=qos)
    world.kill(2)
    count_up(a, sent, 5, qos=qos)
    a.end_turn()
    await until(lambda: addressed(a, 2) == sent + 5)
    await written(a)
    world.kill(1)
    world.cluster = {1}
    (a,) = await world.start(1)
    await until(lambda: outstanding(a, 2) == 0)
    assert (addressed(a, 2), lost(a, 2)) == (sent + 5, {Expiry.LEFT: 5})
    await until(lambda: not any(record.owed for record in a.journal.records.values()))


async def test_kills_at_both_ends(world: World) -> None:
    """Two receivers, one of which is killed as well, get every message, whatever the order of kills."""
    rng = random.Random(7)
    a, b, c = await world.start(1, 2, 3)
    for host in (b, c):
        await host.client().subscribe("t")
    sent = 0
    for _ in range(8):
        sent = count_up(a, sent, rng.randrange(1, 40), qos=rng.choice([1, 2]))
        a.end_turn()
        victims = rng.choice([(1,), (2,), (1, 2), (2, 1)])
        for victim in victims:
            world.kill(victim)
        for victim in reversed(victims):
            if victim == 2:
                await received_again(world)
            else:
                (a,) = await world.start(1)
        await until(lambda a=a: sorted(a.interest.hosts_for(("t",))) == [2, 3])
    for of in (2, 3):
        await closes(a, of, sent)


async def test_unreadable_accounts_are_dropped(world: World) -> None:
    a, sent = await twenty(world)
    await written(a)
    a.tables.write(
        [
            Change(EVENT_ACCOUNTS, key, value)
            for key, value in ((".", b"{"), ("over.x", b"{}"), ("stream.1", b""))
        ]
    )
    world.kill(1)
    a = await started_again(world)
    await closes(a, 2, sent)


async def test_a_disk_that_refuses_costs_no_account(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promised messages are kept until the account is written."""
    a, _, client = await both(world)

    async def refuse(changes: list[Change]) -> None:
        raise TreecastError(Fault.STORAGE, "full")

    with monkeypatch.context() as patched:
        patched.setattr(a.tables, "commit", refuse)
        sent = count_up(a, 0, 20)
        await until(lambda: len(client.got) == sent)
        await until(lambda: outstanding(a, 2) == 0 and addressed(a, 2) == sent)
        await written(a)
        assert sum(len(record.owed) for record in a.journal.records.values()) == sent
    await until(lambda: not any(record.owed for record in a.journal.records.values()))
    world.kill(1)
    a = await started_again(world)
    await closes(a, 2, sent)


# --- one account


def kept(account: Account, number: int = 0, fleeting: int = 0) -> KeptHost:
    return KeptHost(packed_account(account), number, fleeting)


LINE = (1, 9)
TEN = Account(0, Totals(), Totals(live=10), 10)  # 8 more follow, 3 of them promised


@pytest.mark.parametrize(
    ("passed", "word", "expected"),
    [
        # it was killed as well: messages in its journal that are not sent again were delivered
        (0, None, Totals(live=10, expired={Expiry.ORIGIN_GONE: 5})),
        (11, None, Totals(live=10, expired={Expiry.ORIGIN_GONE: 5})),
        # it reports by itself; messages that it has, and that are sent again, count there
        (
            0,
            Word(Report(Mode.LIVE, 0, 10, totals=Totals(live=10)), 18, 9),
            Totals(live=10, expired={Expiry.ORIGIN_GONE: 5}),
        ),
        (
            12,
            Word(Report(Mode.LIVE, 0, 18, totals=Totals(live=10, repaired=8)), 18, 12),
            Totals(live=7, repaired=8),
        ),
        (
            12,
            Word(Report(Mode.LIVE, 0, 18, totals=Totals(replayed=18)), 18, 12),
            Totals(live=10, expired={Expiry.ORIGIN_GONE: 5}),
        ),
    ],
    ids=["nothing", "some", "stayed", "all", "contradiction"],
)
def test_what_a_host_knows(passed: int, word: Word | None, expected: Totals) -> None:
    owed = [(10, LINE), (11, LINE), (12, LINE)]
    found = closed(2, kept(TEN, number=9, fleeting=5), 18, owed, {LINE: passed}, word)
    assert found == expected


def test_who_left_is_owed_nothing() -> None:
    left = kept(Account(0, Totals(), Totals(live=10), 10, left_at=14))
    assert closed(2, left, 18, [], {}, None) == Totals(live=10, expired={Expiry.LEFT: 4})
    assert unknown(left, 18) == 0
