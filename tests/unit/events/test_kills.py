"""Kills at either end: promised messages arrive, once."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.unit.events.world import Client, TestHost, World, until

from treecast.middleware.broker.pubsub import Subscription


def count_up(host: TestHost, first: int, count: int, topic: str = "t", qos: int = 2) -> int:
    for number in range(first, first + count):
        host.publish(topic, b"%d" % number, qos)
    return first + count


def numbers(client: Client) -> list[int]:
    return [int(payload) for payload in client.payloads]


async def test_what_was_promised_before_a_kill_arrives_after_it(world: World) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    world.kill(2)  # b is away for an unknown time
    sent = count_up(a, 0, 50)
    a.end_turn()  # the messages are promised
    world.kill(1)
    (b,) = await world.start(2)
    client = b.client()
    await client.subscribe("t")
    (a,) = await world.start(1)
    await until(lambda: len(client.got) == sent)
    assert numbers(client) == list(range(sent))
    assert a.counters.sent_again == sent
    sent = count_up(a, sent, 10)
    await until(lambda: len(client.got) == sent)
    assert numbers(client) == list(range(sent))
    await until(lambda: all(not one.owed for one in a.journal.records.values()))


async def test_interest_that_the_coordinator_tells_after_the_start_counts(world: World) -> None:
    """A host that was killed before it had stored the record, while the other one is down."""
    (a,) = await world.start(1)
    a.interest.remember(2, ["t", "u"])
    a.interest.remember(2, ["t"])
    sent = count_up(a, 0, 20)
    count_up(a, 0, 20, "u")
    a.end_turn()
    (b,) = await world.start(2, share=False)
    client = b.client()
    for topic in (b"t", b"u"):
        b.hub.subscribe(Subscription(client, topic, 2))  # as a lasting session is resumed
    b.share()
    await until(lambda: len(client.got) >= sent)
    assert numbers(client) == list(range(sent))
    a.interest.remember(2, [])  # it has announced itself: what was recorded counts no more
    assert a.interest.of(2) == {("t",), ("u",)}


async def test_a_receiver_that_is_killed_gets_what_it_has_not_taken(world: World) -> None:
    """Its own journal knows the messages that it took, and it ignores their repeats."""
    a, b = await world.start(1, 2)
    await b.client().subscribe("t")
    before: list[int] = []
    sent = 0
    for _ in range(4):
        client = b.client()
        await client.subscribe("t")
        sent = count_up(a, sent, 30)
        a.end_turn()
        await until(lambda client=client: len(client.got) >= 5)
        world.kill(2)
        before += numbers(client)
        sent = count_up(a, sent, 10)
        a.end_turn()
        (b,) = await world.start(2, share=False)
        client = b.client()
        b.hub.subscribe(Subscription(client, b"t", 2))  # as a lasting session is resumed
        b.share()
        await until(lambda client=client, sent=sent, before=before: len(client.got) == sent - len(before))
        before += numbers(client)
        b.hub.unsubscribe(client, b"t")
    assert before == list(range(sent))


async def test_kills_at_both_ends_lose_and_double_nothing(world: World) -> None:
    """The origin and one receiver are killed in any order; every QoS 2 message arrives, also at the other."""
    rng = random.Random(11)
    a, b, c = await world.start(1, 2, 3)
    got: dict[int, list[int]] = {2: [], 3: []}
    clients: dict[int, Client] = {}
    for host in (b, c):
        clients[host.number] = host.client()
        await clients[host.number].subscribe("t/#")
    sent = 0
    for step in range(12):
        sent = count_up(a, sent, rng.randrange(1, 40), f"t/{rng.randrange(2)}")
        a.end_turn()
        if rng.random() < 0.5:
            await until(lambda: len(clients[3].got) > 0)
        victim = rng.choice([1, 2]) if step % 3 else 1
        world.kill(victim)
        if victim == 2:
            got[2] += numbers(clients[2])
            (b,) = await world.start(2, share=False)
            clients[2] = b.client()
            b.hub.subscribe(Subscription(clients[2], b"t/#", 2))
            b.share()
        else:
            (a,) = await world.start(1)
            await until(lambda a=a: sorted(a.interest.hosts_for(("t", "0"))) == [2, 3])
    sent = count_up(a, sent, 5)
    await until(lambda: len(got[2]) + len(clients[2].got) >= sent and len(clients[3].got) >= sent)
    got[2] += numbers(clients[2])
    got[3] += numbers(clients[3])
    assert sorted(got[2]) == sorted(got[3]) == list(range(sent))


async def test_what_is_not_promised_is_not_sent_again(world: World) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    world.kill(2)
    count_up(a, 0, 20, qos=0)
    a.end_turn()
    world.kill(1)
    (b,) = await world.start(2)
    client = b.client()
    await client.subscribe("t")
    (a,) = await world.start(1)
    await until(lambda: a.interest.hosts_for(("t",)) == [2])
    a.publish("t", b"99", 1)
    await until(lambda: client.got)
    assert numbers(client) == [99]
    assert a.counters.sent_again == 0


async def test_an_older_state_of_the_origin_does_not_send_again_what_all_have_taken(
    world: World, tmp_path: Path
) -> None:
    """Its journal owes messages that were settled long ago, and receivers have forgotten their numbers."""
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    sent = count_up(a, 0, 5)
    a.end_turn()
    world.kill(2)
    sent = count_up(a, sent, 10)
    a.end_turn()  # promised to b, which is away
    world.kill(1)
    first = numbers(client)
    shutil.copytree(tmp_path / "1", tmp_path / "copy")
    (b,) = await world.start(2, share=False)
    client = b.client()
    b.hub.subscribe(Subscription(client, b"t", 2))  # as a lasting session is resumed
    b.share()
    (a,) = await world.start(1)
    await until(lambda: len(first) + len(client.got) == sent)
    sent = count_up(a, sent, 5)
    await until(lambda: all(not one.owed for one in a.journal.records.values()))
    world.kill(1)
    (a,) = await world.start(1)  # tells b that nothing earlier will be sent again
    sent = count_up(a, sent, 5)
    await until(lambda: len(first) + len(client.got) == sent)
    world.kill(1)
    shutil.rmtree(tmp_path / "1")
    shutil.copytree(tmp_path / "copy", tmp_path / "1")
    (a,) = await world.start(1)  # under a run of its own, as the coordinator lets it
    sent = count_up(a, sent, 5)
    a.end_turn()
    await until(lambda: len(first) + len(client.got) >= sent)
    assert a.counters.sent_again > 0
    assert first + numbers(client) == list(range(sent))
