"""Static members: KIP-345, and KIP-814 for leaders that restart."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.groups.state import State
from treecast.middleware.broker.values import MemberIdentity
from treecast.middleware.model.errors import Fault, TreecastError


@pytest.fixture
def pair(harness):
    """Makes a stable group of the instances "one", which leads, and "two". Returns their member ids."""
    joined = harness.generation_of(harness.join(instance="one"), harness.join(instance="two"))
    one, two = (answer.member_id for answer in joined)
    harness.sync(two, 1, instance="two")
    harness.sync(one, 1, {one: b"1", two: b"2"}, instance="one")
    return one, two


def test_ids_begin_with_the_instance(harness) -> None:
    (joined,) = harness.generation_of(harness.join(instance="host-7"))
    assert joined.member_id.startswith("host-7-")
    assert joined.members[0].instance_id == "host-7"


def test_no_member_id_is_required(harness) -> None:
    assert harness.join(instance="one", known=True) not in harness.answers


def test_a_restart_keeps_generation_and_assignment(harness, pair) -> None:
    _, two = pair
    joined = harness.joined(harness.join(instance="two"))
    assert joined.generation == 1
    assert joined.member_id != two
    assert harness.group.state is State.STABLE
    assert harness.synced(harness.sync(joined.member_id, 1, instance="two")) == b"2"
    assert [m.member_id for m in harness.writes[-1].record.members if m.instance_id == "two"] == [
        joined.member_id
    ]


def test_the_former_self_is_fenced(harness, pair) -> None:
    _, two = pair
    harness.join(instance="two")
    assert harness.heartbeat(two, 1, "two") is Fault.FENCED_INSTANCE
    assert harness.fault(harness.sync(two, 1, instance="two")) is Fault.FENCED_INSTANCE
    assert harness.fault(harness.join(two, instance="two")) is Fault.FENCED_INSTANCE
    assert harness.leave(MemberIdentity(two, "two")) == [Fault.FENCED_INSTANCE]
    assert harness.heartbeat(two, 1) is Fault.UNKNOWN_MEMBER


def test_the_former_self_is_fenced_while_it_waits(harness, pair) -> None:
    one, two = pair
    harness.join()
    waiting = harness.join(two, instance="two")
    takes_over = harness.join(instance="two")
    assert harness.fault(waiting) is Fault.FENCED_INSTANCE
    harness.join(one, instance="one")
    assert harness.joined(takes_over).generation == 2


def test_a_leader_that_restarts_skips_the_assignment(harness, pair) -> None:
    joined = harness.joined(harness.join(instance="one", skip=True))
    assert joined.skip_assignment
    assert joined.leader == joined.member_id
    assert {m.instance_id for m in joined.members} == {"one", "two"}
    assert harness.synced(harness.sync(joined.member_id, 1, instance="one")) == b"1"


def test_before_version_9_it_is_told_that_its_former_self_leads(harness, pair) -> None:
    one, _ = pair
    joined = harness.joined(harness.join(instance="one"))
    assert joined.leader == one != joined.member_id
    assert not joined.skip_assignment
    assert joined.members == ()


def test_a_follower_that_restarts_skips_nothing(harness, pair) -> None:
    one, _ = pair
    joined = harness.joined(harness.join(instance="two", skip=True))
    assert not joined.skip_assignment
    assert joined.leader == one
    assert joined.members == ()


def test_a_restart_with_another_protocol_begins_a_round(harness) -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    first, second = harness.generation_of(
        harness.join(instance="one", protocols=both), harness.join(instance="two", protocols=both)
    )
    harness.sync(first.member_id, 1)
    harness.sync(second.member_id, 1)
    waiter = harness.join(instance="two", protocols=(("sticky", b"s"),))
    assert waiter not in harness.answers
    assert harness.group.state is State.PREPARING
    harness.join(first.member_id, instance="one", protocols=both)
    assert harness.joined(waiter).protocol == "sticky"


def test_a_restart_before_the_assignment_begins_a_round(harness) -> None:
    first, second = harness.generation_of(harness.join(instance="one"), harness.join(instance="two"))
    waiting = harness.sync(second.member_id, 1)
    assert waiting not in harness.answers
    harness.join(instance="one")
    assert harness.group.state is State.PREPARING
    assert harness.fault(waiting) is Fault.REBALANCE_IN_PROGRESS
    assert harness.fault(harness.sync(first.member_id, 1)) is Fault.UNKNOWN_MEMBER


def test_the_new_id_is_told_once_it_is_on_disk(harness, pair) -> None:
    harness.held = []
    waiter = harness.join(instance="two")
    assert waiter not in harness.answers
    harness.release()
    assert harness.joined(waiter).generation == 1


def test_a_new_id_that_cannot_be_written_is_not_told(harness, pair) -> None:
    harness.held = []
    waiter = harness.join(instance="two")
    harness.release(TreecastError(Fault.STORAGE))
    assert harness.fault(waiter) is Fault.COORDINATOR_UNAVAILABLE
    assert harness.joined(harness.join(instance="two")).generation == 1


def test_a_round_that_begins_before_the_new_id_is_on_disk_answers_it(harness, pair) -> None:
    one, _ = pair
    harness.held = []
    waiter = harness.join(instance="two")
    joiner = harness.join()
    harness.release()
    assert waiter not in harness.answers
    harness.join(one, instance="one")
    assert harness.joined(waiter).generation == harness.joined(joiner).generation == 2


def test_a_static_member_need_not_join_again_to_stay(harness) -> None:
    """A round that ends without the member still assigns work to it; only the session's end removes it."""
    first, second = harness.generation_of(
        harness.join(instance="one", session=1_800_000, rebalance=20_000),
        harness.join(instance="two", session=1_800_000, rebalance=20_000),
    )
    harness.sync(first.member_id, 1, instance="one")
    harness.sync(second.member_id, 1, instance="two")
    waiter = harness.join(first.member_id, instance="one", rebalance=20_000, session=1_800_000)
    harness.wait(20)
    assert {m.instance_id for m in harness.joined(waiter).members} == {"one", "two"}


