"""The forwarding plan reaches everybody once, enters each zone once, and gives nobody more than its share."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.routing.zones import Branch, Plan, Zone, branches, entered, nearer, parse_zone

LABELS = ["", "eu", "us", "eu/a", "eu/b", "eu/a/1", "us/x", "us/y", "as/z"]
PLACED = st.dictionaries(st.integers(1, 40), st.sampled_from(LABELS), min_size=2, max_size=30)


def ways(
    origin: int,
    zones: dict[int, Zone],
    hosts: set[int],
    stream: int,
    shunned: frozenset[int] = frozenset(),
    at_origin: int = 4,
) -> list[tuple[int, int]]:
    """Returns all copies that forwarding hosts make."""
    found: list[tuple[int, int]] = []

    def serve(here: int, rest: set[int], most: int) -> None:
        for branch in branches(zones.get(here, ()), rest, zones, Plan(most, stream, shunned)):
            found.append((here, branch.head))
            serve(branch.head, set(branch.rest), 2)

    serve(origin, hosts - {origin}, at_origin)
    return found


@given(PLACED, st.integers(0, 2**64), st.sets(st.integers(1, 40)))
def test_each_host_gets_one_copy_and_each_zone_is_entered_once(
    labels: dict[int, str], stream: int, shunned: set[int]
) -> None:
    zones = {host: parse_zone(label) for host, label in labels.items()}
    origin = min(zones)
    copies = ways(origin, zones, set(zones), stream, frozenset(shunned - {origin}))
    assert sorted(receiver for _, receiver in copies) == sorted(set(zones) - {origin})
    found = entered(zones, copies)
    assert all(count == 1 for count in found.values())
    home = zones[origin]
    expected = {zone[: n + 1] for zone in zones.values() for n in range(len(zone))}
    assert found.keys() == expected - {home[: n + 1] for n in range(len(home))}


@given(PLACED, st.integers(0, 2**64))
def test_nobody_sends_more_than_its_share(labels: dict[int, str], stream: int) -> None:
    zones = {host: parse_zone(label) for host, label in labels.items()}
    origin = min(zones)
    sent = Counter(sender for sender, _ in ways(origin, zones, set(zones), stream))
    assert sent.pop(origin, 0) <= 4
    assert all(count <= 2 for count in sent.values())


@given(PLACED, st.integers(0, 2**64), st.sets(st.integers(1, 40), max_size=10))
def test_who_is_shunned_serves_nobody_where_another_could(
    labels: dict[int, str], stream: int, shunned: set[int]
) -> None:
    zones = {host: parse_zone(label) for host, label in labels.items()}
    here = min(zones)
    plan = Plan(2, stream, frozenset(shunned))
    for branch in branches(zones[here], set(zones) - {here}, zones, plan):
        if branch.rest and branch.head in shunned:
            assert zones[branch.head] != zones[here]
            assert shunned.issuperset(branch.rest)


def test_streams_spread_over_the_hosts_of_a_zone() -> None:
    zones = {host: ("a",) if host == 1 else ("b",) for host in range(1, 6)}
    sent: Counter[int] = Counter()
    for stream in range(400):
        sent.update(sender for sender, _ in ways(1, zones, set(zones), stream) if sender != 1)
    assert all(230 < sent[host] < 370 for host in range(2, 6))  # 1,200 copies of four hosts


def test_a_set_of_three_zones_seen_from_each_side() -> None:
    zones = {1: ("a",), 2: ("a",), 3: ("b",), 4: ("b",), 5: ("c", "x"), 6: ("c", "y"), 7: ()}
    from_a = branches(("a",), [2, 3, 4, 5, 6, 7], zones, Plan(9, 5))
    assert from_a[0] == Branch(2, ())
    assert {frozenset((one.head, *one.rest)) for one in from_a[1:]} == {
        frozenset({3, 4}),
        frozenset({5, 6}),
        frozenset({7}),
    }
    assert branches(("c", "x"), [6], zones, Plan(2, 5)) == (Branch(6, ()),)
    assert branches((), [], zones, Plan(2, 5)) == ()


def test_what_is_no_label() -> None:
    assert parse_zone("eu/berlin-1.a") == ("eu", "berlin-1.a")
    for label in ("/", "eu/", "/eu", "a//b", "a b", "ü", "-a", "a" * 256, "/".join("a" * 9)):
        with pytest.raises(ValueError, match="zone"):
            parse_zone(label)


@given(PLACED, st.integers(0, 2**64))
def test_repairs_of_a_zone_are_asked_from_outside_by_one_host(labels: dict[int, str], stream: int) -> None:
    """Requests end at the origin, and never go in a circle."""
    zones = {host: parse_zone(label) for host, label in labels.items()}
    origin = min(zones)
    asked = {host: nearer(host, origin, set(zones), zones, stream) for host in zones if host != origin}
    sources = [((hosts[0] if hosts else origin), host) for host, hosts in asked.items()]
    away = {zone[:level] for zone in zones.values() for level in range(1, len(zone) + 1)}
    away -= {zones[origin][:level] for level in range(1, len(zones[origin]) + 1)}
    assert {zone: count for zone, count in entered(zones, sources).items() if count != 1} == {}
    assert entered(zones, sources).keys() == away
    for host in asked:
        passed = {host}
        while asked.get(host):
            host = asked[host][-1]
            assert host not in passed
            passed.add(host)
