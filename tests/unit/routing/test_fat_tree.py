"""Subscriptions on fat trees: everyone gets what it wants and nothing else, whatever the policy and the
link up.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.routing.fat_tree import (
    UP,
    Policy,
    UpChoice,
    Uplinks,
    changed,
    deliver,
    fat_tree,
    route,
)

RIGHT = (Policy.MEMORY, Policy.TRAFFIC)


def test_the_papers_network() -> None:
    network = fat_tree(4)
    assert len(network.access) == 16
    assert [network.layers.count(layer) for layer in range(3)] == [8, 8, 4]
    assert all(len(links) == 2 for links in network.up[:16])
    assert network.up[16:] == ((),) * 4
    with pytest.raises(ValueError, match="even number"):
        fat_tree(3)


@pytest.mark.parametrize("policy", RIGHT)
@given(
    st.sampled_from([2, 4, 6]),
    st.data(),
    st.sampled_from(UpChoice),
    st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_deliveries_are_exact(policy: Policy, k: int, data: st.DataObject, how: UpChoice, flow: int) -> None:
    network = fat_tree(k)
    hosts = range(len(network.access))
    wanting = data.draw(st.sets(st.sampled_from(hosts)))
    source = data.draw(st.sampled_from(hosts))
    filters = route(network, wanting, policy)
    found = deliver(network, filters, source, lambda s, p, h: True, Uplinks(network, how, Random(flow)), flow)
    assert found.hosts == wanting - {source}
    if policy is Policy.TRAFFIC and not wanting - {source}:
        assert sum(found.copies) == 1


def test_the_traffic_policy_as_printed_misses_deliveries() -> None:
    """Each pair of hosts, one publishing and one subscribing: only pairs at one switch work."""
    network = fat_tree(4)
    missed = 0
    for wanting in range(16):
        filters = route(network, [wanting], Policy.PRINTED)
        for source in set(range(16)) - {wanting}:
            uplinks = Uplinks(network, UpChoice.ECMP, Random(1))
            missed += not deliver(network, filters, source, lambda s, p, h: True, uplinks).hosts
    assert missed == 16 * 14


def test_traffic_policy_sends_up_only_what_is_wanted_there() -> None:
    network = fat_tree(4)
    filters = route(network, [0], Policy.TRAFFIC)
    assert (0, UP) not in filters  # nobody else wants anything
    assert filters[1, UP] == {0}


@pytest.mark.parametrize(("policy", "switches"), [(Policy.MEMORY, 7), (Policy.TRAFFIC, 20)])
def test_switches_that_a_new_subscriber_changes(policy: Policy, switches: int) -> None:
    """Its own switch, those above it in its pod and the core with MR; all with TR."""
    network = fat_tree(4)
    others = [host for host in range(16) if host != 5]
    assert len(changed(route(network, others, policy), route(network, range(16), policy))) == switches


@pytest.mark.parametrize("policy", RIGHT)
@given(st.data(), st.sampled_from(UpChoice))
@settings(max_examples=40, deadline=None)
def test_a_network_without_a_link_still_delivers(policy: Policy, data: st.DataObject, how: UpChoice) -> None:
    """Switches no longer send up to where a host isn't reached any more."""
    network = fat_tree(4)
    low = data.draw(st.integers(0, 15))
    left = network.without((low, data.draw(st.sampled_from(network.up[low])).switch))
    filters = route(left, range(16), policy)
    for source in range(16):
        found = deliver(left, filters, source, lambda s, p, h: True, Uplinks(left, how, Random(1)), 1)
        assert found.hosts == set(range(16)) - {source}
