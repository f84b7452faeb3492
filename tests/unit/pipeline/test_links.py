"""Loads of links, straight lines through them, and what is said about the future."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.control.trees.advised import description
from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.network import build
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.spark_connectors.pipeline.links import FAR, Loads, SetLoad, Sums, Trend, forecast, hours_until

# a - s0 - s1 - b, and c at s1; d is cut off
NAMES = ["s0", "s1", "s2", "a", "b", "c", "d"]
NETWORK = build(NAMES, [(0, 1), (0, 3), (1, 4), (1, 5), (2, 6)], hosts=[3, 4, 5, 6])


def loads(*trees: list[int]) -> Loads:
    rules = RuleBase(NETWORK, 3)
    for edges in trees:
        rules.add(mask_of(edges))
    return Loads(description("lab", 1, rules, 0))


@pytest.mark.parametrize("trees", [(), ([0, 2, 3],)])
def test_a_packet_travels_each_link_once(trees: tuple[list[int], ...]) -> None:
    one = loads(*trees)
    assert sorted(one.links(SetLoad("a", ("b", "c"), 5, 500))) == ["a-s0", "s0-s1", "s1-b", "s1-c"]
    assert sorted(one.links(SetLoad("c", ("b",), 5, 500))) == ["c-s1", "s1-b"]


def test_hosts_that_labels_cannot_reach_load_nothing() -> None:
    one = loads()
    assert one.links(SetLoad("a", ("elsewhere",), 5, 500)) == ()
    assert one.links(SetLoad("elsewhere", ("a",), 5, 500)) == ()
    assert one.links(SetLoad("a", ("d",), 5, 500)) == ()


points = st.lists(st.tuples(st.integers(-1440, 0), st.integers(0, 10**12)), min_size=1, max_size=30)


@given(points)
def test_a_line_is_that_of_the_definition(found: list[tuple[int, int]]) -> None:
    count = len(found)
    xs, ys = [x for x, _ in found], [y for _, y in found]
    sums = Sums(
        count, sum(xs), sum(ys), sum(x * x for x in xs), sum(x * y for x, y in found), sum(y * y for y in ys)
    )
    slope, fit = sums.line
    if len(set(xs)) < 2:
        assert (slope, fit) == (0.0, 0.0)
        return
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    spread = sum((x - mean_x) ** 2 for x in xs)
    expected = sum((x - mean_x) * (y - mean_y) for x, y in found) / spread
    assert slope == pytest.approx(expected, rel=1e-6, abs=1e-3)
    left = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in found)
    total = sum((y - mean_y) ** 2 for y in ys)
    assert fit == pytest.approx(1 - left / total if total else 1.0, abs=1e-6)


def trend(share: float, growth: float, fit: float = 1.0, windows: int = 9) -> Trend:
    return Trend("lab", "r4-r7", share, growth, fit, windows)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (trend(0.35, 0.1), "link r4-r7 reaches 65% in 3 h at this growth"),
        (trend(0.6, 0.1), "link r4-r7 reaches 65% in 30 min at this growth"),
        (trend(0.05, 0.006), "link r4-r7 reaches 65% in 4 days at this growth"),
        (trend(0.7, -1.0), "link r4-r7 is at 70%, above 65%"),
        (trend(0.6, -0.1), ""),
        (trend(0.6, 0.0), ""),
        (trend(0.35, 0.1, fit=0.4), ""),  # it goes up and down rather
        (trend(0.35, 0.1, windows=2), ""),  # two points are always on a line
        (trend(0.0, 0.6 / FAR), ""),  # after more than a week
    ],
)
def test_what_is_said_about_a_link(one: Trend, said: str) -> None:
    assert forecast(one, 0.65) == said
    assert (hours_until(one, 0.65) is None) == (not said)
