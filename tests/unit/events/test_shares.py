"""Shared subscriptions over hosts: each message goes to one member, wherever the members are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.events.world import Client, TestHost, World, until

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.relay.events.shares import read_envelope


def publish(hosts: Sequence[TestHost], count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        hosts[number % len(hosts)].publish("t/x", b"%d" % number, 2)


def with_members(host: TestHost) -> list[int]:
    """Returns the other hosts that have announced members of $share/g/t/#."""
    return host.interest.hosts_for(("$share", "g", "t", "#"))


def rooted(host: TestHost) -> bool:
    group = host.hub.shares.get(b"g", b"t/#")
    return group is not None and group.rooted


def numbers(*clients: Client) -> list[int]:
    return sorted(int(payload) for client in clients for payload in client.payloads)


async def test_each_message_goes_to_one_member(world: World) -> None:
    hosts = await world.start(1, 2, 3)
    members = [host.client() for host in hosts for _ in range(2)]
    for member in members:
        await member.share("g", "t/#")
    plain = hosts[2].client()
    await plain.subscribe("t/x")
    publish(hosts, 60)
    await until(lambda: len(numbers(*members)) >= 60 and len(plain.got) >= 60)
    assert numbers(*members) == list(range(60)) == numbers(plain)
    assert all(len(member.got) == 10 for member in members)  # in turn


async def test_two_shares_of_one_filter_are_apart(world: World) -> None:
    hosts = await world.start(1, 2)
    one, two = hosts[0].client(), hosts[1].client()
    await one.share("g", "t/#")
    await two.share("h", "t/#")
    publish(hosts, 20)
    await until(lambda: len(one.got) == len(two.got) == 20)


async def test_members_come_and_go(world: World) -> None:
    hosts = await world.start(1, 2, 3)
    stays, goes = hosts[2].client(), hosts[1].client()
    await goes.share("g", "t/#")  # its host becomes the home
    await stays.share("g", "t/#")
    publish(hosts, 20)
    await until(lambda: len(numbers(stays, goes)) == 20)
    goes.leave("g", "t/#")  # the home no longer has a member of its own
    before = len(goes.got)
    publish(hosts, 20, 20)
    await until(lambda: len(numbers(stays, goes)) == 40)
    assert len(goes.got) == before
    assert numbers(stays, goes) == list(range(40))
    stays.leave("g", "t/#")
    await until(lambda: all(host.hub.shares.used() == [] for host in hosts))
    await until(lambda: all(host.publish("t/x", b"99") == 0 for host in hosts))


async def test_a_host_of_members_that_is_away_is_passed_over(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    at_a, at_b = a.client(), b.client()
    await at_a.share("g", "t/#")
    await at_b.share("g", "t/#")
    world.kill(2)
    await until(lambda: not a.channels.is_up(2))
    publish([a, c], 20)
    await until(lambda: len(at_a.got) == 20)


async def test_a_home_that_comes_back_hears_of_its_members_again(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    first, at_b = a.client(), b.client()
    await first.share("g", "t/#")
    await at_b.share("g", "t/#")
    world.kill(1)
    (a,) = await world.start(1)
    await until(lambda: with_members(c) == [2])
    await until(a.hub.shares.used)
    publish([b, c], 10)
    await until(lambda: len(at_b.got) >= 10)
    assert numbers(at_b)[-10:] == list(range(10))


async def test_another_host_becomes_the_home(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    at_a, at_b = a.client(), b.client()
    await at_a.share("g", "t/#")
    await at_b.share("g", "t/#")
    world.homes["g/t/#"] = 2
    for host in (a, b):
        assert host.events is not None
        host.events.shares.moved("g/t/#", 2)
    await until(lambda: not rooted(a) and rooted(b))
    publish([c], 20)
    await until(lambda: len(numbers(at_a, at_b)) == 20)
    assert len(at_a.got) == len(at_b.got) == 10


async def test_without_the_coordinator_members_are_served_by_their_host(world: World) -> None:
    a, b = await world.start(1, 2)
    world.away = True
    member = a.client()
    await member.share("g", "t/#")
    assert a.counters.shares_alone > 0
    publish([a, b], 10)
    await until(lambda: len(member.got) == 10)


async def test_what_is_promised_to_a_member_elsewhere_survives_a_kill_of_the_home(world: World) -> None:
    a, b = await world.start(1, 2)
    at_b = b.client()
    world.homes["g/t/#"] = 1
    await at_b.share("g", "t/#")
    world.kill(2)
    publish([a], 10)
    a.end_turn()
    world.kill(1)
    (b,) = await world.start(2)
    at_b = b.client()
    await at_b.share("g", "t/#")
    await world.start(1)
    await until(lambda: len(at_b.got) >= 10)
    assert numbers(at_b) == list(range(10))


@pytest.mark.parametrize("topic", [b"$share/", b"$share/g/t", b"$share/g\0t", b"$share/g/t\0"])
def test_what_is_no_envelope_is_refused(topic: bytes) -> None:
    with pytest.raises(TreecastError):
        read_envelope(topic)
