"""Make before break: a packet is delivered once, whatever its publisher knew when it sent."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, receivers_of
from tests.unit.routing.test_virtual import RING, random_rules

from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.forwarding import faults, simulate
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import LabelForwarder, request
from treecast.middleware.routing.virtual.update import StepKind, SwitchRule, plan, switch_rules


class InPlace:
    """Rules on switches, written and removed one by one."""

    def __init__(self, rules: RuleBase) -> None:
        self.rules = {
            (rule.switch, rule.tree): mask_of(rule.links)
            for number, edges in rules.trees.items()
            for rule in switch_rules(rules.network, number, edges)
        }

    def links(self, switch: int, number: int) -> int:
        return self.rules.get((switch, number), 0)

    def write(self, rule: SwitchRule) -> None:
        assert (rule.switch, rule.tree) not in self.rules
        self.rules[rule.switch, rule.tree] = mask_of(rule.links)

    def remove(self, rule: SwitchRule) -> None:
        assert self.rules.pop((rule.switch, rule.tree)) == mask_of(rule.links)

    def most(self, network: Network) -> int:
        return max(sum(switch == node for switch, _ in self.rules) for node in range(network.node_count))


@settings(max_examples=40)
@given(networks(10, least=4), st.integers(0, 10**6), st.integers(1, 4))
def test_no_packet_is_lost_or_doubled_at_any_moment(network: Network, seed: int, limit: int) -> None:
    rng = Random(seed)
    before, after = random_rules(network, rng, limit), random_rules(network, rng, limit)
    found = plan(before, list(after.trees.values()))
    found.rules.check_invariants()
    place, known = InPlace(before), [dict(before.trees)]
    source, receivers = receivers_of(network, rng)

    def check() -> None:
        """Checks every version with which a packet in flight may have been made."""
        for trees in known:
            version = RuleBase(network, limit)
            version.trees = trees
            labels = Encoder(network, version).encode(request(network, source, receivers)).labels
            outcome = simulate(network, LabelForwarder(network, place), source, labels)
            assert faults(network, source, receivers, outcome) == []

    for step in found.steps:
        if step.kind is StepKind.ANNOUNCE:
            known.append(step.trees)
        elif step.kind is StepKind.DRAIN:
            del known[:-1]
        for rule in step.rules:
            place.write(rule) if step.kind is StepKind.INSTALL else place.remove(rule)
            assert place.most(network) <= limit
        check()
    assert place.rules == InPlace(found.rules).rules
    assert known[-1] == found.rules.trees


@settings(max_examples=40)
@given(networks(10, least=4), st.integers(0, 10**6))
def test_ids_never_come_back(network: Network, seed: int) -> None:
    rng = Random(seed)
    rules = RuleBase(network, 3)
    seen: dict[int, int] = {}
    for _ in range(4):
        rules = plan(rules, list(random_rules(network, rng, 3).trees.values())).rules
        for number, edges in rules.trees.items():
            assert seen.setdefault(number, edges) == edges


def test_the_order_of_steps() -> None:
    rules = RuleBase(RING, 1)
    rules.add(0b00011)
    same = plan(rules, [0b00011])
    assert same.steps == ()
    full = plan(rules, [0b00111])  # no room for it beside the old one
    kinds = [step.kind for step in full.steps]
    assert kinds == [StepKind.ANNOUNCE, StepKind.DRAIN, StepKind.REMOVE, StepKind.INSTALL, StepKind.ANNOUNCE]
    assert full.steps[0].trees == {}
    assert full.rules.trees == {2: 0b00111}
    assert rules.trees == {1: 0b00011}
    beside = plan(rules, [0b11000])
    assert [step.kind for step in beside.steps] == [
        StepKind.INSTALL,
        StepKind.ANNOUNCE,
        StepKind.DRAIN,
        StepKind.REMOVE,
    ]
