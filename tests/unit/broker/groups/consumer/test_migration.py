"""Groups with members of both protocols migrate up and down, and no partition has two readers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest
from tests.unit.broker.groups.consumer.beat import Classic, Member, group_of, settle, subscription
from tests.unit.broker.groups.host import T0, Host, fault_of, joining, turns

from treecast.middleware.broker.groups.consumer.embedded import encode_assignment
from treecast.middleware.broker.groups.consumer.group import ConsumerGroup
from treecast.middleware.broker.groups.group import Group
from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.values import (
    CommittedOffset,
    GroupType,
    Joined,
    MemberIdentity,
    MemberIdRequired,
)
from treecast.middleware.model.errors import Fault, TreecastError

OFFSET = {T0: CommittedOffset(7)}
ALL = [0, 1, 2, 3]


@pytest.fixture(params=[False, True], ids=["eager", "cooperative"])
def cooperative(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
async def topic(host: Host) -> Host:
    host.topics.make("t", 4)
    return host


async def all_join(members: Sequence[Classic]) -> list[Joined]:
    """Returns the answers of one round. A member answered in an earlier round joins again, as others wait for
    it.
    """
    tasks = [member.begin_join() for member in members]
    while True:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        answers = [
            member.joined(task.result()) if task.done() else None
            for member, task in zip(members, tasks, strict=True)
        ]
        joined = [answer for answer in answers if answer is not None]
        if len(joined) == len(members) and len({one.generation for one in joined}) == 1:
            return joined
        tasks = [
            member.begin_join() if task.done() else task for member, task in zip(members, tasks, strict=True)
        ]


async def classic_group(host: Host, *members: Classic) -> None:
    """Makes a stable classic group whose first member leads, with all partitions assigned."""
    joined = await all_join(members)
    dealt = {member.member_id: {"t": ALL[place :: len(members)]} for place, member in enumerate(members)}
    given = tuple((who, encode_assignment(what, 1)) for who, what in dealt.items())
    await asyncio.gather(
        *(m.syncs(given if j.leader == m.member_id else ()) for m, j in zip(members, joined, strict=True))
    )


async def goes_on(*members: Member | Classic) -> None:
    """Each member does what it is told until nothing changes. No partition has two readers at any time."""
    for _ in range(20):
        before = [member.numbers for member in members]
        for member in members:
            if isinstance(member, Member):
                await member.beats()
            else:
                await classic_goes_on(member)
            held = [number for one in members for number in one.numbers]
            assert len(held) == len(set(held)), "a partition has two readers"
        if before == [member.numbers for member in members] and sum(map(len, before)) == len(ALL):
            return
    raise AssertionError(f"the group does not settle: {before}")


async def classic_goes_on(member: Classic) -> None:
    if await told_to_join(member.beats()):
        await member.joins()
        await told_to_join(member.syncs())


async def told_to_join(awaitable: Awaitable[object]) -> bool:
    try:
        await awaitable
    except TreecastError as refused:
        if refused.fault is not Fault.REBALANCE_IN_PROGRESS:
            raise
        return True
    return False


def classic_of(host: Host) -> Group:
    found = host.coordinator.loaded.entries["g"].group
    assert isinstance(found, Group), found
    found.check_invariants()
    return found


async def test_a_classic_group_goes_up_member_by_member(topic: Host, cooperative: bool) -> None:
    one, two = (Classic(topic, cooperative=cooperative) for _ in range(2))
    await classic_group(topic, one, two)
    generation, had = one.generation, {*one.owned}
    await topic.coordinator.commit_offsets("g", one.identity, OFFSET)
    new = Member(topic, "new")
    assert (await new.beats()).assignment == frozenset(), "the others own all partitions"
    assert group_of(topic).epoch == generation + 1
    assert await topic.coordinator.commit_offsets("g", one.identity, OFFSET) == {}, (
        "the generation is still its own"
    )
    assert one.owned == had
    assert await fault_of(one.beats()) is Fault.REBALANCE_IN_PROGRESS
    await goes_on(one, two, new)
    assert sorted(map(len, (one.owned, two.owned, new.owned))) == [1, 1, 2]
    described = await topic.coordinator.describe("g")
    assert [m.consumer and m.consumer.classic for m in described.members] == [True, True, False]
    await topic.coordinator.leave("g", [one.identity])
    second = Member(topic, "second")
    await goes_on(two, new, second)
    await topic.coordinator.leave("g", [two.identity])
    await goes_on(new, second)
    assert topic.coordinator.list_groups()[0].group_type is GroupType.CONSUMER
    assert await topic.coordinator.fetch_offsets("g", None, require_stable=True) == OFFSET


async def mixed(topic: Host, cooperative: bool) -> tuple[Member, Classic, Classic]:
    """Returns a member of the new protocol and two classic ones, of one group of type consumer."""
    new, one, two = Member(topic, "new"), *(Classic(topic, cooperative=cooperative) for _ in range(2))
    await new.beats()
    for member in (one, two):
        await member.joins()
        await member.syncs()
    await goes_on(new, one, two)
    return new, one, two


async def test_a_group_comes_down_when_the_last_new_member_leaves(topic: Host, cooperative: bool) -> None:
    new, one, two = await mixed(topic, cooperative)
    epochs = one.generation, two.generation
    await new.leaves()
    group = classic_of(topic)
    assert group.state is State.PREPARING
    assert group.generation > max(epochs)
    for member in (one, two):  # they may commit what they read, and then have to join
        assert await topic.coordinator.commit_offsets("g", member.identity, OFFSET) == {}
        assert await fault_of(member.beats()) is Fault.REBALANCE_IN_PROGRESS
    await classic_group(topic, one, two)
    assert classic_of(topic).state is State.STABLE
    assert sorted([*one.numbers, *two.numbers]) == ALL
    old = MemberIdentity(one.member_id, None, epochs[0])
    assert await fault_of(topic.coordinator.commit_offsets("g", old, OFFSET)) is Fault.ILLEGAL_GENERATION
    await topic.restart()
    assert classic_of(topic).state is State.STABLE
    await one.beats()


async def test_a_group_comes_down_between_a_members_join_and_its_sync(topic: Host, cooperative: bool) -> None:
    """While the classic group collects joins it has elected no protocol, but the sync names one."""
    new, one, two = await mixed(topic, cooperative)
    await one.joins()
    await new.leaves()
    assert classic_of(topic).state is State.PREPARING
    assert await fault_of(one.syncs()) is Fault.REBALANCE_IN_PROGRESS
    await topic.restart()
    assert await fault_of(one.syncs()) is Fault.REBALANCE_IN_PROGRESS
    await classic_group(topic, one, two)
    assert sorted([*one.numbers, *two.numbers]) == ALL


async def test_a_group_comes_down_to_another_protocol_than_a_members_first(topic: Host) -> None:
    """In the mixed group each member uses its own first protocol; the classic group elects a common one."""
    new, two = Member(topic, "new"), Classic(topic, names=("range",))
    one = Classic(topic, names=("sticky", "range"))
    await new.beats()
    for member in (one, two):
        await member.joins()
        await member.syncs()
    await goes_on(new, one, two)
    joined = await one.joins()
    await new.leaves()
    assert (joined.protocol, await fault_of(one.syncs())) == ("sticky", Fault.REBALANCE_IN_PROGRESS)
    assert {joined.protocol for joined in await all_join([one, two])} == {"range"}


async def test_a_group_goes_up_while_a_member_syncs_with_an_elected_protocol(topic: Host) -> None:
    one, two = Classic(topic, names=("sticky", "range")), Classic(topic, names=("range",))
    assert {joined.protocol for joined in await all_join([one, two])} == {"range"}
    new = Member(topic, "new")
    await new.beats()
    assert await fault_of(one.syncs()) is Fault.REBALANCE_IN_PROGRESS
    assert (await one.joins()).protocol == "sticky"
    await told_to_join(one.syncs())
    await goes_on(one, two, new)


async def test_a_restart_after_the_way_down_finds_the_round(topic: Host, cooperative: bool) -> None:
    new, one = Member(topic, "new"), Classic(topic, cooperative=cooperative)
    await new.beats()
    await one.joins()
    await one.syncs()
    await goes_on(new, one)
    await new.leaves()
    await topic.restart()
    assert classic_of(topic).state is State.PREPARING
    assert await topic.coordinator.commit_offsets("g", one.identity, OFFSET) == {}
    await classic_group(topic, one)
    assert one.numbers == ALL
    assert topic.tables.load("consumer-members") == topic.tables.load("consumer-groups") == {}


async def test_a_restart_of_a_mixed_group(topic: Host, cooperative: bool) -> None:
    one, new = Classic(topic, cooperative=cooperative), Member(topic, "new")
    await classic_group(topic, one)
    await new.beats()
    await topic.restart()
    assert topic.tables.load("groups") == {}
    assert await topic.coordinator.commit_offsets("g", one.identity, OFFSET) == {}
    await goes_on(one, new)


async def test_who_waits_in_a_round_is_told_to_join_again(topic: Host, cooperative: bool) -> None:
    one, two = (Classic(topic, cooperative=cooperative) for _ in range(2))
    await classic_group(topic, one, two)
    three = Classic(topic, cooperative=cooperative)
    waiting = [three.begin_join(), one.begin_join()]
    await turns()
    joined = {member.member_id for member in classic_of(topic).members}
    (three.member_id,) = joined - {one.member_id, two.member_id}
    new = Member(topic, "new")
    await new.beats()
    assert [await fault_of(task) for task in waiting] == [Fault.REBALANCE_IN_PROGRESS] * 2
    held = [number for member in (one, two, new) for number in member.numbers]
    assert len(held) == len(set(held))
    assert await fault_of(two.beats()) is Fault.REBALANCE_IN_PROGRESS
    await three.joins()
    await three.syncs()
    await goes_on(one, two, three, new)


async def test_who_waits_for_an_assignment_is_told_to_join_again(topic: Host, cooperative: bool) -> None:
    """The round has cleared the assignment; a cooperative member still owns its partitions."""
    one = Classic(topic, cooperative=cooperative)
    await classic_group(topic, one)
    two = Classic(topic, cooperative=cooperative)
    joining_two, joining_one = two.begin_join(), one.begin_join()
    two.joined(await joining_two), one.joined(await joining_one)
    syncing = asyncio.create_task(two.syncs())
    await turns()
    new = Member(topic, "new")
    await new.beats()
    assert await fault_of(syncing) is Fault.REBALANCE_IN_PROGRESS
    assert set(new.numbers).isdisjoint(one.owned)
    await goes_on(one, two, new)


async def test_a_static_member_changes_its_protocol(topic: Host) -> None:
    one, two = Classic(topic, instance_id="x"), Classic(topic, instance_id="y")
    await classic_group(topic, one, two)
    new = Member(topic, "new", {"instance_id": "x"})
    await new.beats()
    assert len(new.owned) == 2, "it has the partitions of the classic instance"
    assert await fault_of(one.beats()) is Fault.FENCED_INSTANCE
    await goes_on(new, two)
    again = Classic(topic, instance_id="x")
    await again.joins()
    assert classic_of(topic).state is State.PREPARING, "no member of the new protocol is left"
    assert await fault_of(again.syncs()) is Fault.REBALANCE_IN_PROGRESS
    await classic_group(topic, again, two)
    assert sorted([*again.numbers, *two.numbers]) == ALL


async def test_a_group_that_is_no_group_of_consumers_stays(topic: Host) -> None:
    joined = await topic.join(protocol_type="connect", protocols=(("v1", b""),))
    assert await fault_of(Member(topic, "new").beats()) is Fault.GROUP_NOT_FOUND
    await topic.coordinator.heartbeat("g", MemberIdentity(joined.member_id, None, joined.generation))


async def test_a_group_whose_members_make_no_sense_stays(topic: Host) -> None:
    await topic.member()  # its metadata is not a subscription
    assert await fault_of(Member(topic, "new").beats()) is Fault.GROUP_NOT_FOUND
    assert classic_of(topic).state is State.STABLE


async def test_what_is_refused_to_classic_members(topic: Host) -> None:
    new = Member(topic, "new")
    await new.beats()
    join = topic.coordinator.join
    other = joining(protocols=(("sticky", subscription("t")),))
    assert (await join(other)).generation == 2
    assert (
        await fault_of(join(joining(protocols=(("range", subscription("t")),))))
        is Fault.INCONSISTENT_PROTOCOL
    )
    assert await fault_of(join(joining(protocols=(("sticky", b"?"),)))) is Fault.INCONSISTENT_PROTOCOL
    assert await fault_of(join(joining(protocol_type="connect"))) is Fault.INCONSISTENT_PROTOCOL
    with pytest.raises(MemberIdRequired) as required:
        await join(joining(protocols=(("sticky", subscription("t")),), require_known_member_id=True))
    known = joining(required.value.member_id, protocols=(("sticky", subscription("t")),))
    assert (await join(known)).member_id == required.value.member_id
    nobody = MemberIdentity("nobody", None, 1)
    assert await fault_of(topic.coordinator.heartbeat("g", nobody)) is Fault.UNKNOWN_MEMBER
    assert await fault_of(topic.coordinator.heartbeat("g", new.identity)) is Fault.UNKNOWN_MEMBER
    answers = await topic.coordinator.leave("g", [nobody, new.identity])
    assert [answer and answer.fault for answer in answers] == [Fault.UNKNOWN_MEMBER] * 2


async def test_a_classic_member_that_does_not_join_again_is_removed(topic: Host) -> None:
    one = Classic(topic)
    await classic_group(topic, one)
    new = Member(topic, "new")
    await new.beats()
    for _ in range(7):
        await new.beats()
        if one.member_id in group_of(topic).members:
            assert await fault_of(one.beats()) is Fault.REBALANCE_IN_PROGRESS
        topic.passes(9.0)
    assert one.member_id not in group_of(topic).members
    await settle(new)
    assert new.numbers == ALL


async def test_a_silent_classic_member_is_removed(topic: Host) -> None:
    new, one = Member(topic, "new"), Classic(topic)
    await new.beats()
    await one.joins()
    topic.passes(11.0)
    await new.beats()
    assert [member.member_id for member in group_of(topic).members] == ["new"]


async def test_an_empty_group_is_of_the_type_of_who_joins(topic: Host) -> None:
    new = Member(topic, "new")
    await new.beats()
    await new.leaves()
    one = Classic(topic)
    await classic_group(topic, one)
    assert classic_of(topic).generation > new.epoch
    await topic.coordinator.leave("g", [one.identity])
    await topic.restart()
    again = Member(topic, "again")
    await again.beats()
    assert again.epoch > one.generation
    assert again.numbers == ALL
    assert isinstance(topic.coordinator.loaded.entries["g"].group, ConsumerGroup)
