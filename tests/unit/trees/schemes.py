"""Every scheme twice: the graph-level model of its switches, and its P4 program with what they hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from msgspec import Struct
from tests.unit.trees.test_vectors import PROGRAMS

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.control.trees import states
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.evaluation.switched import SwitchedNetwork
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.schemes.destinations import Destinations
from treecast.middleware.routing.schemes.hops import Hops
from treecast.middleware.routing.schemes.mixed import Ability, Mixed
from treecast.middleware.routing.schemes.switch_bitmask import SwitchBitmask
from treecast.middleware.routing.schemes.switch_group import SwitchGroup
from treecast.middleware.routing.schemes.switch_port import SwitchPort
from treecast.middleware.wire.label_stack import encode_labels

FRAME = bytes.fromhex("030000009999 020000000001 9999")
PAYLOAD = b"what is carried"


@cache
def switched(program: str) -> SwitchedNetwork:
    """One network of switches for all examples: making a switch takes longer than sending through it."""
    return SwitchedNetwork(load_file(PROGRAMS / f"{program}.p4"))


class Scheme(Struct):
    """A model, its program, what a switch holds, and a stack as bytes."""

    program: str
    model: Any
    state: Callable[[int], SwitchState]
    encoded: Callable[[Any], bytes]


def entry_schemes(network: Network, rng: Random) -> dict[str, Scheme]:
    """Chapters 3 and 4, but for those with stored trees."""
    groups, subsets = SwitchGroup(network), SwitchGroup(network, subsets=2)
    abilities = {switch: _ability(network, switch, rng) for switch in network.switches}
    found = {
        "predictive": ("switch_port", SwitchPort(network), lambda s: states.switch_port(network, s)),
        "reactive": (
            "switch_port",
            SwitchPort(network, predictive=False),
            lambda s: states.switch_port(network, s, predictive=False),
        ),
        "bitmask": ("switch_bitmask", SwitchBitmask(network), lambda s: states.switch_bitmask(network, s)),
        "group": ("switch_mcgroup", groups, lambda s: states.switch_mcgroup(groups, s)),
        "group, 2": ("switch_mcgroup", subsets, lambda s: states.switch_mcgroup(subsets, s)),
        "mixed": ("mixed", Mixed(network, abilities), lambda s: states.mixed(network, s, abilities[s])),
        "hops": ("hops", Hops(network), lambda s: states.hops(network, s)),
    }
    destinations = Destinations(network)
    found["destinations"] = ("destinations", destinations, lambda s: states.destinations(destinations, s))
    return {
        name: Scheme(program, model, state, model.form.encode)
        for name, (program, model, state) in found.items()
    }


def _ability(network: Network, switch: int, rng: Random) -> Ability:
    ports = len(network.out[switch])
    groups = {number: rng.randrange(1, 1 << ports) for number in range(1, 4)}
    return Ability(bitmask=rng.random() < 0.5, groups=groups if rng.random() < 0.7 else None)


def label_scheme(program: str, network: Network, model: Any, state: Callable[[int], SwitchState]) -> Scheme:
    return Scheme(program, model, state, encode_labels)


class Recorded:
    """A model that notes each copy as (link, stack), and what a switch of P4 has to do for it in passes.

    That is one per look-up, and one for a packet that comes without entries.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.copies: list[tuple[int, Any]] = []
        self.passes: dict[int, int] = {}
        self.calls = 0

    def size(self, stack: Any) -> int:
        size: int = self.model.size(stack)
        return size

    def forward(self, switch: int, arrived: int, stack: Any) -> tuple[list[tuple[int, Any]], int]:
        copies, lookups = self.model.forward(switch, arrived, stack)
        self.copies += copies
        self.calls += 1
        self.passes[switch] = self.passes.get(switch, 0) + max(1, lookups)
        return copies, lookups
