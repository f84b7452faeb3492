"""Advice for a network of SRv6 routers: which trials it has, that these give the same advice again, and that
the controller takes it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.control.segments.advised import InstalledWays, ManagedWays
from treecast.middleware.routing.network import Network, RoutingError, build
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.ways import Ways
from treecast.spark_connectors.pipeline.advising import (
    LIVE,
    REPLAY,
    Bench,
    Problem,
    SentSet,
    advice_of,
    trials_of,
)
from treecast.spark_connectors.pipeline.advising import content_digest as digest
from treecast.spark_connectors.pipeline.links import Loads, SetLoad
from treecast.spark_connectors.pipeline.planning import Plan, Settings


def ring() -> Network:
    """Returns six routers in a ring, with a host each."""
    edges = [(n, (n + 1) % 6) for n in range(6)] + [(n, 6 + n) for n in range(6)]
    return build([f"r{n}" for n in range(6)] + [f"h{n}" for n in range(6)], edges, hosts=range(6, 12))


NETWORK = ring()
SENT = (SentSet("h0", ("h2", "h3"), 270, 90), SentSet("h1", ("h2",), 300, 100))  # both cross r1-r2
PLAN = Plan(7, 0, 60_000_000, (), (), Settings())


async def nothing() -> None:
    return None


def managed() -> ManagedWays:
    groups = [(one.host, one.receivers) for one in SENT]
    return ManagedWays(Ways(NETWORK, Paths(NETWORK)), 1, lambda: groups, nothing, {})


def problem(topology: pb.NetworkTopology) -> Problem:
    return Problem("ring", topics.encode(topology), SENT)


def advised(topology: pb.NetworkTopology, source: str = LIVE) -> pb.TreeAdvice:
    one = problem(topology)
    judged = [Bench(one).run(trial) for trial in trials_of(one, PLAN.settings)]
    found = advice_of(PLAN, "p", one, judged, [], source)
    assert found is not None
    return found


def test_a_network_of_routers_has_trials_of_its_own() -> None:
    one = problem(managed().describe("ring", 1, ""))
    assert {trial.strategy for trial in trials_of(one, PLAN.settings)} == {"present", "shortest", "spread"}


def test_advice_unloads_the_busiest_link_and_the_controller_takes_it() -> None:
    one = managed()
    topology = one.describe("ring", 1, "")
    found = advised(topology)
    assert (found.kind, found.strategy, list(found.trees)) == (topics.SEGMENTS, "spread", [])
    assert (found.labels_now, found.labels_expected) == (1.0, 100 / 190)
    installed = one.installed()
    assert isinstance(installed, InstalledWays)
    assert installed.fault(found) == ""
    assert installed.writes(found) == found.rule_writes > 0
    assert digest(advised(topology, REPLAY)) == digest(found)


def test_present_ways_are_the_best_once_they_are_installed() -> None:
    one = managed()
    topology = one.describe("ring", 1, "")
    found = advised(topology)
    topology.ways.extend(found.ways)
    again = advised(topology)
    assert (again.strategy, again.rule_writes) == ("present", 0)
    assert list(again.ways) == list(found.ways)


def test_nothing_is_advised_where_nothing_was_sent_and_a_newer_kind_is_none() -> None:
    topology = managed().describe("ring", 1, "")
    silent = replace(problem(topology), sets=())
    assert Bench(silent).why_not == "nothing was sent by SRv6 in the intervals to learn from"
    topology.kind = "tomorrow's"
    with pytest.raises(RoutingError, match="no kind of network"):
        Bench(problem(topology))


def test_loads_of_links_follow_the_ways() -> None:
    topology = managed().describe("ring", 1, "")
    one = SetLoad("h1", ("h2",), 1, 100)
    assert Loads(topology).links(one) == ("r1-r2", "h1-r1", "r2-h2")
    link = NETWORK.link(NETWORK.node("r1"), NETWORK.node("r2"))
    topology.ways.add(root="h1", receivers=["h2"], avoid=[link])
    assert "r1-r2" not in Loads(topology).links(one)
    assert len(Loads(topology).links(one)) == 7
