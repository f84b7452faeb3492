"""Which hosts a segment is sent on to where links between zones are dear, one copy into each zone.

    parse_zone("eu/berlin")                 # ("eu", "berlin"): zones lie in zones
    branches(here, hosts, zones, Plan(...)) # to whom this host sends, and whom each of them serves in turn
    nearer(host, origin, hosts, zones, stream)  # whom a host asks for repairs before the origin

Seen from a host, the others of its own zone are single, and all others are sets: those behind the first level
at which their zone leaves the host's own. A set is never parted, so each zone is entered once, by whoever
sends. The first host of a branch is its head: it gets the segment and serves the rest as it sees them.

Heads are drawn by a hash of stream and host, so that streams spread over the hosts of a zone. A host has at
most `most` branches: what is too much is handed to a head in its own zone, if there is one, else to one of
another. So a host that sends on sends `most` copies of what it gets, however many hosts there are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

Zone = tuple[str, ...]

MOST_LEVELS: Final = 8
MOST_BYTES: Final = 255
_ASKED: Final = 2  # hosts of a zone that are asked for repairs
_LEVEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


def parse_zone(label: str) -> Zone:
    """The levels of a label, outermost first; none of the empty label. ValueError where it is no label."""
    if not label:
        return ()
    levels = tuple(label.split("/"))
    if len(label) > MOST_BYTES or len(levels) > MOST_LEVELS or not all(map(_LEVEL.match, levels)):
        raise ValueError(
            f"zone {label[:300]!r}: use up to {MOST_LEVELS} levels with / between them, each of"
            " A-Z a-z 0-9 . _ -, first a letter or digit"
        )
    return levels


class Branch(Struct, frozen=True):
    """`head` gets the segment, and sends it on to the `rest`, which ascends."""

    head: int
    rest: tuple[int, ...]


class Plan(Struct, frozen=True):
    """`stream`: any number that heads are drawn by. `shunned`: hosts that serve nobody where another can."""

    most: int
    stream: int
    shunned: frozenset[int] = frozenset()


def branches(here: Zone, hosts: Iterable[int], zones: Mapping[int, Zone], plan: Plan) -> tuple[Branch, ...]:
    """Each of the `hosts` is in one branch. Who has no zone in `zones` lies outside of all."""
    near: list[int] = []
    far: dict[Zone, list[int]] = {}
    for host in sorted(set(hosts)):
        zone = zones.get(host, ())
        if zone == here:
            near.append(host)
        else:
            far.setdefault(_leaves_at(here, zone), []).append(host)
    sets = [far[zone] for zone in sorted(far, key=lambda zone: (-_shared(here, zone), -len(far[zone]), zone))]
    helpers = [host for host in near if host not in plan.shunned]
    singles = [Branch(host, ()) for host in near]
    if len(near) + len(sets) <= plan.most or (not sets and not helpers):
        return (*singles, *[_behind(one, plan) for one in sets])
    if not helpers:
        return (*singles, *_by_others(sets, max(1, plan.most - len(near)), plan))
    alone, left = sets[: plan.most - 1], sets[plan.most - 1 :]
    heads = _ranked(helpers, plan.stream)[: plan.most - len(alone)]
    shares = _dealt([[host] for host in near if host not in heads] + left, len(heads))
    served = [Branch(head, tuple(sorted(_flat(one)))) for head, one in zip(heads, shares, strict=True)]
    return (*[_behind(one, plan) for one in alone], *served)


def nearer(
    host: int, origin: int, hosts: Iterable[int], zones: Mapping[int, Zone], stream: int
) -> tuple[int, ...]:
    """The hosts that `host` asks for what it lacks of the stream before it asks the origin, in this order.

    In each zone of `host` that does not hold the origin, from the innermost on, the hosts are ranked as heads
    are drawn. A host asks the first two of those before it; the first of a zone asks farther out. So asking
    never goes in a circle, and of a whole zone that lacks something one host asks outside.
    """
    zone = zones.get(host, ())
    others = [one for one in hosts if one not in (host, origin)]
    for level in range(len(zone), _shared(zone, zones.get(origin, ())), -1):
        inside = [one for one in others if zones.get(one, ())[:level] == zone[:level]]
        ranked = _ranked([host, *inside], stream)
        before = ranked[: ranked.index(host)]
        if before:
            return tuple(before[:_ASKED])
    return ()


def levels_between(zone: Zone, other: Zone) -> int:
    """How many zones a copy from `other` to `zone` enters."""
    return len(zone) - _shared(zone, other)


def entered(zones: Mapping[int, Zone], ways: Collection[tuple[int, int]]) -> dict[Zone, int]:
    """How often each zone is entered from outside by copies from one host to another: a check for tests."""
    found: dict[Zone, int] = {}
    for sender, receiver in ways:
        source, target = zones.get(sender, ()), zones.get(receiver, ())
        for level in range(1, len(target) + 1):
            if source[:level] != target[:level]:
                found[target[:level]] = found.get(target[:level], 0) + 1
    return found


def _leaves_at(here: Zone, zone: Zone) -> Zone:
    """The outermost zone that `zone` is in and `here` is not; `zone` itself where it holds `here`."""
    return zone[: _shared(here, zone) + 1]


def _shared(here: Zone, zone: Zone) -> int:
    """Levels of the innermost zone that both are in."""
    level = 0
    while level < min(len(here), len(zone)) and here[level] == zone[level]:
        level += 1
    return level


def _behind(hosts: list[int], plan: Plan, more: Iterable[int] = ()) -> Branch:
    """One branch for them and `more`; its head is one of `hosts`, not shunned where there is such a one."""
    able = [host for host in hosts if host not in plan.shunned] or hosts
    head = _ranked(able, plan.stream)[0]
    return Branch(head, tuple(sorted([host for host in [*hosts, *more] if host != head])))


def _by_others(sets: list[list[int]], most: int, plan: Plan) -> list[Branch]:
    """Sets that nobody of the own zone can take: some take others along. `sets`: the nearest first.

    The head is in the nearest: from a far one the way to a near one would enter again what both this host and
    the near one are in. Sets of shunned hosts alone take nobody along.
    """
    able = [one for one in sets if not plan.shunned.issuperset(one)]
    alone = [_behind(one, plan) for one in sets if one not in able]
    shares = _dealt(able, min(max(1, most - len(alone)), len(able)))
    return [*alone, *[_behind(first, plan, _flat(others)) for first, *others in shares]]


def _dealt(sets: list[list[int]], count: int) -> list[list[list[int]]]:
    """In turn to so many, some of which may get none where there are fewer sets."""
    return [sets[first::count] for first in range(count)]


def _flat(sets: list[list[int]]) -> list[int]:
    return [host for one in sets for host in one]


def _ranked(hosts: list[int], stream: int) -> list[int]:
    """In an order that each stream has of its own."""
    return sorted(hosts, key=lambda host: (_mixed(_mixed(stream) ^ host), host))


def _mixed(number: int) -> int:
    """Bits of a number spread over 64 (SplitMix64's finalizer)."""
    number = (number + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    number = (number ^ number >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return number ^ number >> 31
