"""An explanation of a stack in words: the place of use of each label, the load of each link."""

from __future__ import annotations

from msgspec import Struct

from ...wire.label_stack import LabelKind, id_of, kind_of
from ..bits import members
from ..forwarding import Outcome, simulate
from ..network import Network
from .rules import RuleBase
from .stacks import LabelForwarder


class LabelUse(Struct, frozen=True):
    """A label, and the switches where it made or stopped a copy."""

    position: int
    kind: str
    number: int
    meaning: str
    switches: tuple[str, ...]


class LinkUse(Struct, frozen=True):
    """A link that a packet went over, with the labels that it carried there."""

    tail: str
    head: str
    port: int
    labels: int
    bytes: int


class _Recorder(LabelForwarder):
    """Switches that note which labels they used, and how many each copy carried."""

    def __init__(self, network: Network, rules: RuleBase, labels: list[int]) -> None:
        super().__init__(network, rules)
        self.base = rules
        self.used: dict[int, set[int]] = {label: set() for label in labels}
        self.carried: dict[int, int] = {}

    def forward(self, switch: int, arrived: int, stack: list[int]) -> tuple[list[tuple[int, list[int]]], int]:
        copies, lookups = super().forward(switch, arrived, stack)
        sent = 0
        for link, its in copies:
            self.carried[link] = len(its)
            sent |= 1 << link
        for label in stack:
            if self._uses(switch, arrived, label, sent):
                self.used[label].add(switch)
        return copies, lookups

    def _uses(self, switch: int, arrived: int, label: int, sent: int) -> bool:
        kind, number = kind_of(label), id_of(label)
        if kind == LabelKind.TREE:
            return bool(self.base.links(switch, number) & sent)
        if kind == LabelKind.HOP:
            return bool(sent >> number & 1)
        return bool(self.network.link_masks[switch] >> number & 1) and arrived != number ^ 1


def explain(
    network: Network, rules: RuleBase, source: int, labels: list[int]
) -> tuple[list[LabelUse], list[LinkUse], Outcome]:
    """Returns the effects of a stack, label by label and link by link, and its outcome."""
    recorder = _Recorder(network, rules, labels)
    outcome = simulate(network, recorder, source, labels)
    uses = [
        LabelUse(
            position,
            LabelKind(kind_of(label)).name.lower(),
            id_of(label),
            _meaning(network, rules, label),
            tuple(network.names[switch] for switch in sorted(recorder.used[label])),
        )
        for position, label in enumerate(labels)
    ]
    links = [
        LinkUse(
            network.names[network.tails[link]],
            network.names[network.heads[link]],
            network.ports[link],
            recorder.carried.get(link, len(labels)),
            amount,
        )
        for link, amount in outcome.link_bytes.items()
    ]
    return uses, links, outcome


def _meaning(network: Network, rules: RuleBase, label: int) -> str:
    kind, number = kind_of(label), id_of(label)
    if kind == LabelKind.TREE:
        return f"virtual tree of {len(members(rules.trees.get(number, 0)))} edges"
    return network.link_name(number)
