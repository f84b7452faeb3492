"""The assignors against plain references that try every assignment."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Partitions,
    Subscriber,
    Subscribers,
    range_,
    uniform,
)
from treecast.middleware.broker.values import Place, Places

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]
A, B, C, D = TOPICS


def who(**topics: object) -> dict[str, Subscriber]:
    """Makes members by name with the topics that they read."""
    return {name: Subscriber(frozenset(read)) for name, read in topics.items()}


def places(topic: uuid.UUID, *numbers: int) -> Places:
    return frozenset((topic, number) for number in numbers)


def sizes(assignment: Assignment) -> list[int]:
    return sorted(len(found) for found in assignment.values())


def moved(before: dict[str, Places], after: Assignment) -> int:
    """Counts the partitions that went from one member to another."""
    had = {place: member for member, found in before.items() for place in found}
    has = {place: member for member, found in after.items() for place in found}
    return sum(had[place] != member for place, member in has.items() if place in had)


# --- the plain reference


def every_assignment(members: Subscribers, partitions: Partitions) -> Iterator[Assignment]:
    """Yields every assignment of the partitions to members that read them."""
    read = sorted({topic for member in members.values() for topic in member.topics})
    every = [(topic, number) for topic in read for number in range(partitions[topic])]
    readers = [[name for name in members if place[0] in members[name].topics] for place in every]
    for choice in itertools.product(*readers):
        found: dict[str, set[Place]] = {name: set() for name in members}
        for place, name in zip(every, choice, strict=True):
            found[name].add(place)
        yield {name: frozenset(has) for name, has in found.items()}


def squares(assignment: Assignment) -> int:
    return sum(len(found) ** 2 for found in assignment.values())


def check_whole(members: Subscribers, partitions: Partitions, assignment: Assignment) -> None:
    """Each partition that has a reader belongs to exactly one of them, and nothing else is assigned."""
    assert assignment.keys() == members.keys()
    given_out = [place for found in assignment.values() for place in found]
    read = {topic for member in members.values() for topic in member.topics}
    assert len(given_out) == len(set(given_out)), "a partition has two owners"
    assert set(given_out) == {(topic, number) for topic in read for number in range(partitions[topic])}
    for name, found in assignment.items():
        assert {topic for topic, _ in found} <= members[name].topics


# --- strategies

_names = [f"m{number}" for number in range(4)]


@st.composite
def groups(
    draw: st.DrawFn, *, same: bool, most: int = 3
) -> tuple[Subscribers, Partitions, dict[str, Places]]:
    """Draws a group and its former assignment, which may hold topics that are not read or have shrunk."""
    names = draw(st.lists(st.sampled_from(_names), min_size=1, unique=True))
    topics = st.frozensets(st.sampled_from(TOPICS[:3]))
    common = draw(topics)
    static = st.one_of(st.none(), st.sampled_from(["x", "y", "z"]))
    members = {name: Subscriber(common if same else draw(topics), draw(static)) for name in names}
    partitions = {topic: draw(st.integers(1, most)) for topic in TOPICS}
    every = [(topic, number) for topic in TOPICS for number in range(most + 1)]
    owner = {place: draw(st.one_of(st.none(), st.sampled_from(_names))) for place in every}
    before = {name: frozenset(place for place, owned in owner.items() if owned == name) for name in _names}
    return members, partitions, before


# --- uniform


@given(groups(same=True))
def test_uniform_of_one_subscription_is_balanced_and_moves_as_little_as_can_be(group) -> None:
    members, partitions, before = group
    found = uniform(members, partitions, before)
    check_whole(members, partitions, found)
    assert sizes(found)[-1] - sizes(found)[0] <= 1
    balanced = [one for one in every_assignment(members, partitions) if sizes(one)[-1] - sizes(one)[0] <= 1]
    assert moved(before, found) == min(moved(before, one) for one in balanced)


@given(groups(same=False))
def test_uniform_of_any_subscriptions_is_as_balanced_as_can_be(group) -> None:
    members, partitions, before = group
    found = uniform(members, partitions, before)
    check_whole(members, partitions, found)
    assert squares(found) == min(squares(one) for one in every_assignment(members, partitions))


@given(groups(same=False, most=20), st.sampled_from(sorted(ASSIGNORS)))
def test_whoever_assigns_what_is_assigned_stays(group, name: str) -> None:
    members, partitions, before = group
    assign = ASSIGNORS[name]
    found = assign(members, partitions, before)
    check_whole(members, partitions, found)
    assert assign(members, partitions, found) == found


@given(groups(same=True, most=20))
def test_uniform_moves_little_when_a_member_leaves(group) -> None:
    members, partitions, _ = group
    whole = uniform(members, partitions, {})
    gone = sorted(members)[0]
    rest = {name: member for name, member in members.items() if name != gone}
    if rest:
        after = uniform(rest, partitions, whole)
        assert all(after[name] >= whole[name] for name in rest), "a member that stays keeps its partitions"


def test_uniform_evens_out_along_a_chain() -> None:
    """a and c read no topic in common: a gives to b, and b gives to c."""
    members = who(a=[A], b=[A, B], c=[B])
    before = {"a": places(A, 0, 1, 2, 3, 4), "b": places(B, 0, 1, 2, 3), "c": places(B, 4)}
    found = uniform(members, {A: 5, B: 5}, before)
    assert sizes(found) == [3, 3, 4]


def test_uniform_of_many_is_fast_enough_to_be_used() -> None:
    members = {f"m{n}": Subscriber(frozenset(TOPICS[: 2 + n % 3])) for n in range(200)}
    found = uniform(members, dict.fromkeys(TOPICS, 500), {})
    assert sizes(found)[-1] - sizes(found)[0] <= 1


def test_nobody_is_assigned_nothing() -> None:
    assert uniform({}, {}, {}) == {}
    assert range_({}, {}, {}) == {}


# --- range


@given(groups(same=False, most=20))
def test_range_gives_consecutive_shares_that_meet_across_topics(group) -> None:
    members, partitions, before = group
    found = range_(members, partitions, before)
    check_whole(members, partitions, found)
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or "", m))
    for topic, count in partitions.items():
        readers = [name for name in order if topic in members[name].topics]
        shares = [sorted(number for t, number in found[name] if t == topic) for name in readers]
        assert [number for share in shares for number in share] == list(range(count)) * bool(readers)
        assert sorted(map(len, shares), reverse=True) == list(map(len, shares)), (
            "the larger shares come first"
        )
        assert not shares or len(shares[0]) - len(shares[-1]) <= 1
    if len({member.topics for member in members.values()}) == 1:
        for one, other in itertools.combinations(next(iter(members.values())).topics, 2):
            if partitions[one] == partitions[other]:
                for share in found.values():
                    assert {n for t, n in share if t == one} == {n for t, n in share if t == other}


def test_range_keeps_the_place_of_a_static_member() -> None:
    """The member comes back under another member id."""
    first = {"a": Subscriber(frozenset({A}), "x"), "b": Subscriber(frozenset({A}), "y")}
    again = {"z": Subscriber(frozenset({A}), "x"), "b": Subscriber(frozenset({A}), "y")}
    assert range_(first, {A: 4}, {})["a"] == range_(again, {A: 4}, {})["z"] == places(A, 0, 1)


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_the_names_are_those_of_kafka(name: str) -> None:
    assert name in ASSIGNORS
