"""Camus' figures: workloads counted by hand, checks that can fail, results that are the same for a seed."""

from __future__ import annotations

from random import Random

import pytest

from treecast.middleware.evaluation.camus import FIGURES, fig13, fig15, rules100k, workload
from treecast.middleware.evaluation.figure import Options, Task
from treecast.middleware.evaluation.registry import figures
from treecast.middleware.filters.actions import Forward, Rules
from treecast.middleware.filters.compiler.compile import compile_rules


def test_all_are_listed() -> None:
    assert set(FIGURES) <= set(figures())
    assert {"camus-100k", "camus-changes", "camus-fig12", "camus-fig13", "camus-fig14", "camus-fig15"} == set(
        FIGURES
    )


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
