"""From one rule base to another while packets are in flight: make before break.

New rules come first, then publishers are told. Old rules are removed only when all have acknowledged and
twice the longest life of a packet has passed. So a packet meets the rules that its publisher knew. Ids of
removed trees are never reused. If old and new trees together exceed the limit, the new trees that fit are
installed first, old ones are removed, and the others follow: a named tree always exists.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from ..bits import members
from ..network import Network
from .rules import RuleBase


class StepKind(enum.Enum):
    """The action of a step; each waits for the one before."""

    INSTALL = "write rules to switches"
    ANNOUNCE = "tell publishers which trees there are, and wait until all have acknowledged"
    DRAIN = "wait for twice the longest life of a packet"
    REMOVE = "take rules from switches"


class SwitchRule(Struct, frozen=True):
    """One rule: a tree's outgoing links at a switch."""

    switch: int
    tree: int
    links: tuple[int, ...]


class Step(Struct, frozen=True):
    """`rules` of install and remove; `trees` (id to edges) are those that publishers may use once told, or
    that are installed.
    """

    kind: StepKind
    rules: tuple[SwitchRule, ...] = ()
    trees: dict[int, int] = {}


class Plan(Struct, frozen=True):
    """The steps, and the resulting rule base."""

    steps: tuple[Step, ...]
    rules: RuleBase


def switch_rules(network: Network, number: int, edges: int) -> list[SwitchRule]:
    """Returns the rules of one tree, one per switch on it."""
    alone = RuleBase(network, 1)
    alone.trees[number] = edges
    return [
        SwitchRule(switch, number, tuple(members(alone.links(switch, number))))
        for switch in alone.switches(edges)
    ]


def plan(current: RuleBase, wanted: list[int]) -> Plan:
    """Returns the steps to a rule base with these trees (edges as bits, in order of preference).

    Trees that stay keep their ids. `current` is not changed. Trees that do not fit are left out.
    """
    rules = current.copy()
    stays = set(wanted)
    leaving = {number: edges for number, edges in rules.trees.items() if edges not in stays}
    steps: list[Step] = []
    usable = {number: edges for number, edges in rules.trees.items() if number not in leaving}
    early = _install(rules, wanted, steps)
    usable.update(early)
    if early or leaving:
        steps.append(Step(StepKind.ANNOUNCE, trees=dict(usable)))
    if leaving:
        steps.append(Step(StepKind.DRAIN))
        gone: list[SwitchRule] = []
        for number, edges in leaving.items():
            gone += switch_rules(rules.network, number, edges)
            rules.remove(number)
        steps.append(Step(StepKind.REMOVE, tuple(gone)))
        late = _install(rules, wanted, steps)
        usable.update(late)
        if late:
            steps.append(Step(StepKind.ANNOUNCE, trees=dict(usable)))
    return Plan(tuple(steps), rules)


def _install(rules: RuleBase, wanted: list[int], steps: list[Step]) -> dict[int, int]:
    """Installs the trees that fit. Returns the new ones."""
    added: dict[int, int] = {}
    written: list[SwitchRule] = []
    for edges in wanted:
        number = rules.offer(edges)
        if number:
            added[number] = edges
            written += switch_rules(rules.network, number, edges)
    if written:
        steps.append(Step(StepKind.INSTALL, tuple(written), dict(added)))
    return added
