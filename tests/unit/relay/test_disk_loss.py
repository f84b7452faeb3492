"""A host returns with another disk: copies elsewhere are kept, and it leads again from them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.relay.world import SETTINGS, TestHost, World, content, until

from treecast.middleware.api.entries import PartitionEntry
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.partitions import calls
from treecast.middleware.relay.partitions.lost_disk import Recorded, Step
from treecast.middleware.relay.partitions.operator import LED, REFUSED, WAITS

PATIENT = replace(SETTINGS, rebuild_grace=1e6)
HASTY = replace(SETTINGS, rebuild_grace=0.3)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path, settings=PATIENT)


@pytest.fixture(autouse=True)
async def _closed(world: World) -> object:
    yield
    await world.close()


def leader(world: World, topic: str = "t") -> PartitionEntry:
    return world.topics[topic].partitions[0]


def led(world: World) -> bool:
    return not leader(world).waits and world.hosts[leader(world).leader].partitions.find("t", 0) is not None


async def copied_to(*hosts: TestHost) -> None:
    for host in hosts:
        await host.read(0)
        await until(host.copied())


async def refusal(what: object) -> TreecastError:
    with pytest.raises(TreecastError) as refused:
        await what  # type: ignore[misc]
    return refused.value


async def recorded(world: World, end: int) -> None:
    """Waits until the coordinator has recorded `end`, and that nothing more is written."""
    topic_id = world.topics["t"].topic_id
    found = lambda: world.ends.get((topic_id, 0), Recorded(0, 0))  # noqa: E731
    await until(lambda: found().end >= end and found().quiet)


async def test_the_last_copy_is_not_cut_and_the_host_leads_again_from_it(world: World) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    for number in range(5):
        await b.produce(b"%d" % number)
    await copied_to(a)
    kept = content(a.log())
    await recorded(world, 5)
    world.kill(2)
    await world.lose_disk(2)
    (b,) = await world.start(2)
    await until(lambda: led(world))
    assert content(b.log()) == kept
    assert await b.produce(b"more") == 5
    await until(a.copied())
    assert content(a.log()) == content(b.log())
    assert (a.counters.truncations, a.counters.restarted_replicas, a.counters.refused_replicas) == (0, 0, 0)
    assert b.log().leader_epoch == leader(world).leader_epoch >= b.run
    assert b.log().epoch_entries == [(0, 0), (leader(world).leader_epoch, 5)]
    (lost,) = leader(world).lost
    assert (lost.first, lost.heard, lost.is_loss) == (5, 5, False)  # where it went on; nothing is missing
    assert b.counters.lost_records == 0


async def test_while_it_waits_clients_hear_that_they_may_try_again(world: World) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    for number in range(5):
        await b.produce(b"%d" % number)
    await recorded(world, 5)  # nobody has a copy
    world.kill(2)
    await world.lose_disk(2)
    (b,) = await world.start(2)
    rebuild = b.relay.rebuilding.find(b.partition().name)
    await until(lambda: rebuild.step is Step.WAITING)
    for host in (a, b):
        with pytest.raises(TreecastError) as refused:
            await host.produce(b"more")
        assert refused.value.fault is Fault.LEADER_UNAVAILABLE
        with pytest.raises(TreecastError) as refused:
            await host.read(0)
        assert refused.value.fault is Fault.LEADER_UNAVAILABLE
        (standing,) = host.relay.operator.standings()
        assert standing.state == WAITS
    assert "5 records" in rebuild.reason
    topic = b.definitions.known["t"]
    error = await refusal(a.relay.operator.rebuild(topic, 0, "", accept_loss=False))
    assert error.fault is Fault.POLICY_VIOLATION
    assert "--accept-loss" in error.detail
    await a.relay.operator.rebuild(topic, 0, "", accept_loss=True)  # forwarded to host 2
    await until(lambda: led(world))
    assert await a.produce(b"first") == 0
    assert [(lost.first, lost.heard) for lost in leader(world).lost] == [(0, 5)]
    assert b.counters.lost_records == 5


async def test_what_followers_have_is_read_while_it_waits(world: World) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    kept = content(a.log())
    world.away = True  # prevents the rebuild
    world.kill(2)
    await world.lose_disk(2)
    (b,) = await world.start(2)
    assert await a.consume(1) == kept
    await until(lambda: b.relay.rebuilding.find(b.partition().name).step is Step.WAITING)
    world.away = False
    await until(lambda: led(world))
    await until(a.copied())


async def test_the_furthest_copy_counts_and_a_host_that_may_have_more_is_waited_for(world: World) -> None:
    await world.topic("t", 2)
    a, b, c = await world.start(1, 2, 3)
    await b.produce(b"one")
    await copied_to(a, c)
    world.kill(1)
    await b.produce(b"two")
    await until(c.copied())
    kept = content(c.log())
    await recorded(world, 2)
    world.kill(3)
    world.kill(2)
    await world.lose_disk(2)
    a, b = await world.start(1, 2)
    rebuild = b.relay.rebuilding.find(b.partition().name)
    await until(lambda: "host3" in rebuild.reason)
    assert not led(world)
    (c,) = await world.start(3)
    await until(lambda: led(world))
    assert content(b.log()) == kept
    await until(lambda: a.copied()() and c.copied()())


async def test_a_host_that_does_not_come_is_not_waited_for_for_ever_and_its_copy_is_not_cut(
    tmp_path: Path, world: World
) -> None:
    world.settings = HASTY
    await world.topic("t", 2)
    a, b, c = await world.start(1, 2, 3)
    await b.produce(b"one")
    await copied_to(a, c)
    world.kill(1)
    await b.produce(b"two")
    await until(c.copied())
    kept = content(c.log())
    await recorded(world, 2)
    world.kill(3)
    world.kill(2)
    await world.lose_disk(2)
    a, b = await world.start(1, 2)
    await until(lambda: led(world))
    assert [(lost.first, lost.heard) for lost in leader(world).lost] == [(1, 2)]
    assert await b.produce(b"other") == 1
    (c,) = await world.start(3)
    await until(lambda: c.counters.refused_replicas)
    assert content(c.log()) == kept
    (standing,) = c.relay.operator.standings()
    assert standing.state == REFUSED
    assert "1 to 2" in standing.problem
    assert await c.consume(2) == content(b.log())  # reads go to the leader
    topic = c.definitions.known["t"]
    await c.relay.operator.rebuild(topic, 0, "", accept_loss=False)
    await until(lambda: c.copied()() and content(c.log()) == content(b.log()))
    (aside,) = (tmp_path / "3" / "logs").glob("*-aside.*")
    assert b"two" in b"".join(path.read_bytes() for path in aside.glob("*.log"))
    (standing,) = c.relay.operator.standings()
    assert standing.state == LED


async def test_an_old_disk_that_comes_back_is_a_copy_like_any_other(world: World, tmp_path: Path) -> None:
    world.settings = HASTY
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    world.kill(1)
    await b.produce(b"two")  # nobody has a copy of it
    await recorded(world, 2)
    world.kill(2)
    old = world.directories[2]
    disk = await world.lose_disk(2)
    a, b = await world.start(1, 2)
    await until(lambda: led(world))
    assert await b.produce(b"other") == 1
    await until(a.copied())
    world.kill(2)
    (tmp_path / "2").rename(tmp_path / "newer")
    disk.rename(tmp_path / "2")
    await world.give_disk(2, old)
    (b,) = await world.start(2)
    await until(lambda: led(world))
    assert b"other" in content(b.log())
    assert content(b.log()) == content(a.log())
    (aside,) = (tmp_path / "2" / "logs").glob("*-aside.*")
    assert b"two" in b"".join(path.read_bytes() for path in aside.glob("*.log"))


async def test_a_disk_that_has_all_leads_again_and_nothing_is_named_as_lost(
    world: World, tmp_path: Path
) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one", b"two")
    await copied_to(a)
    await recorded(world, 2)
    world.kill(2)
    await world.give_disk(2, "the same, taken for another")
    (b,) = await world.start(2)
    await until(lambda: led(world))
    assert leader(world).lost == ()
    await until(a.copied())


async def test_an_answer_about_less_than_is_here_by_now_is_no_reason_to_refuse(world: World) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    replica, asked_at = a.partition().replica, a.log().end_offset
    await b.produce(b"two")  # arrives while the answer of a leader on another disk is under way
    await until(a.copied())
    answer = calls.FollowResponse(begin=asked_at, end=2, directory="another")
    assert not replica._take(answer, asked_at)
    assert (replica.refused, a.log().end_offset) == ("", 2)
    replica.want()
    await until(lambda: replica.checked)


async def test_a_copy_that_nobody_reads_gives_no_way_while_its_leader_is_away(world: World) -> None:
    world.settings = replace(PATIENT, idle=1.0, idle_bytes=0)
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    kept = content(a.log())
    world.kill(2)
    await until(lambda: not a.channels.is_up(2) and a.partition().replica is None)
    a.relay.following._make_room()
    assert content(a.log()) == kept
    await world.start(2)
    await until(lambda: a.partitions.replica("t", 0) is None)


async def test_promoted(world: World) -> None:
    await world.topic("t", 2)
    a, b, c = await world.start(1, 2, 3)
    await b.produce(b"one")
    await copied_to(a, c)
    topic = a.definitions.known["t"]
    error = await refusal(a.relay.operator.promote(topic, 0, "", accept_loss=False))
    assert "can be reached" in error.detail
    world.kill(3)
    await b.produce(b"two")
    await until(a.copied())
    await recorded(world, 2)
    world.kill(2)
    (c,) = await world.start(3)
    error = await refusal(a.relay.operator.promote(topic, 0, "host3", accept_loss=False))
    assert "host1 has t-0 up to 2" in error.detail
    error = await refusal(a.relay.operator.promote(topic, 0, "nobody", accept_loss=False))
    assert "no host is named" in error.detail
    said = await c.relay.operator.promote(topic, 0, "host1", accept_loss=False)
    assert "host1 leads t-0 from offset 2 on" in said
    await until(lambda: led(world))
    assert leader(world).leader == 1
    assert leader(world).leader_epoch > b.run
    assert await c.produce(b"three") == 2
    await until(c.copied())  # it follows the new leader without help
    await c.read(0)
    (b,) = await world.start(2)  # its disk is intact, and another host leads
    await b.read(0)
    await until(b.copied())
    assert content(b.log()) == content(a.log())


async def test_promoted_after_a_rebuild_in_which_nothing_was_written_since(world: World) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    await recorded(world, 1)
    world.kill(2)
    await world.lose_disk(2)
    (b,) = await world.start(2)
    await until(lambda: led(world))
    await b.relay.ends.tell()
    world.kill(2)
    await until(lambda: not a.channels.is_up(2))
    await a.relay.operator.promote(a.definitions.known["t"], 0, "", accept_loss=False)
    await until(lambda: led(world))
    assert await a.produce(b"two") == 1


async def test_a_leader_that_was_moved_keeps_what_it_alone_had(world: World) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    a.partition().replica.leave()
    await b.produce(b"two")
    await recorded(world, 2)
    world.kill(2)
    await until(lambda: not a.channels.is_up(2))
    topic = a.definitions.known["t"]
    error = await refusal(a.relay.operator.promote(topic, 0, "", accept_loss=False))
    assert "up to 2" in error.detail
    await a.relay.operator.promote(topic, 0, "", accept_loss=True)
    await until(lambda: led(world))
    assert await a.produce(b"other", b"another") == 1
    (b,) = await world.start(2)
    await b.read(0)
    await until(lambda: b.counters.refused_replicas)
    assert b"two" in content(b.log())
    assert await b.consume(3) == content(a.log())


async def test_a_host_whose_disk_is_lost_again_and_again(world: World) -> None:
    await world.topic("t", 2)
    a, b, c = await world.start(1, 2, 3)
    await copied_to(a, c)
    epochs = []
    for number in range(4):
        await a.produce(b"%d" % number)
        await until(lambda: a.copied()() and c.copied()())
        world.kill(2)
        await world.lose_disk(2)
        (b,) = await world.start(2)
        await until(lambda: led(world))
        await until(lambda: a.partition().replica.checked and c.partition().replica.checked)
        epochs.append(leader(world).leader_epoch)
    assert epochs == sorted(set(epochs))
    assert b.log().end_offset == 4
    assert content(a.log()) == content(b.log()) == content(c.log())


async def test_a_rebuild_that_was_cut_short_goes_on(world: World) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    world.kill(2)
    await world.lose_disk(2)
    take, FakeTake = type(b.relay.rebuilding._record).take_lead, asyncio.Event()

    async def hanging(record: object, claim: object) -> None:
        FakeTake.set()
        await asyncio.sleep(1e6)

    type(b.relay.rebuilding._record).take_lead = hanging
    try:
        (b,) = await world.start(2)
        await asyncio.wait_for(FakeTake.wait(), 30)
        world.kill(2)
    finally:
        type(b.relay.rebuilding._record).take_lead = take
    (b,) = await world.start(2)
    await until(lambda: led(world))
    assert len(leader(world).lost) == 1  # it was lost, although the whole copy is here by now
    assert content(b.log()) == content(a.log())


async def lose_record(world: World) -> None:
    """The coordinator's store is lost as well, and a new one is made of what a host knows."""
    topic = world.topics["t"]
    for index in range(len(topic.partitions)):
        world.ends[topic.topic_id, index] = Recorded(-1, -1)


