"""Advertisements and subscriptions in the tree manager's file: who matches whom, and which trees follow."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from treecast.middleware.control.trees.advertised import knowledge, related, told
from treecast.middleware.control.trees.description import read
from treecast.middleware.dataplane.subscriptions.header_file import read_header_file
from treecast.middleware.filters.compiler.relations import Match
from treecast.middleware.routing.network import RoutingError
from treecast.middleware.routing.steiner.common import nodes_of

FIELDS = """
header order {
    bit<32> price;
    bit<64> stock;
}
@pragma query_field(order.price)
@pragma query_field_exact(order.stock)
"""
SCHEMA = read_header_file(FIELDS)
SENDS = {"alpha": "price > 50 and price < 90", "delta": "stock == GOOGL"}
WANTS = {
    "alpha": ["price < 5"],
    "beta": ["price > 10"],
    "gamma": ["price > 60"],
    "delta": ["price < 20", "price > 95"],
}
FILE = """
strategy = "{strategy}"
fields = "order.p4"
limit = 10
links = [
    ["alpha", "s1"], ["beta", "s2"], ["gamma", "s3"], ["delta", "s4"],
    ["s1", "s2"], ["s2", "s3"], ["s3", "s4"],
]
[switches]
s1 = "a"
s2 = "b"
s3 = "c"
s4 = "d"
[hosts.alpha]
advertises = "price > 50 and price < 90"
[hosts.beta]
subscribes = ["price > 10"]
[hosts.gamma]
subscribes = ["price > 60"]
[hosts.delta]
subscribes = ["price < 20", "price > 95"]
"""


def file(folder: Path, text: str) -> Path:
    (folder / "order.p4").write_text(FIELDS)
    (folder / "net.toml").write_text(text)
    return folder / "net.toml"


def test_each_publisher_is_matched_with_what_each_other_host_wants() -> None:
    found = related(SCHEMA, SENDS, WANTS)
    assert found["alpha"] == {"beta": Match.PERMANENT, "delta": Match.NONE, "gamma": Match.POTENTIAL}
    assert set(found["delta"].values()) == {Match.POTENTIAL}
    assert "delta" not in found["delta"]
    assert told(found)[0] == "advertised alpha permanent=beta potential=gamma none=delta"


def test_several_subscriptions_of_a_host_are_one() -> None:
    """None of them has all prices; together they do."""
    found = related(SCHEMA, {"a": "price >= 0"}, {"b": ["price < 50", "price >= 50"]})
    assert found == {"a": {"b": Match.PERMANENT}}


@pytest.mark.parametrize(("strategy", "reached"), [("path", {"beta"}), ("tree", {"beta", "gamma"})])
def test_trees_lead_to_permanent_matches_or_to_potential_ones_too(
    strategy: str, reached: set[str], tmp_path: Path
) -> None:
    described = read(file(tmp_path, FILE.format(strategy=strategy)))
    network = described.check()
    trees = described.trees(network)
    first = nodes_of(network, trees[0])
    hosts = {network.names[node] for node in network.hosts if first >> node & 1}
    assert hosts == {"alpha"} | reached
    assert described.remark(trees) == ""


def test_an_advertisement_that_nobody_wants_makes_no_tree(tmp_path: Path) -> None:
    text = FILE.format(strategy="relation").replace("price > 50 and price < 90", "price > 20 and price < 30")
    text = text.replace('["price > 10"]', '["price > 95"]')
    described = read(file(tmp_path, text))
    assert described.trees(described.check()) == []
    assert "no advertisement matches" in described.remark([])
    assert told(described.relations) == ["advertised alpha none=beta,delta,gamma (no tree)"]
    assert knowledge(described.network(), described.relations, Random(1)).subscribers == {}


WRONG = [
    ("price > 50 and price < 90", "price >", "host 'alpha', advertises"),
    ("price > 10", "size > 10", "what 'alpha' advertises and 'beta' subscribes"),
    ('fields = "order.p4"', "", "`advertises` needs `fields`"),
    ("price > 10", "price > 10" + " " * 300_000, "host 'beta', subscribes: a filter of"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_what_is_wrong_is_said_with_the_host(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = file(tmp_path, FILE.format(strategy="tree").replace(old, new))
    with pytest.raises(RoutingError, match=said):
        read(path)


def test_a_strategy_that_needs_to_know_needs_no_adapt_where_hosts_advertise(tmp_path: Path) -> None:
    described = read(file(tmp_path, FILE.format(strategy="tree")))
    assert not described.learns
    described.check()
    silent = FILE.format(strategy="tree").replace('advertises = "price > 50 and price < 90"', "")
    with pytest.raises(RoutingError, match="`adapt` or"):
        read(file(tmp_path, silent)).check()
