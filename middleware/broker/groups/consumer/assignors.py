"""The server-side assignors of KIP-848, which assign partitions to a group's members.

They are pure functions of the members' subscriptions, the topics' partition counts and the previous target.
`uniform` balances and then keeps as many partitions in place as it can. `range_` gives the n-th member the
n-th share of every topic, so equal partition numbers of topics with equal partition counts meet at one
member.

`uniform` minimises the sum of squares of the members' partition counts for any subscriptions. If all members
subscribe to the same topics, counts differ by at most one, and as few partitions move as that allows. Source:
Harvey et al., "Semi-matchings for bipartite graphs and load balancing" (2003): an assignment is optimal if no
path of moves leads from a member to one with at least two partitions fewer.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from treecast.middleware.broker.values import Place, Places
from treecast.middleware.model.identity import TopicId


class Subscriber(Struct, frozen=True):
    """A member as assignors see it. `topics`: the ids of its existing topics."""

    topics: frozenset[TopicId]
    instance_id: str | None = None


Subscribers = Mapping[str, Subscriber]  # by member id
Partitions = Mapping[TopicId, int]  # partition counts of all subscribed topics
Assignment = dict[str, Places]  # by member id
Assignor = Callable[[Subscribers, Partitions, Mapping[str, Places]], Assignment]


def _in_order(members: Subscribers) -> list[str]:
    """Returns member ids in order: static members first, by instance id, which restarts do not change."""
    return sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or "", m))


# --- range


def range_(members: Subscribers, partitions: Partitions, before: Mapping[str, Places]) -> Assignment:
    """Assigns each topic in consecutive ranges to its subscribers, in the same order for all topics."""
    given: dict[str, list[Place]] = {member: [] for member in members}
    order = _in_order(members)
    for topic, count in partitions.items():
        subscribed = [member for member in order if topic in members[member].topics]
        start = 0
        for place, member in enumerate(subscribed):
            share, extra = divmod(count, len(subscribed))
            end = start + share + (place < extra)
            given[member] += [(topic, number) for number in range(start, end)]
            start = end
    return {member: frozenset(places) for member, places in given.items()}


# --- uniform


def uniform(members: Subscribers, partitions: Partitions, before: Mapping[str, Places]) -> Assignment:
    """Returns a balanced assignment, as sticky as balance allows."""
    if not members:
        return {}
    if len({member.topics for member in members.values()}) == 1:
        return _same_topics(members, partitions, before)
    return _different_topics(members, partitions, before)


def _kept(
    members: Subscribers, partitions: Partitions, before: Mapping[str, Places]
) -> dict[str, list[Place]]:
    """Returns the partitions that each member may keep, in order. Of two owners, the first keeps one."""
    taken: set[Place] = set()
    kept: dict[str, list[Place]] = {}
    for member in _in_order(members):
        topics = members[member].topics
        kept[member] = sorted(
            place
            for place in before.get(member, ())
            if place not in taken and place[0] in topics and place[1] < partitions[place[0]]
        )
        taken.update(kept[member])
    return kept


def _missing(
    partitions: Partitions, topics: Iterable[TopicId], kept: Iterable[Sequence[Place]]
) -> list[Place]:
    """Returns the unassigned partitions of `topics`, grouped by topic."""
    taken = {place for places in kept for place in places}
    return [
        (topic, number)
        for topic in sorted(topics)
        for number in range(partitions[topic])
        if (topic, number) not in taken
    ]


def _same_topics(members: Subscribers, partitions: Partitions, before: Mapping[str, Places]) -> Assignment:
    """Lets each member keep up to its share. Members that already have more get the larger shares first."""
    kept = _kept(members, partitions, before)
    topics = next(iter(members.values())).topics
    least, extra = divmod(sum(partitions[topic] for topic in topics), len(members))
    larger = [member for member in kept if len(kept[member]) > least][:extra]
    larger += [member for member in kept if len(kept[member]) <= least][: extra - len(larger)]
    share = dict.fromkeys(kept, least) | dict.fromkeys(larger, least + 1)
    for member, places in kept.items():
        del places[share[member] :]
    rest = iter(_missing(partitions, topics, kept.values()))
    for member, places in kept.items():
        for _ in range(share[member] - len(places)):
            places.append(next(rest))
    return {member: frozenset(places) for member, places in kept.items()}


def _different_topics(
    members: Subscribers, partitions: Partitions, before: Mapping[str, Places]
) -> Assignment:
    """Gives each unassigned partition to its least loaded subscriber, then evens out the loads."""
    kept = _kept(members, partitions, before)
    subscribers: dict[TopicId, list[str]] = {}
    for member in kept:
        for topic in members[member].topics:
            subscribers.setdefault(topic, []).append(member)
    # topics with the fewest subscribers first, because they have the least choice
    loads = {member: len(places) for member, places in kept.items()}
    missing = _missing(partitions, subscribers, kept.values())
    missing.sort(key=lambda place: (len(subscribers[place[0]]), place))
    heaps: dict[TopicId, list[tuple[int, str]]] = {}
    for place in missing:
        heap = heaps.get(place[0])
        if heap is None:
            heap = heaps[place[0]] = [(loads[member], member) for member in subscribers[place[0]]]
            heapq.heapify(heap)
        while heap[0][0] != loads[heap[0][1]]:  # its load has grown since
            heapq.heapreplace(heap, (loads[heap[0][1]], heap[0][1]))
        member = heap[0][1]
        kept[member].append(place)
        loads[member] += 1
    given = {member: set(places) for member, places in kept.items()}
    _even_out(given, subscribers)
    return {member: frozenset(places) for member, places in given.items()}


def _even_out(given: dict[str, set[Place]], subscribers: Mapping[TopicId, Sequence[str]]) -> None:
    """Moves partitions along paths to less loaded members until no path improves the balance.

    It takes the most loaded member first. Once that member has no path left, every member it can reach has at
    most one partition fewer. Later paths start at members with at most its load and end at least two below.
    So none of them leads through it, and it needs no second look.
    """
    held: dict[str, dict[TopicId, set[Place]]] = {}
    for member, places in given.items():
        held[member] = {}
        for place in places:
            held[member].setdefault(place[0], set()).add(place)
    settled: set[str] = set()  # members without a path
    while True:
        rest = [member for member in given if member not in settled]
        if not rest:
            return
        start = max(rest, key=lambda member: len(given[member]))
        path = _path(start, given, held, subscribers)
        if path is None:
            settled.add(start)
            continue
        for giver, topic, taker in path:
            place = max(held[giver][topic])
            given[giver].remove(place)
            held[giver][topic].remove(place)
            given[taker].add(place)
            held[taker].setdefault(topic, set()).add(place)


def _path(
    start: str,
    given: Mapping[str, set[Place]],
    held: Mapping[str, Mapping[TopicId, set[Place]]],
    subscribers: Mapping[TopicId, Sequence[str]],
) -> list[tuple[str, TopicId, str]] | None:
    """Returns the shortest path of moves (giver, topic, taker) from `start` to a member with at least two
    partitions fewer; None if there is none.
    """
    came: dict[str, tuple[str, TopicId] | None] = {start: None}
    seen: set[TopicId] = set()
    queue = deque([start])
    enough = len(given[start]) - 2
    while queue:
        giver = queue.popleft()
        for topic, places in held[giver].items():
            if topic in seen or not places:
                continue
            seen.add(topic)
            for taker in subscribers[topic]:
                if taker in came:
                    continue
                came[taker] = (giver, topic)
                if len(given[taker]) <= enough:
                    return _moves(came, taker)
                queue.append(taker)
    return None


def _moves(came: Mapping[str, tuple[str, TopicId] | None], end: str) -> list[tuple[str, TopicId, str]]:
    moves = []
    step = came[end]
    while step is not None:
        moves.append((step[0], step[1], end))
        end = step[0]
        step = came[end]
    return moves[::-1]


# by the names that members ask for
ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": uniform, "range": range_})
DEFAULT = "uniform"