async def test_with_the_record_a_loss_of_unknown_size_is_named_until_an_operator_knows(world: World) -> None:
    world.settings = HASTY
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")  # nobody else has heard of it
    await recorded(world, 1)
    world.kill(2)
    await world.lose_disk(2)
    await lose_record(world)
    (b,) = await world.start(2)
    await until(lambda: led(world))
    (lost,) = leader(world).lost
    assert (lost.first, lost.heard, lost.unknown, lost.is_open) == (0, 0, True, True)
    assert world.ends[world.topics["t"].topic_id, 0].end == 0  # from now on it is known
    topic = a.definitions.known["t"]
    said = await a.relay.operator.rebuild(topic, 0, "", accept_loss=True)
    assert "stays listed" in said
    (lost,) = leader(world).lost
    assert (lost.unknown, lost.is_open) == (True, False)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_follower_that_was_current_knows_that_nothing_is_missing(
    world: World, restarted: bool
) -> None:
    """One that was started again since cannot know what it has missed."""
    world.settings = HASTY
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one", b"two")
    await copied_to(a)
    await until(lambda: a.partition().current)
    kept = content(a.log())
    world.kill(2)
    if restarted:
        world.kill(1)
        await world.start(1)
    await world.lose_disk(2)
    await lose_record(world)
    (b,) = await world.start(2)
    await until(lambda: led(world))
    assert content(b.log()) == kept
    (lost,) = leader(world).lost
    assert (lost.first, lost.heard, lost.unknown, lost.is_loss) == (2, 2, restarted, restarted)


