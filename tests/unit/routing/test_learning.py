"""Trees learned from observed notifications: never worse for these, within the limit, and with rising ids."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, receivers_of
from tests.unit.routing.test_virtual import delivered, random_rules

from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import Network, build
from treecast.middleware.routing.virtual.choice import measure, relearn
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.learning import held_out, learn, pieces
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import Request, request

SEEDS = st.integers(0, 10**6)


def observed(network: Network, rng: Random, count: int) -> list[Request]:
    return [request(network, *receivers_of(network, rng)) for _ in range(count)]


@settings(max_examples=25, deadline=None)
@given(networks(9), SEEDS, st.integers(1, 4))
def test_learned_trees(network: Network, seed: int, limit: int) -> None:
    rng = Random(seed)
    start, sample = random_rules(network, rng, limit), observed(network, rng, 8)
    before = dict(start.trees)
    found = learn(network, start, sample, rng)
    assert start.trees == before
    found.rules.check_invariants()
    assert found.before == measure(network, start, sample)
    assert found.after <= found.before
    assert all(before.get(number, edges) == edges for number, edges in found.rules.trees.items())
    assert all(number >= start.next for number in found.rules.trees.keys() - before.keys())
    encoder = Encoder(network, found.rules)
    for asked in sample:
        encoding = encoder.encode(asked)
        receivers = members(asked.receivers)
        assert delivered(network, found.rules, asked.start, receivers, encoding) == []


def test_what_is_sent_again_and_again_becomes_a_tree() -> None:
    """On a line of eight, frequent notifications from one end to the other then need one label."""
    line = build([f"n{i}" for i in range(8)], [(i, i + 1) for i in range(7)])
    sample = [request(line, 0, [7])] * 9
    found = learn(line, RuleBase(line, 1), sample, Random(1))
    assert (found.before, found.after) == (7.0, 1.0)
    assert list(found.rules.trees.values()) == [0b1111111]
    update = relearn(RuleBase(line, 1), sample, Random(1))
    assert update is not None
    assert list(update.rules.trees.values()) == [0b1111111]
    assert relearn(found.rules, sample, Random(1)) is None
    assert relearn(found.rules, [], Random(1)) is None


def test_a_tree_that_nobody_uses_makes_room() -> None:
    line = build([f"n{i}" for i in range(8)], [(i, i + 1) for i in range(7)])
    full = RuleBase(line, 1)
    full.add(0b11)
    found = learn(line, full, [request(line, 0, [7])] * 3, Random(1))
    assert list(found.rules.trees.values()) == [0b1111111]
    assert min(found.rules.trees) > 1


def test_pieces_and_halves() -> None:
    line = build([f"n{i}" for i in range(8)], [(i, i + 1) for i in range(7)])
    assert sorted(pieces(line, 0b1101011)) == [0b11, 0b1100000]
    one = request(line, 0, [1])
    learned_from, judged_by = held_out([one] * 7)
    assert (len(learned_from), len(judged_by)) == (5, 2)