def test_when_no_static_member_joins_the_round_waits(harness) -> None:
    one, two = harness.generation_of(
        harness.join(instance="one", session=1_800_000), harness.join(instance="two", session=1_800_000)
    )
    harness.sync(one.member_id, 1)
    harness.sync(two.member_id, 1)
    third = harness.join()
    harness.leave(MemberIdentity(harness.group.members.metadata("range")[-1].member_id))
    assert harness.fault(third) is Fault.UNKNOWN_MEMBER
    harness.wait(200)
    assert harness.group.state is State.PREPARING
    assert len(harness.group.members) == 2
    waiter = harness.join(two.member_id, instance="two", session=1_800_000)
    harness.wait(60)
    assert harness.joined(waiter).leader == two.member_id


def test_an_administrator_removes_by_instance(harness, pair) -> None:
    assert harness.leave(MemberIdentity("", "two"), MemberIdentity("", "three")) == [
        None,
        Fault.UNKNOWN_MEMBER,
    ]
    assert len(harness.group.members) == 1


def test_a_member_id_with_an_unknown_instance_is_refused(harness, pair) -> None:
    one, _ = pair
    assert harness.fault(harness.join(one, instance="three")) is Fault.UNKNOWN_MEMBER


def test_in_a_full_group_a_static_member_may_restart(new_group) -> None:
    harness = new_group(max_size=1)
    (joined,) = harness.generation_of(harness.join(instance="one"))
    harness.sync(joined.member_id, 1)
    assert harness.joined(harness.join(instance="one")).generation == 1
    assert harness.fault(harness.join(instance="two")) is Fault.GROUP_FULL


def test_who_has_to_sync_after_a_restart_is_the_new_self(harness) -> None:
    first, second = harness.generation_of(harness.join(instance="one"), harness.join(instance="two"))
    harness.sync(first.member_id, 1)
    joined = harness.joined(harness.join(instance="two"))
    harness.sync(joined.member_id, 1)
    for _ in range(13):
        harness.wait(5)
        assert harness.heartbeat(first.member_id, 1) is None
        assert harness.heartbeat(joined.member_id, 1) is None
    assert second.member_id != joined.member_id
