"""Groups by the new protocol: joining, epochs, revoking, leaving, static members, faults, restarts."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.consumer.beat import Member, beat, group_of, settle
from tests.unit.broker.groups.host import DAY, NOBODY, T0, Host, fault_of

from treecast.middleware.broker.groups.settings import GroupSettings
from treecast.middleware.broker.values import (
    CommittedOffset,
    ConfigChange,
    ConfigOperation,
    GroupType,
    MemberIdentity,
)
from treecast.middleware.model.errors import Fault

OFFSET = {T0: CommittedOffset(7)}
SESSION, REBALANCE = 45.0, 60.0


@pytest.fixture
async def topic(host: Host) -> Host:
    """A host with topic t of four partitions."""
    host.topics.make("t", 4)
    return host


async def pair(host: Host) -> tuple[Member, Member]:
    one, two = Member(host, "one"), Member(host, "two")
    await one.beats()
    await settle(one, two)
    return one, two


# --- joining


async def test_the_first_member_gets_all(topic: Host) -> None:
    one = Member(topic, "one")
    answer = await one.beats()
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("one", 1, 5_000)
    assert one.numbers == [0, 1, 2, 3]
    assert group_of(topic).state.value == "Stable"


async def test_a_member_without_an_id_is_given_one(topic: Host) -> None:
    one = Member(topic, "")
    answer = await one.beats()
    assert answer.member_id
    assert answer.member_id in group_of(topic).members


async def test_what_has_not_changed_is_not_told_again(topic: Host) -> None:
    one = Member(topic, "one")
    await one.beats()
    assert (await one.beats()).assignment is None
    whole = await one.beats(rebalance_timeout_ms=60_000, topics=("t",))
    assert whole.assignment == one.owned, "a complete heartbeat gets a complete answer"


async def test_a_partition_moves_only_when_it_is_given_up(topic: Host) -> None:
    one, two = Member(topic, "one"), Member(topic, "two")
    await one.beats()
    first = await two.beats()
    assert first.assignment == frozenset(), "one holds all partitions"
    had = one.owned
    told = await one.beats()
    assert (told.member_epoch, len(told.assignment or ())) == (1, 2), (
        "the epoch stays until the partitions are released"
    )
    assert (await two.beats()).assignment is None, "one has not released them yet"
    request = beat("one", 1, owned=had)
    await topic.coordinator.consumer_heartbeat(request)
    assert (await two.beats()).assignment is None, "one still owns them"
    assert (await one.beats()).member_epoch == 2
    assert len((await two.beats()).assignment or ()) == 2
    assert sorted([*one.numbers, *two.numbers]) == [0, 1, 2, 3]
    assert group_of(topic).state.value == "Stable"


async def test_an_answer_that_is_lost_is_given_again(topic: Host) -> None:
    one, _ = await pair(topic)
    await topic.coordinator.consumer_heartbeat(beat("two", -1))
    await topic.coordinator.consumer_heartbeat(beat("one", one.epoch))  # its answer is lost
    again = await one.beats(rebalance_timeout_ms=60_000, topics=("t",))
    assert len(again.assignment or ()) == 4
    assert group_of(topic).members.get("one").epoch == again.member_epoch


async def test_a_join_whose_answer_is_lost_may_come_again(topic: Host) -> None:
    first = await topic.coordinator.consumer_heartbeat(beat("one"))
    again = await topic.coordinator.consumer_heartbeat(beat("one"))
    assert again.assignment == first.assignment
    assert len(group_of(topic).members) == 1


async def test_topics_that_come_and_grow_are_found(topic: Host) -> None:
    one = Member(topic, "one", {"topics": ("t", "later")})
    await one.beats()
    epoch = one.epoch
    topic.topics.make("later", 1)
    await one.beats()
    assert (one.epoch, len(one.owned)) == (epoch + 1, 5)
    topic.topics.make("t", 6)
    await one.beats()
    assert len(one.owned) == 7
    topic.topics.delete("later")
    await settle(one)
    assert len(one.owned) == 6
    topic.topics.make("other", 3)
    settled = one.epoch
    await one.beats()
    assert one.epoch == settled, "nobody reads the topic"


async def test_a_subscription_by_expression(topic: Host) -> None:
    one = Member(topic, "one", {"topics": None, "regex": "t|logs-.*"})
    await one.beats()
    assert len(one.owned) == 4
    topic.topics.make("logs-a", 2)
    topic.topics.make("my-logs-b", 2)
    await one.beats()
    assert len(one.owned) == 6
    await one.beats(regex="", topics=("my-logs-b",))
    await settle(one)
    assert len(one.owned) == 2
    assert await fault_of(one.beats(regex="(")) is Fault.INVALID_REGEX


@pytest.mark.parametrize(
    "asked", [{"topics": ("__consumer_offsets",)}, {"topics": None, "regex": "__consumer_.*"}]
)
async def test_internal_topics_are_assigned_as_kafka_does(topic: Host, asked: dict[str, object]) -> None:
    one = Member(topic, "one", asked)
    await one.beats()
    assert len(one.owned) == 50
    assert group_of(topic).topics.named(one.owned).keys() == {"__consumer_offsets"}
    topic.topics.make("other", 1)
    await one.beats()
    assert len(one.owned) == 50


async def test_the_assignor_that_most_ask_for_is_taken(topic: Host) -> None:
    topic.topics.make("u", 4)
    how = {"topics": ("t", "u"), "assignor": "range"}
    one, two = Member(topic, "one", how), Member(topic, "two", how)
    await one.beats()
    await settle(one, two)
    assert group_of(topic).description().protocol == "range"
    assert one.numbers == [0, 0, 1, 1]
    assert await fault_of(Member(topic, "x", {"assignor": "mine"}).beats()) is Fault.UNSUPPORTED_ASSIGNOR


# --- what is refused


@pytest.mark.parametrize(
    ("how", "epoch"),
    [
        ({"rebalance_timeout_ms": -1}, 0),
        ({"owned": None}, 0),
        ({"topics": None}, 0),
        ({"instance_id": ""}, 0),
        ({"rack_id": ""}, 0),
        ({}, -2),
        ({}, -3),
        ({"member_id": ""}, 5),
    ],
)
async def test_requests_that_make_no_sense(topic: Host, how: dict[str, object], epoch: int) -> None:
    values = {"member_id": "one"} | how
    request = beat(values.pop("member_id"), epoch, **values)
    assert await fault_of(topic.coordinator.consumer_heartbeat(request)) is Fault.INVALID_REQUEST
    assert topic.coordinator.list_groups() == [], "no group was made"


async def test_who_is_not_a_member(topic: Host) -> None:
    assert await fault_of(Member(topic, "one", epoch=3).beats()) is Fault.UNKNOWN_MEMBER
    one = Member(topic, "one")
    await one.beats()
    assert await fault_of(Member(topic, "two", epoch=1).beats()) is Fault.UNKNOWN_MEMBER
    assert await fault_of(Member(topic, "two").leaves()) is Fault.UNKNOWN_MEMBER


async def test_another_epoch_is_fenced_and_may_join_again(topic: Host) -> None:
    one, two = await pair(topic)
    for epoch, owned in ((one.epoch + 1, one.owned), (one.epoch - 1, None), (one.epoch - 1, two.owned)):
        request = beat("one", epoch, owned=owned)
        assert await fault_of(topic.coordinator.consumer_heartbeat(request)) is Fault.FENCED_MEMBER_EPOCH
    one.epoch, one.owned = 0, frozenset()
    await settle(one, two)
    assert sorted([*one.numbers, *two.numbers]) == [0, 1, 2, 3]


async def test_a_group_that_is_full(topic: Host) -> None:
    topic.settings = GroupSettings(max_size=1)
    await topic.restart()
    one = Member(topic, "one", {"instance_id": "x"})
    await one.beats()
    assert await fault_of(Member(topic, "two").beats()) is Fault.GROUP_FULL
    one.epoch, one.owned = 0, frozenset()
    await one.beats()
    await one.leaves(-2)
    await Member(topic, "again", {"instance_id": "x"}).beats()


# --- offsets


async def test_only_the_epoch_of_the_member_commits_and_fetches(topic: Host) -> None:
    one, two = await pair(topic)
    commit, fetch = topic.coordinator.commit_offsets, topic.coordinator.fetch_offsets
    assert await commit("g", one.identity, OFFSET) == {}
    stale = MemberIdentity("one", None, one.epoch - 1)
    assert await fault_of(commit("g", stale, OFFSET)) is Fault.STALE_MEMBER_EPOCH
    assert await fault_of(commit("g", MemberIdentity("who", None, 1), OFFSET)) is Fault.UNKNOWN_MEMBER
    assert await fault_of(commit("g", NOBODY, OFFSET)) is Fault.UNKNOWN_MEMBER
    found = await fetch("g", [T0], require_stable=True, member=two.identity)
    assert found == OFFSET
    assert await fetch("g", [T0], require_stable=True) == OFFSET, "administrators send no epoch"
    for member, fault in (
        (stale, Fault.STALE_MEMBER_EPOCH),
        (MemberIdentity("who", None, 1), Fault.UNKNOWN_MEMBER),
    ):
        assert await fault_of(fetch("g", [T0], require_stable=True, member=member)) is fault


async def test_offsets_of_subscribed_topics_are_not_deleted(topic: Host) -> None:
    one = Member(topic, "one")
    await one.beats()
    await topic.coordinator.commit_offsets("g", one.identity, OFFSET)
    refused = await topic.coordinator.delete_offsets("g", [T0])
    assert refused[T0].fault is Fault.GROUP_SUBSCRIBED
    assert await fault_of(topic.coordinator.delete("g")) is Fault.GROUP_NOT_EMPTY
    await one.leaves()
    assert await topic.coordinator.delete_offsets("g", [T0]) == {}
    listed = topic.coordinator.list_groups()
    assert [(g.group_id, g.state, g.group_type) for g in listed] == [("g", "Empty", GroupType.CONSUMER)]
    await topic.coordinator.delete("g")
    await topic.restart()
    assert topic.coordinator.list_groups() == []


async def test_offsets_expire_once_nobody_reads_the_topic(topic: Host) -> None:
    one = Member(topic, "one")
    await one.beats()
    await topic.coordinator.commit_offsets("g", one.identity, OFFSET)
    topic.passes(1.0)
    await one.beats()
    topic.now += 8 * DAY
    await topic.coordinator.expire_offsets()
    assert await topic.coordinator.fetch_offsets("g", None, require_stable=False) == OFFSET
    await one.leaves()
    topic.now += 8 * DAY
    await topic.coordinator.expire_offsets()
    assert topic.coordinator.loaded.known() == []
    await topic.restart()
    assert topic.coordinator.loaded.known() == []


# --- time


async def test_who_is_silent_is_removed(topic: Host) -> None:
    one, two = await pair(topic)
    topic.passes(SESSION - 1)
    await one.beats()
    topic.passes(2.0)
    assert [m.member_id for m in group_of(topic).members] == ["one"]
    assert topic.counters.expired_members == 1
    await settle(one)
    assert len(one.owned) == 4
    assert await fault_of(two.beats()) is Fault.UNKNOWN_MEMBER


async def test_who_does_not_give_up_in_time_is_removed(topic: Host) -> None:
    one, two = Member(topic, "one"), Member(topic, "two")
    await one.beats()
    had = one.owned
    await two.beats()
    await one.beats()
    for _ in range(int(REBALANCE) // 20):
        topic.passes(20.0)
        await two.beats()
        if "one" in group_of(topic).members:
            await topic.coordinator.consumer_heartbeat(beat("one", one.epoch, owned=had))
    assert [m.member_id for m in group_of(topic).members] == ["two"]
    await settle(two)
    assert len(two.owned) == 4


async def test_a_group_has_settings_of_its_own(topic: Host) -> None:
    settings = [
        ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, "50000"),
        ConfigChange("consumer.heartbeat.interval.ms", ConfigOperation.SET, "7000"),
    ]
    first = topic.coordinator.alter_config
    assert await first("g", settings, validate_only=True) == await first("g", settings)
    assert topic.coordinator.list_groups() == [], "settings alone make no group"
    await topic.restart()
    one = Member(topic, "one")
    assert (await one.beats()).heartbeat_interval_ms == 7_000
    topic.passes(49.0)
    assert "one" in group_of(topic).members
    topic.passes(2.0)
    assert not group_of(topic).members
    removed = ConfigChange("consumer.session.timeout.ms", ConfigOperation.DELETE, None)
    assert await topic.coordinator.alter_config("g", [removed]) == {"consumer.heartbeat.interval.ms": "7000"}


@pytest.mark.parametrize(
    ("name", "operation", "value"),
    [
        ("consumer.session.timeout.ms", ConfigOperation.SET, "1"),
        ("consumer.session.timeout.ms", ConfigOperation.SET, "soon"),
        ("consumer.session.timeout.ms", ConfigOperation.SET, None),
        ("consumer.session.timeout.ms", ConfigOperation.APPEND, "50000"),
        ("share.session.timeout.ms", ConfigOperation.SET, "50000"),
    ],
)
async def test_settings_that_are_not(
    topic: Host, name: str, operation: ConfigOperation, value: str | None
) -> None:
    change = ConfigChange(name, operation, value)
    assert await fault_of(topic.coordinator.alter_config("g", [change])) is Fault.INVALID_CONFIG


# --- static members


async def test_a_static_member_that_comes_back_has_what_it_had(topic: Host) -> None:
    one = Member(topic, "one", {"instance_id": "x"})
    two = Member(topic, "two")
    await one.beats()
    await settle(one, two)
    epoch, had = group_of(topic).epoch, one.owned
    other = Member(topic, "again", {"instance_id": "x"})
    assert await fault_of(other.beats()) is Fault.UNRELEASED_INSTANCE
    assert (await one.leaves(-2)).member_epoch == -2
    await two.beats()
    assert two.owned.isdisjoint(had), "the partitions are kept for the instance"
    await other.beats()
    assert (other.owned, group_of(topic).epoch) == (had, epoch)
    assert await fault_of(one.beats()) is Fault.FENCED_INSTANCE
    await settle(other, two)
    assert group_of(topic).state.value == "Stable"


async def test_a_static_member_that_stays_away_is_removed(topic: Host) -> None:
    one, two = Member(topic, "one", {"instance_id": "x"}), Member(topic, "two")
    await one.beats()
    await settle(one, two)
    await one.leaves(-2)
    topic.passes(SESSION - 1)
    await two.beats()
    topic.passes(2.0)
    await settle(two)
    assert len(two.owned) == 4


async def test_an_instance_id_that_nobody_has(topic: Host) -> None:
    await Member(topic, "one").beats()
    member = Member(topic, "one", {"instance_id": "x"}, epoch=1)
    assert await fault_of(member.beats()) is Fault.UNKNOWN_MEMBER


# --- restarts


async def test_members_and_targets_outlive_a_restart(topic: Host) -> None:
    one, two = await pair(topic)
    before = group_of(topic).description()
    await topic.restart()
    assert group_of(topic).description() == before
    await settle(one, two)
    assert group_of(topic).description() == before, "nothing moves"


async def test_a_restart_amid_a_step(topic: Host) -> None:
    one, two = Member(topic, "one"), Member(topic, "two")
    await one.beats()
    had = one.owned
    await two.beats()
    await one.beats()
    await topic.restart()
    assert (await topic.coordinator.consumer_heartbeat(beat("two", two.epoch))).assignment is None
    await topic.coordinator.consumer_heartbeat(beat("one", one.epoch, owned=had))
    assert (await topic.coordinator.consumer_heartbeat(beat("two", two.epoch))).assignment is None
    await settle(one, two)
    assert sorted([*one.numbers, *two.numbers]) == [0, 1, 2, 3]


async def test_sessions_begin_at_a_restart(topic: Host) -> None:
    one = Member(topic, "one")
    await one.beats()
    topic.now += 3600
    await topic.restart()
    assert "one" in group_of(topic).members
    topic.passes(SESSION + 1)
    assert not group_of(topic).members
    await topic.restart()
    assert not group_of(topic).members


async def test_another_host_goes_on_with_the_members(topic: Host) -> None:
    one, two = await pair(topic)
    before = group_of(topic).description()
    items = topic.coordinator.loaded.items("g")
    rows = topic.coordinator.loaded.rows("g", items)
    topic.coordinator.loaded.load("g", 0, rows)
    assert group_of(topic).description() == before
    await settle(one, two)
    assert group_of(topic).description() == before


async def test_rows_that_contradict_each_other_leave_one_holder(topic: Host) -> None:
    one, two = await pair(topic)
    rows = list(topic.coordinator.loaded.rows("g", topic.coordinator.loaded.items("g")))
    await one.leaves()
    await settle(two)
    newer = topic.coordinator.loaded.rows("g", topic.coordinator.loaded.items("g"))
    topic.coordinator.loaded.load("g", 0, [*newer, *[row for row in rows if row.key.endswith(":one")]])
    assert [member.member_id for member in group_of(topic).members] == ["two"]
    assert await fault_of(one.beats()) is Fault.UNKNOWN_MEMBER


async def test_what_cannot_be_written_is_not_answered_and_written_later(topic: Host) -> None:
    one = Member(topic, "one")
    await one.beats()
    commit = topic.tables.commit

    async def refuse(changes: object) -> None:
        raise OSError("no space")

    topic.tables.commit = refuse
    two = Member(topic, "two")
    assert await fault_of(two.beats()) is Fault.STORAGE
    assert await fault_of(one.beats()) is Fault.STORAGE
    topic.tables.commit = commit
    await settle(one, two)
    before = group_of(topic).description()
    assert sorted([*one.numbers, *two.numbers]) == [0, 1, 2, 3]
    await topic.restart()
    assert group_of(topic).description() == before


# --- descriptions


async def test_a_description_says_all(topic: Host) -> None:
    one = Member(topic, "one", {"instance_id": "x", "rack_id": "r", "assignor": "uniform"})
    await one.beats()
    described = await topic.coordinator.describe("g")
    (member,) = described.members
    assert (described.group_type, described.epoch, described.assignment_epoch) == (GroupType.CONSUMER, 1, 1)
    assert (described.state, described.protocol, described.protocol_type) == ("Stable", "uniform", "consumer")
    assert member.consumer is not None
    assert (member.instance_id, member.consumer.rack_id, member.consumer.topics) == ("x", "r", ("t",))
    assert member.consumer.assigned == member.consumer.target == one.owned
    assert not member.consumer.classic


async def test_a_description_shows_what_a_member_has_yet_to_give_up(topic: Host) -> None:
    one, two = Member(topic, "one"), Member(topic, "two")
    await one.beats()
    had = one.owned
    await two.beats()
    await one.beats()
    assert len(one.owned) == 2, "it was told to give up the others"
    members = (await topic.coordinator.describe("g")).members
    shown = {member.member_id: member.consumer.assigned for member in members if member.consumer is not None}
    assert shown == {"one": had, "two": frozenset()}


async def test_an_empty_group_is_described_with_the_default_assignor(topic: Host) -> None:
    await topic.coordinator.commit_offsets("g", NOBODY, OFFSET)
    one = Member(topic, "one", {"assignor": "range"})
    await one.beats()
    assert (await topic.coordinator.describe("g")).protocol == "range"
    await one.leaves()
    assert (await topic.coordinator.describe("g")).protocol == "uniform"
