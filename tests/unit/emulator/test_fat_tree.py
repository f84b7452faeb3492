"""A fat tree of 20 emulated switches with 16 hosts, whose subscriptions come and go: `camus-fat-tree` in a
short form."""

from __future__ import annotations

from random import Random

import pytest

from treecast.middleware.evaluation.camus.live_tree import LiveTree, Order, churn, settled
from treecast.middleware.filters.parse import parse
from treecast.middleware.routing.fat_tree import Policy


@pytest.mark.parametrize(
    ("policy", "alpha"), [(Policy.MEMORY, 1), (Policy.TRAFFIC, 1), (Policy.TRAFFIC, 100)]
)
def test_nobody_misses_a_message_while_subscriptions_come_and_go(policy: Policy, alpha: int) -> None:
    tree, rng = LiveTree(4, policy, alpha), Random(alpha)
    assert (len(tree.hierarchy.layers), len(tree.wanted)) == (20, 16)
    churn(tree, 8, rng, every=25)
    account = tree.account
    assert (account.missed, account.unwanted, account.doubled) == (0, 0, 0)
    assert account.wanted > 20


def test_links_carry_only_what_somebody_behind_them_wants() -> None:
    tree = LiveTree(4, Policy.TRAFFIC, 1)
    tree.subscribe(15, parse("order.stock == S1 and order.price > 500"))
    for _ in tree.change():
        pass
    for order, copies in ((Order("S1", 501, 1), 6), (Order("S1", 500, 2), 1), (Order("S2", 501, 3), 1)):
        tree.account.copies = 0
        tree.check(0, order, tree.wanted)
        assert tree.account.copies == copies  # up three links and down three, or to the first switch only
    assert (tree.account.missed, tree.account.unwanted) == (0, 0)


def test_after_a_failure_packets_take_the_links_that_are_left() -> None:
    tree, rng = LiveTree(4, Policy.TRAFFIC, 1), Random(5)
    churn(tree, 4, rng, every=100)
    tree.fail(0, 8)
    tree.fail(9, 18)
    settled(tree, 60, rng)
    assert (tree.account.missed, tree.account.unwanted, tree.account.doubled) == (0, 0, 0)
    gone = {
        tree.network.link(0, 8),
        tree.network.link(8, 0),
        tree.network.link(9, 18),
        tree.network.link(18, 9),
    }
    for host in range(16):
        for stock in ("S0", "S1"):
            assert not gone & tree.emulated.send(20 + host, Order(stock, 999, 0).to_bytes()).frames.keys()


def test_the_check_sees_what_is_wrong() -> None:
    tree = LiveTree(4, Policy.MEMORY, 1)
    tree.subscribe(3, parse("order.price > 5"))
    tree.check(0, Order("S0", 9, 1), tree.wanted)  # before any write
    assert tree.account.missed == 1
    for _ in tree.change():
        pass
    tree.wanted[3].clear()
    tree.check(0, Order("S0", 9, 2), tree.wanted)
    assert (tree.account.missed, tree.account.unwanted) == (1, 1)
