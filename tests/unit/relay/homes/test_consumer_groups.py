"""Groups of the new protocol (KIP-848) whose home is on another host, or moves with all its members."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.consumer.beat import NOTHING, beat
from tests.unit.broker.groups.host import Topics, fault_of
from tests.unit.relay.homes.town import TAKEOVER, Town, TownHost

from treecast.middleware.broker.values import (
    CommittedOffset,
    ConfigChange,
    ConfigOperation,
    ConsumerHeartbeatAnswer,
    GroupType,
    MemberIdentity,
    Places,
)
from treecast.middleware.model.errors import Fault
from treecast.middleware.model.identity import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def topics() -> Topics:
    made = Topics()
    made.make("t", 4)
    return made


async def host(town: Town, name: str, topics: Topics) -> TownHost:
    made = await town.host(name)
    made.parts.groups.loaded.look_at(topics)
    return made


class Member:
    """A member beside `at`, wherever the home is; it does at once what the coordinator tells it."""

    def __init__(self, at: TownHost, member_id: str) -> None:
        self.at = at
        self.member_id = member_id
        self.epoch = 0
        self.owned: Places = NOTHING

    async def beats(self) -> ConsumerHeartbeatAnswer:
        how = {} if self.epoch == 0 else {"owned": self.owned}
        answer = await self.at.group.consumer_heartbeat(beat(self.member_id, self.epoch, **how))
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
        return answer


async def settle(*members: Member) -> None:
    while True:
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            await member.beats()
        if before == [(member.epoch, member.owned) for member in members]:
            return


async def test_members_beside_two_hosts_share(town: Town, topics: Topics) -> None:
    a, b = await host(town, "a", topics), await host(town, "b", topics)
    one, two = Member(a, "one"), Member(b, "two")
    await one.beats()
    await settle(one, two)
    assert a.is_home("g")
    assert sorted(number for _, number in one.owned | two.owned) == [0, 1, 2, 3]
    assert one.owned.isdisjoint(two.owned)
    assert await a.group.describe("g") == await b.group.describe("g")
    assert (await b.group.describe("g")).group_type is GroupType.CONSUMER
    me = MemberIdentity("two", None, two.epoch)
    assert await b.group.commit_offsets("g", me, {T0: CommittedOffset(7)}) == {}
    stale = MemberIdentity("two", None, two.epoch - 1)
    assert (
        await fault_of(b.group.commit_offsets("g", stale, {T0: CommittedOffset(8)}))
        is Fault.STALE_MEMBER_EPOCH
    )
    found = await b.group.fetch_offsets("g", [T0], require_stable=True, member=me)
    assert found == {T0: CommittedOffset(7)}
    assert await fault_of(b.group.fetch_offsets("g", [T0], require_stable=True, member=stale)) is (
        Fault.STALE_MEMBER_EPOCH
    )


async def test_settings_of_a_group_are_at_its_home(town: Town, topics: Topics) -> None:
    a, b = await host(town, "a", topics), await host(town, "b", topics)
    change = ConfigChange("consumer.heartbeat.interval.ms", ConfigOperation.SET, "6000")
    assert await a.group.alter_config("g", ()) == {}
    assert await b.group.alter_config("g", [change]) == {change.name: "6000"}
    await town.settle()  # until its view names the home, host a shows no settings
    assert await a.group.alter_config("g", ()) == {change.name: "6000"}
    assert (await Member(a, "one").beats()).heartbeat_interval_ms == 6_000
    wrong = ConfigChange("consumer.heartbeat.interval.ms", ConfigOperation.SET, "1")
    assert await fault_of(a.group.alter_config("g", [wrong])) is Fault.INVALID_CONFIG


async def test_the_next_home_goes_on_with_the_members(town: Town, topics: Topics) -> None:
    a, b = await host(town, "a", topics), await host(town, "b", topics)
    one, two = Member(b, "one"), Member(b, "two")
    setting = ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, "60000")
    await a.group.alter_config("g", [setting])
    await one.beats()
    await settle(one, two)
    assert a.is_home("g")
    before = await b.group.describe("g")
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    await settle(one, two)
    assert b.is_home("g")
    assert await b.group.describe("g") == before, "no partition moved"
    assert await b.group.alter_config("g", ()) == {setting.name: "60000"}


async def test_a_step_that_was_begun_goes_on_at_the_next_home(town: Town, topics: Topics) -> None:
    a, b = await host(town, "a", topics), await host(town, "b", topics)
    await a.group.alter_config(
        "g", [ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, "60000")]
    )
    one, two = Member(b, "one"), Member(b, "two")
    await one.beats()
    had = one.owned
    await two.beats()
    await one.beats()  # it is told to release two partitions
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert (await two.beats()).assignment is None, "one has not released them"
    await b.group.consumer_heartbeat(beat("one", one.epoch, owned=had))
    assert (await two.beats()).assignment is None
    await settle(one, two)
    assert (len(one.owned), len(two.owned)) == (2, 2)
