"""A network of label switches as an operator describes it, in TOML.

limit = 40                      # rules that a switch has room for
strategy = "random"             # which trees: a name of `treecast route`. One that needs to know what is sent
                                # begins as "random", and is laid by `adapt` or advice once that is known
seed = 1
store = "trees.json"            # what must not be forgotten; seen from this file
packet_life = 1.0               # seconds
probe = 0.5                     # seconds between probes of each link between switches; 0: none are sent
adapt = 0.0                     # seconds between looks at what publishers send, for better trees; 0: never
fields = "stocks.p4"            # the fields of `advertises` and `subscribes`; seen from this file

# In the order of each switch's ports. Where they are in another order, or one of them is not used any more:
# ["s1:3", "s2:1"]
links = [["alpha", "s1"], ["s1", "s2"], ["s2", "beta"]]

[advice]                        # of `treecast pipeline`; without `kafka` none is followed
kafka = "10.0.0.1:9092"         # the Kafka face of a daemon
network = "lab"                 # the network's name in advice
every = 5.0                     # seconds between looks
dry_run = false                 # only write down what would be done
rule_writes = 1000              # that advice may cause in a minute, on all switches
missing = 0.5                   # the share of hosts that advice may know nothing of

[switches]                      # P4Runtime, running p4/virtual_trees.p4
s1 = "10.0.0.11:9559"
s2 = "unix:/run/s2.sock"

[hosts.alpha]                   # a daemon, by its --name, started with --carrier labels
control = "10.0.0.1:7671"
mac = "02:00:00:00:00:01"       # where frames without a stack shall reach it
advertises = "price > 50"       # what it will send, as a filter; trees of strategies that need to know who
subscribes = ["stock == GOOGL"] # publishes to whom are then laid at once (`advertised`)
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from treecast.middleware.dataplane.subscriptions.header_file import HeaderFileError, read_header_file
from treecast.middleware.filters.compiler.schema import SchemaError
from treecast.middleware.routing.network import Network, RoutingError, Unreachable, described, end_of
from treecast.middleware.routing.virtual.strategies import (
    NEED_KNOWLEDGE,
    STRATEGIES,
    Knowledge,
    Strategy,
    install,
)

from ..advice.place import AdvicePlace
from ..macs import mac_of
from .advertised import Relations, knowledge, related
from .wires import Named

FIRST: Final = "random"  # the strategy until it is known what publishers send


class HostPlace(msgspec.Struct, forbid_unknown_fields=True):
    """A host. If `control` is empty, it publishes nothing."""

    control: str = ""
    mac: str = ""
    advertises: str = ""
    subscribes: list[str] = []


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the file, as documented in the module."""

    links: list[tuple[str, str]]
    switches: dict[str, str]
    hosts: dict[str, HostPlace] = {}
    limit: int = 40
    strategy: str = "random"
    seed: int = 1
    store: str = "trees.json"
    packet_life: float = 1.0
    probe: float = 0.5
    adapt: float = 0.0
    fields: str = ""
    advice: AdvicePlace = AdvicePlace()


