"""Camus' figures: workloads counted by hand, checks that can fail, results that are the same for a seed."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from treecast.middleware.evaluation.camus import (
    FIGURES,
    fig8,
    fig9,
    fig11,
    fig13,
    fig15,
    rules100k,
    table1,
    workload,
)
from treecast.middleware.evaluation.figure import Options, Task
from treecast.middleware.evaluation.registry import figures
from treecast.middleware.filters.actions import Forward, Rules
from treecast.middleware.filters.compiler.compile import compile_rules


def test_all_are_listed() -> None:
    assert set(FIGURES) <= set(figures())
    figures_ = (8, 9, 11, 12, 13, 14, 15)
    others = ("camus-100k", "camus-changes", "camus-fat-tree", "camus-table1")
    assert {*others, *(f"camus-fig{n}" for n in figures_)} == set(FIGURES)


def test_the_bound_by_hand() -> None:
    """Two symbols: one with three prices of which two matter, one with the same hosts at the same prices."""
    rules = [
        workload.above(0, 10, 1),
        workload.above(0, 20, 1),  # host 1 gets these anyway
        workload.above(0, 30, 2),
        workload.above(1, 10, 1),
        workload.above(1, 30, 2),
    ]
    found = rules100k.bound(Rules(tuple(rules)))
    assert found == 2 + 2
    compiled = compile_rules(workload.ITCH, Rules(tuple(rules)), workload.STOCK_FIRST)
    assert compiled.entries == found
    assert list(compiled.groups) == [(2, 3)]


@pytest.mark.parametrize("count", [1, 50, 1000])
def test_the_compiler_meets_the_bound_on_uniform_rules(count: int) -> None:
    rules = workload.uniform(count, Random(count))
    assert compile_rules(workload.ITCH, rules, workload.STOCK_FIRST).entries <= rules100k.bound(rules)


def test_a_worse_compiler_would_be_seen() -> None:
    row = {"H": "grid", "order": "stock first", "entries": 299, "bound": 299, "groups": 198}
    row |= {"one big table": 100_000, "processor s": 1.0}
    others = {**row, "order": "price first", "entries": 20_000, "bound": None}
    good = rules100k.finish(Options(), [row, others])
    assert all(check.holds for check in good.checks)
    for worse in ({"entries": 320}, {"groups": 199}, {"processor s": 9.0}, {"one big table": 200}):
        found = rules100k.finish(Options(), [row | worse, others])
        assert sum(not check.holds for check in found.checks) >= 1, worse


def test_the_grids_host_depends_on_the_price_alone() -> None:
    rules = workload.grid(Random(1)).rules
    assert len(rules) == 100_000
    hosts: dict[str, set[int]] = {}
    for rule in rules:
        action = rule.actions[0]
        assert isinstance(action, Forward)
        hosts.setdefault(str(rule.filter.parts[1].constant), set()).add(action.ports[0])  # type: ignore[union-attr]
    assert {len(one) for one in hosts.values()} == {1}


def test_loose_filters_cost_traffic_and_save_entries() -> None:
    def of(part: str, alpha: int) -> dict[str, float]:
        rows = fig13.work(Options(), Task((part, "TR", alpha, 32), 0))
        return {row["layer"]: row["entries"] + row["extra core traffic %"] for row in rows}

    assert of("traffic", 1) == {"Core": 0}
    assert of("traffic", 200)["Core"] > 0
    assert of("entries", 200)["Agg"] < of("entries", 1)["Agg"]


def test_trees_of_a_general_network_by_hand() -> None:
    """A star with three subscribers behind its hub: the hub has a port for each, a leaf two."""
    tree = [[1, 2, 3], [0], [0], [0]]
    wanted = {node: list(workload.siena_filters(1, 2, 2, 100, Random(node))) for node in (1, 2, 3)}
    hub = frozenset({frozenset({1}), frozenset({2}), frozenset({3})})
    leaf = frozenset({frozenset({1}), frozenset({2, 3})})
    assert fig15.entries(leaf, wanted) <= fig15.entries(hub, wanted)
    assert fig15.most_entries(tree, wanted) == fig15.entries(hub, wanted)
    edges = fig15.attached(500, 2, Random(1))
    assert len(edges) == len(set(edges)) == 2 * 498


def test_latencies_of_a_feed_by_hand() -> None:
    """A packet of three messages of which the last is wanted, and one on its own that waits for them."""
    feed = [fig8.Packet(0.0, (False, False, True)), fig8.Packet(0.1, (True,))]
    by_subscriber = [fig8.PASS + 3 * fig8.PER_MESSAGE, fig8.PASS + 4 * fig8.PER_MESSAGE - 0.1]
    assert fig8.filtered_by_subscriber(feed) == pytest.approx(by_subscriber)
    # By the switch, the packet of one message comes first: it needs one pass.
    first, second = fig8.PASS + fig8.PER_MESSAGE, 3 * fig8.PASS + fig8.PER_MESSAGE
    assert fig8.filtered_by_switch(feed) == pytest.approx([first, second])


@pytest.mark.parametrize("workload_", fig8.SHARES)
@pytest.mark.parametrize("burst", [1, 64])
def test_a_feed_loads_its_subscriber_as_stated(workload_: str, burst: int) -> None:
    feed = fig8.packets(workload_, burst, Random(1), 40_000)
    messages = sum(len(packet.wanted) for packet in feed)
    wanted = sum(sum(packet.wanted) for packet in feed)
    assert messages * fig8.PER_MESSAGE / feed[-1].sent == pytest.approx(fig8.LOAD, rel=0.1)
    assert wanted / messages == pytest.approx(fig8.SHARES[workload_], rel=0.4)
    assert all(a.sent < b.sent for a, b in pairwise(feed))


def test_the_switch_of_figure_8_lets_through_what_the_filter_says() -> None:
    assert fig8.filters() == {"GOOGL": True, "AAPL": False}


def test_filters_of_telemetry_are_different_and_tables_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = fig9.drawn(500, Random(1))
    assert len({one[:2] for one in chosen}) == 500
    monkeypatch.setattr(fig9, "PACKETS", 300)
    monkeypatch.setattr(fig9, "SLOW", 0.5)
    rows = fig9.work(Options(), Task((500,), 0))
    assert [row["how"] for row in rows] == list(fig9.HOW)
    assert not any(row["wrong"] for row in rows)
    assert rows[0]["steps"] == 500
    assert 0 < rows[1]["steps"] <= 2
    assert rows[0]["matching %"] > 10


def test_a_meter_sends_a_content_to_the_forwarder_once_it_is_hot() -> None:
    """All requests are for one content within one window: the first ones go to the producer."""
    asked = [(float(number), fig11.HOT) for number in range(100)]
    cold, hot, through = fig11.served(asked, metered=True, trip=1000.0)
    assert cold == []
    assert through == 100 - fig11.OFTEN
    assert sum(latency >= 1000 for latency in hot) == fig11.OFTEN
    assert fig11.served(asked, metered=False, trip=1000.0)[2] == 100


def test_uncached_content_waits_for_the_forwarder_only_without_a_meter() -> None:
    asked = [(0.0, fig11.HOT), (0.0, 7), (0.0, 500_000)]
    plain, _, _ = fig11.served(asked, metered=False, trip=50.0)
    assert plain == pytest.approx([50 + 2 * fig11.OBJECT, 50 + 3 * fig11.OBJECT])
    assert fig11.served(asked, metered=True, trip=50.0)[0] == [50.0, 50.0]


def test_rules_of_table_1() -> None:
    assert len(set(table1.telemetry("ranges, one collector in eight"))) == 100_000
    found = table1.identifiers(1000, Random(1))
    assert len({rule.filter for rule in found}) == 1000
    compiled = compile_rules(table1.HICN, Rules(found))
    assert compiled.entries == 1000
    assert not compiled.groups


def test_a_switch_that_is_too_small_would_be_seen() -> None:
    values = dict.fromkeys(table1.VALUES, 1.0) | {"groups": 0, "groups %": 0.0, "TCAM %": 0.5}
    rows = [dict(zip(table1.KEYS, point, strict=True)) | values for point in table1.POINTS]
    rows[0] |= {"groups %": 24.0}
    rows[-1] |= {"SRAM %": 75.0}
    assert all(check.holds for check in table1.finish(Options(), rows).checks)
    for place, worse in (
        (5, {"SRAM %": 101.0}),
        (5, {"TCAM %": 0.7}),
        (3, {"groups %": 1.0}),
        (4, {"SRAM %": 90.0}),
    ):
        changed = [row | worse if number == place else row for number, row in enumerate(rows)]
        assert not all(check.holds for check in table1.finish(Options(), changed).checks), worse
