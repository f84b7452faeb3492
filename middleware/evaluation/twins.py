"""Every scheme twice: the graph-level model of its switches, and its P4 program with the same content."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from ..control.switches import SwitchState
from ..control.trees import states
from ..dataplane.p4files import load_file
from ..routing.forwarding import Outcome, simulate
from ..routing.network import Network, RoutingError
from ..routing.schemes.destinations import Destinations
from ..routing.schemes.hops import Hops
from ..routing.schemes.mixed import Ability, Mixed
from ..routing.schemes.stored import Hybrid
from ..routing.schemes.switch_bitmask import SwitchBitmask
from ..routing.schemes.switch_group import SwitchGroup
from ..routing.schemes.switch_port import SwitchPort
from ..routing.virtual.rules import RuleBase
from ..routing.virtual.stacks import LabelForwarder
from ..wire.label_stack import encode_labels
from .switched import Carried, SwitchedNetwork

# Beside the packages, in a checkout of the project.
PROGRAMS = Path(__file__).resolve().parents[2] / "p4"
FRAME = bytes.fromhex("030000009999 020000000001 9999")


@cache
def switched(program: str) -> SwitchedNetwork:
    """Returns switches that run a program; one shared set, as creating a switch takes longer than sending
    through it.

    Raises RoutingError if there are no programs.
    """
    path = PROGRAMS / f"{program}.p4"
    if not path.exists():
        raise RoutingError(f"{path} is not there: run this in a checkout of the project")
    return SwitchedNetwork(load_file(path))


class Twin(Struct):
    """A model, its program, the state of a switch, and a stack as bytes."""

    program: str
    model: Any
    state: Callable[[int], SwitchState]
    encoded: Callable[[Any], bytes]


def entry_twins(network: Network, rng: Random) -> dict[str, Twin]:
    """Returns the twins of chapters 3 and 4, except those with stored trees."""
    groups, subsets = SwitchGroup(network), SwitchGroup(network, subsets=2)
    abilities = {switch: _ability(network, switch, rng) for switch in network.switches}
    destinations = Destinations(network)
    found: dict[str, tuple[str, Any, Callable[[int], SwitchState]]] = {
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
        "destinations": ("destinations", destinations, lambda s: states.destinations(destinations, s)),
    }
    return {
        name: Twin(program, model, state, model.form.encode)
        for name, (program, model, state) in found.items()
    }


def _ability(network: Network, switch: int, rng: Random) -> Ability:
    ports = len(network.out[switch])
    groups = {number: rng.randrange(1, 1 << ports) for number in range(1, 4)}
    return Ability(bitmask=rng.random() < 0.5, groups=groups if rng.random() < 0.7 else None)


def hybrid_twin(network: Network, model: Hybrid) -> Twin:
    """Returns the twin of publishers' present stored trees."""
    clean_up = model.switches.clean_up
    return Twin(
        "hybrid",
        model,
        lambda s: states.labels(network, s, model.stored, model.stored.trees, clean_up=clean_up),
        encode_labels,
    )


def virtual_twin(network: Network, rules: RuleBase, *, clean_up: bool = False) -> Twin:
    """Returns the twin of virtual trees."""
    return Twin(
        "virtual_trees",
        LabelForwarder(network, rules, clean_up=clean_up),
        lambda s: states.labels(network, s, rules, rules.trees, clean_up=clean_up),
        encode_labels,
    )


class Recorded:
    """A model that records each copy as (link, stack), and the passes that a P4 switch needs for it.

    That is one per look-up, and one for a packet without entries.
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


class Sent(Struct):
    """One stack sent both ways. `differences` are empty if nothing that can be seen differs."""

    outcome: Outcome
    carried: Carried
    differences: list[str]


def send(network: Network, twin: Twin, source: int, stack: Any, payload: bytes) -> Sent:
    """Returns every copy on every link to its last byte, the passes of every switch, and recirculations."""
    recorded = Recorded(twin.model)
    outcome = simulate(network, recorded, source, stack, payload=len(payload))
    run = switched(twin.program)
    run.become(network, {switch: twin.state(switch) for switch in network.switches})
    carried = run.send(source, FRAME + twin.encoded(stack) + payload)
    sent = Sent(outcome, carried, [])
    if outcome.looped != carried.looped:
        sent.differences.append("one of them goes round")
    if not outcome.looped:  # else both were cut off somewhere
        copies = list(recorded.copies)
        if network.is_host[source]:
            copies.append((network.out[source][0], stack))
        frames = [(link, FRAME + twin.encoded(its) + payload) for link, its in copies]
        sent.differences += _differences(network, recorded, outcome, carried, frames)
    return sent


def _differences(
    network: Network, model: Recorded, outcome: Outcome, carried: Carried, frames: list[tuple[int, bytes]]
) -> list[str]:
    expected: dict[int, list[bytes]] = {}
    for link, frame in frames:
        expected.setdefault(link, []).append(frame)
    found = []
    for link in sorted({*expected, *carried.frames}):
        one, two = sorted(carried.frames.get(link, [])), sorted(expected.get(link, []))
        if one != two:
            found.append(f"{network.link_name(link)}: {_hex(one)}, and the model {_hex(two)}")
    found += [f"{network.names[s]} sent to port {port}, where no link is" for s, port in carried.astray]
    pairs = {
        "packets": (carried.packets, outcome.packets),
        "bytes": (carried.bytes, outcome.bytes),
        "passes": (carried.passes, model.passes),
        "recirculations": (carried.recirculations, sum(model.passes.values()) - model.calls),
    }
    unequal = [(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    return [*found, *(f"{name}: {seen}, and the model {said}" for name, seen, said in unequal)]


def _hex(frames: list[bytes]) -> str:
    return " ".join(frame.hex() for frame in frames) or "nothing"
