"""From one rule base to another while packets are on their way: make before break.

New rules first, then publishers are told, and only when all have acknowledged and twice the longest life of a
packet has passed are old rules removed. So a packet meets the rules that its publisher knew. Ids of removed
trees never come back. Where old and new trees do not fit together under the limit, those new trees that do
are installed first, old ones go, the others follow: at no time is a tree named that is not there.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from ..bits import members
from ..network import Network
from .rules import RuleBase


class StepKind(enum.Enum):
    """What a step does; each waits for the one before."""

    INSTALL = "write rules to switches"
    ANNOUNCE = "tell publishers which trees there are, and wait until all have acknowledged"
    DRAIN = "wait for twice the longest life of a packet"
    REMOVE = "take rules from switches"


class SwitchRule(Struct, frozen=True):
    """One rule: at a switch, the links of a tree by which packets go on."""

    switch: int
    tree: int
    links: tuple[int, ...]


class Step(Struct, frozen=True):
    """`rules` of install and remove; `trees` (id to edges) is what publishers may use once told, or what is
    installed."""

    kind: StepKind
    rules: tuple[SwitchRule, ...] = ()
    trees: dict[int, int] = {}


class Plan(Struct, frozen=True):
    """The steps, and the rule base at their end."""

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
    """Returns the steps from a rule base to one with these trees (edges as bits), in the order of preference.

    Trees that stay keep their ids. `current` is not changed. What does not fit at the end is left out.
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
    """Installs what fits; the new trees."""
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