async def test_an_older_state_of_the_leader_cuts_no_copy_also_where_no_coordinator_noticed_it(
    world: World, tmp_path: Path
) -> None:
    """The host with the coordinator, put back as a whole, or one that starts while the coordinator is
    away."""
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await copied_to(a)
    await world.stop(2)
    shutil.copytree(tmp_path / "2", tmp_path / "copy")
    (b,) = await world.start(2)
    await until(a.copied())
    await b.produce(b"two")
    await until(a.copied())
    kept = content(a.log())
    await world.stop(2)
    shutil.rmtree(tmp_path / "2")
    (tmp_path / "copy").rename(tmp_path / "2")
    (b,) = await world.start(2)
    await until(lambda: a.counters.refused_replicas)
    assert content(a.log()) == kept
    (standing,) = a.relay.operator.standings()
    assert (standing.state, "1 to 2" in standing.problem) == (REFUSED, True)
    assert await b.produce(b"other") == 1
    assert content(a.log()) == kept


async def test_a_leader_that_lost_its_last_records_on_its_own_disk_is_obeyed_after_any_restart(
    world: World,
) -> None:
    await world.topic("t", 2)
    a, b = await world.start(1, 2)
    await b.produce(b"one")
    await b.produce(b"two")
    await copied_to(a)
    size = len(content(b.log())) // 2
    world.kill(2, power_loss=size)
    (b,) = await world.start(2)
    await until(lambda: a.counters.truncations)
    await until(a.copied())
    assert content(a.log()) == content(b.log())
    assert not a.counters.refused_replicas