class Described(File):
    """The file, and how the advertisements in it stand to the subscriptions."""

    relations: Relations = {}

    def network(self) -> Network:
        """Returns the network. Raises RoutingError if a link names an unknown node, or a host connects to no
        switch.
        """
        return described(self.switches, self.hosts, self.links)

    def chosen(self) -> Strategy:
        """Returns the strategy of the trees at first. Raises RoutingError for an unknown one, and for one
        that needs knowledge of what publishers send where nothing would ever bring it.
        """
        known = [name for name in STRATEGIES if name not in NEED_KNOWLEDGE]
        if self.strategy not in STRATEGIES:
            raise RoutingError(f"no strategy {self.strategy!r}; there are {', '.join(STRATEGIES)}")
        if self.strategy in NEED_KNOWLEDGE and not self.learns and not self.advertised:
            raise RoutingError(
                f"strategy {self.strategy!r} needs knowledge of what publishers send, which `adapt` or"
                f" [advice] brings: set one of them or `advertises`, or choose {', '.join(known)}"
            )
        unknown = self.strategy in NEED_KNOWLEDGE and not self.advertised
        return STRATEGIES[FIRST if unknown else self.strategy]

    @property
    def advertised(self) -> bool:
        """Whether some host says what it will send."""
        return bool(self.relations)

    @property
    def learns(self) -> bool:
        """Whether it becomes known what publishers send."""
        return bool(self.adapt or self.advice.kafka)

    @property
    def learned(self) -> str:
        """The strategy that trees are laid by once it is known what publishers send; empty: the best one."""
        return self.strategy if self.strategy in NEED_KNOWLEDGE else ""

    def trees(self, network: Network) -> list[int]:
        """Returns the strategy's trees, as far as there is room. Raises RoutingError as `chosen` does, and
        Unreachable if a strategy for the whole network finds it in parts.
        """
        rng = Random(self.seed)
        known = knowledge(network, self.relations, rng) if self.advertised else Knowledge()
        rules = install(network, self.limit, self.chosen(), known, rng)
        return list(rules.trees.values())

    def trees_around(self, network: Network) -> list[int]:
        """Returns trees for a network whose links are not all up: while it is in parts, a strategy for the
        whole network gives way to `broadcast`, which makes trees in each part.
        """
        broadcast = replace(self, strategy="broadcast")
        in_parts = len({network.part[host] for host in network.hosts}) > 1 and self.strategy != "hops"
        try:
            return self.trees(network) or (broadcast.trees(network) if in_parts else [])
        except Unreachable:
            return broadcast.trees(network)

    def remark(self, trees: list[int]) -> str:
        """Returns a remark for the operator about the trees; empty if there is none."""
        if trees and self.learned and not self.advertised:
            return (
                f"strategy {self.strategy!r} begins with the trees of {FIRST!r}, until it is known what"
                " publishers send"
            )
        if trees or self.strategy == "hops":
            return ""
        if self.advertised and self.strategy in NEED_KNOWLEDGE:
            return f"strategy {self.strategy!r} finds no tree: no advertisement matches a subscription"
        return (
            f"strategy {self.strategy!r} finds no tree here with room for {self.limit} rules in a switch:"
            " stacks will name every link by a hop; try broadcast or random, or a higher limit"
        )

    def macs(self, network: Network) -> dict[int, int]:
        """Returns hosts' MAC addresses, by node. Raises RoutingError for an invalid address."""
        return {network.node(name): mac_of(host.mac) for name, host in self.hosts.items() if host.mac}

    def check(self) -> Network:
        """Returns the network. Raises RoutingError for anything that is wrong, before a switch is written."""
        network = self.network()
        self.chosen()
        self.macs(network)
        return network

    def named(self) -> Named:
        """Returns the ends of links whose ports are written with them."""
        places = {*self.switches, *self.hosts}
        found = set()
        for link in self.links:
            ends = [end_of(text, places) for text in link]
            name = frozenset(node for node, _ in ends)
            found |= {(name, node) for node, port in ends if port}
        return frozenset(found)

    def controls(self) -> dict[str, str]:
        """Returns the control addresses of publishers, by name."""
        return {name: host.control for name, host in self.hosts.items() if host.control}


def read(path: Path) -> Described:
    """Reads the file, and the one with the fields of filters that it names. Raises OSError, or RoutingError
    with the error in them.
    """
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=File)
    except msgspec.DecodeError as error:
        raise RoutingError(f"{path}: {error}") from error
    return Described(**asdict(file), relations=_relations(path.parent, file))


def _relations(folder: Path, file: File) -> Relations:
    sends = {name: host.advertises for name, host in file.hosts.items() if host.advertises}
    if not sends:
        return {}
    if not file.fields:
        raise RoutingError("`advertises` needs `fields`: a file that describes the fields of filters")
    beside = folder / file.fields
    try:
        schema = read_header_file(beside.read_text("utf-8"), str(beside))
    except (HeaderFileError, SchemaError, UnicodeDecodeError) as error:
        raise RoutingError(f"{beside}: {error}") from error
    return related(schema, sends, {name: host.subscribes for name, host in file.hosts.items()})
