"""Brings the label switches of a network from one rule base to the next, make before break.

  manager = TreeManager(network, switches, publishers, store, limit=40)
  await manager.start()                # switches get their state, read back; publishers are told
  await manager.update(wanted trees)   # rules in, publishers told, packets drained, rules out
  manager.mark(links that are down)    # the next update leaves them: unicast and trees go other ways
  manager.become(another network, ..)  # the next update brings it about: links are known by names (`wires`)

No tree is announced before every switch on it has been read back, and no link before the switches at its
ends were. None is removed before every publisher has acknowledged a version without it and twice the longest
life of a packet has passed. A failed step is not skipped: `update` raises, everything written stays, and the
next call, or `start` of a manager with the same store, continues from there. But nobody waits for others:
trees that only others need are announced although a switch failed, and to the publishers that answer although
one does not. What is left of old trees goes when all have answered.

Ids are stored before they are written to a switch, whichever process dies when, so that a tree that a switch
may hold is never given another's id. Ids rise; when all have been used, those that nobody holds come again.
Rules that a switch has of trees that the store does not know of are kept until the same point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import chain
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from treecast.middleware.control.links.ways import Towards, ways
from treecast.middleware.control.switches import EntryKey, SwitchState
from treecast.middleware.dataplane.p4 import Entry, ExactMatch
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.virtual.rules import RuleBase, tree_links
from treecast.middleware.wire.label_stack import LAST_ID

from . import states
from .probing import controller_id
from .wires import Named, Wire, Wires, allotted, listed, numbered_by, wires_of

_log = Log(__name__)

_TREES: Final = "LabelIngress.trees"
_ID: Final = "hdr.label.id"


class Switch(Protocol):
    """One switch, for example `control.links.sessions.LastingSession`."""

    @property
    def open(self) -> bool:
        """Whether it can be asked now. Nobody waits for one that cannot."""

    async def read(self) -> SwitchState: ...

    async def bring_to(self, desired: SwitchState) -> int:
        """Brings the switch to `desired`; returns the number of writes. Raises if the switch does not hold it
        then.
        """
        ...


class Publishers(Protocol):
    """All publishers, which encode stacks."""

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        """Returns when every publisher uses these trees (edges by id) and no others; otherwise raises. A
        version that is announced again has the same trees.
        """
        ...


class Kept(Struct, frozen=True):
    """The durable state of a manager. `held`: every tree (edges by id) that a switch may have a rule of;
    those in `usable` are announced. The next tree gets the id `next`, if it is free. Edges are numbers in
    `links`.
    """

    version: int = 0
    next: int = 1
    held: dict[int, int] = field(default_factory=dict)
    usable: frozenset[int] = frozenset()
    links: dict[int, Wire] = field(default_factory=dict)

    def again(self, now: int) -> Kept:
        """Returns it for another run, with a version that no earlier run had. `now`: seconds since 1970, so
        that a run whose store was lost has a higher one as well.
        """
        return replace(self, version=max(self.version + 1, now))


class Store(Protocol):
    """The durable store of `Kept`."""

    def load(self) -> Kept: ...

    def save(self, kept: Kept) -> None: ...


class Surroundings(Struct, frozen=True):
    """The state of switches beside links and trees. `macs`: of hosts, by node."""

    macs: Mapping[int, int] = field(default_factory=dict)
    tunnels: Mapping[int, Mapping[int, states.Tunnel]] = field(default_factory=dict)  # switch -> port
    clean_up: bool = False
    probed: bool = False  # hop labels lead to the switches' controllers


class TreeManager:
    """The manager of one network. `limit`: rules per switch; `life`: the longest life of a packet, in
    seconds.
    """

    def __init__(
        self,
        network: Network,
        switches: Mapping[int, Switch],
        publishers: Publishers,
        store: Store,
        *,
        limit: int,
        life: float = 1.0,
        around: Surroundings | None = None,
        named: Named = frozenset(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._publishers = publishers
        self._store = store
        self.limit = limit
        self.life = life
        self._sleep = sleep
        self._kept = store.load()
        self.down = 0
        self._left: dict[str, dict[EntryKey, Entry]] = {}  # by switch: rules of trees that nobody knows of
        self._seen: set[str] = set()  # switches that were read in this run
        self._has: dict[str, int] = {}  # by switch: the edges that it has a port for
        self._towards: dict[str, dict[str, int]] = {}  # by switch: the link towards each host, as written
        self._stuck: set[str] = set()  # switches that could not be written
        self._told: tuple[object, ...] = ()
        self._acknowledged = False
        self.become(network, switches, around or Surroundings(), named=named)

    def become(
        self,
        network: Network,
        switches: Mapping[int, Switch],
        around: Surroundings,
        publishers: Publishers | None = None,
        named: Named = frozenset(),
    ) -> None:
        """Takes a description, which `update` then brings about. `named`: the ports that it writes out.

        What is written of links that are not described any more stays until nobody names them. Raises
        RoutingError, and changes nothing, if labels have no room for the links or a port has two.
        """
        links = allotted(self._kept.links, wires_of(network).values(), named)
        if links != self._kept.links:
            self._keep(replace(self._kept, links=links))
        self.network = numbered_by(network, links)
        self._listed = listed(links, network)
        self._switches = switches
        self._around = around
        self._publishers = publishers or self._publishers
        self._unwritten = set(switches)
        self._told = ()
        self._see()

    @property
    def described(self) -> Network:
        """The network of all links that are described, up or down."""
        return self.network.without(self._unlisted())

    def _unlisted(self) -> int:
        return (1 << self.network.edge_count) - 1 & ~self._listed

    def mark(self, down: int) -> None:
        """Takes the links that carry nothing (bits, as `links.probes`); the next update leaves them, or
        returns to them."""
        edges = mask_of({link >> 1 for link in members(down)})
        if edges != self.down:
            self.down = edges
            self._see()
            self._unwritten |= self._switches.keys()

    def _see(self) -> None:
        """Computes what follows from links that are down or not described."""
        self.up = self.network.without(self._unlisted() | self.down)

    @property
    def links(self) -> Wires:
        """The links by number, with those that were taken out and may still be named."""
        return self._kept.links

    @property
    def version(self) -> int:
        """The version that publishers were told last."""
        return self._kept.version

    @property
    def rules(self) -> RuleBase:
        """The trees that publishers may use over links that are up."""
        rules = RuleBase(self.up, self.limit)
        for number, edges in self._current():
            rules.next = number
            rules.add(edges)
        return rules

    @property
    def base(self) -> RuleBase:
        """The same trees with other ids, for whoever looks for better ones."""
        rules = RuleBase(self.up, self.limit)
        for _, edges in self._current():
            rules.add(edges)
        return rules

    def _current(self) -> list[tuple[int, int]]:
        missing, held = _missing(self.up), self._kept.held
        return [(number, held[number]) for number in sorted(self._kept.usable) if not held[number] & missing]

    def is_up(self, tree: int) -> bool:
        """Whether all edges of a tree are up."""
        return not tree & _missing(self.up)

    def remind(self) -> None:
        """Has publishers told again at the next update: one may have been restarted."""
        self._acknowledged = False

    def rewrite(self, node: int) -> None:
        """Has a switch written at the next update: it may have lost what it held."""
        name = self.network.names[node]
        self._unwritten.add(node)
        self._has.pop(name, None)
        if name in self._stuck:  # others go round it until now
            self._stuck.discard(name)
            self._unwritten |= self._switches.keys()

    # --- from one set of trees to the next

    async def start(self) -> None:
        """Restores the state of switches and tells publishers which trees they may use; then removes
        leftovers.
        """
        await self.update([self._kept.held[number] for number in sorted(self._kept.usable)])

    async def update(self, wanted: list[int]) -> RuleBase:
        """Changes to a rule base with these trees (edges as bits, in order of preference), and returns it.

        Leaves out trees that do not fit, or use links that are not up. Raises the error of a switch that is
        open, or of a publisher, when all else is done. It may be cancelled at any point.
        """
        target, faults = await self._make(wanted)
        await self._announce(self._ready(target))
        if await self._break(target, faults):
            target, later = await self._make(wanted)  # there may be room now for trees that did not fit
            faults += later
            await self._announce(self._ready(target))
        for fault in faults:
            raise fault
        return self.rules

    async def _make(self, wanted: list[int]) -> tuple[list[int], list[BaseException]]:
        """Writes what is missing. Returns the ids of the wanted trees, and what went wrong."""
        names = self.network.names
        # Switches decide which ids are free: they may hold trees that the store does not know of.
        await self._write({node for node in self._switches if names[node] not in self._seen})
        target = self._allot(wanted)
        return target, await self._write(self._unwritten)

    def _ready(self, target: list[int]) -> frozenset[int]:
        """Returns the trees that may be announced: all switches on them hold them."""
        kept, behind = self._kept, self._unwritten
        return frozenset(
            number
            for number in target
            if number in kept.usable or not behind & set(self._places(kept.held[number]))
        )

    def _allot(self, wanted: list[int]) -> list[int]:
        """Returns the ids of the wanted trees. New ones are stored, and their switches are to be written."""
        kept, missing = self._kept, _missing(self.up)
        known = {edges: number for number, edges in sorted(kept.held.items(), reverse=True)}
        rules = RuleBase(self.up, self.limit, kept.next)
        for switch in [switch for edges in kept.held.values() for switch in self._places(edges)]:
            rules.used[switch] += 1
        new: dict[int, int] = {}
        found: list[int] = []
        for edges in wanted:
            if edges & missing:
                continue
            number = known.get(edges, 0)
            if not number:
                rules.next = self._free_id(rules.next, new)
                number = rules.offer(edges)
                new.update({number: edges} if number else {})
            found += [number] if number and number not in found else []
        if new:
            self._keep(replace(kept, next=rules.next, held={**kept.held, **new}))
            self._unwritten |= self._touched(new) & self._switches.keys()
        return found

    def _free_id(self, first: int, new: Mapping[int, int]) -> int:
        """Returns the next id that nobody holds. Raises RoutingError if there is none."""
        left = {_tree_of(key) for entries in self._left.values() for key in entries}
        for number in chain(range(first, LAST_ID + 1), range(1, min(first, LAST_ID + 1))):
            if number not in self._kept.held and number not in new and number not in left:
                return number
        raise RoutingError(f"switches hold {LAST_ID} trees, and labels name no more: lower the limit")

    def _places(self, edges: int) -> list[int]:
        """Returns the switches that a tree takes a rule of."""
        return RuleBase(self.network, 0).switches(edges)

    async def _announce(self, usable: frozenset[int]) -> None:
        """Announces trees and links that may be named; meanwhile writes switches that are alone.

        Stores the version first: a version that anybody has heard is never used for others.
        """
        kept, network = self._kept, self._nameable()
        missing = _missing(network)
        usable = frozenset([number for number in usable if not kept.held[number] & missing])
        told = (usable, tuple(network.names), tuple(network.ends), tuple(network.hosts))
        if told != self._told:
            self._keep(replace(kept, version=kept.version + 1, usable=usable))
            self._told, self._acknowledged = told, False
        outcome, _ = await asyncio.gather(self._tell(network), self._write_alone(), return_exceptions=True)
        if outcome is not None:
            raise outcome

    async def _tell(self, network: Network) -> None:
        if not self._acknowledged:
            kept, told = self._kept, self._told
            trees = {number: kept.held[number] for number in sorted(kept.usable)}
            await self._publishers.announce(kept.version, network, trees)
            self._acknowledged = told is self._told

    def _nameable(self) -> Network:
        """Returns the network of links that are up, and that the switches at their ends have a port for."""
        network, without = self.up, 0
        for edge, ends in enumerate(network.ends):
            inner = [node for node in ends if node in self._switches]
            if not all(self._has.get(network.names[node], 0) >> edge & 1 for node in inner):
                without |= 1 << edge
        return network.without(without) if without else network

    async def _break(self, target: list[int], faults: list[BaseException]) -> bool:
        """Removes what publishers do not name any more, once packets have arrived. Returns whether there was
        anything. Adds what goes wrong to `faults`.
        """
        kept = self._kept
        gone = {number: edges for number, edges in kept.held.items() if number not in target}
        links = {number: wire for number, wire in kept.links.items() if self._listed >> number & 1}
        if not gone and links == kept.links and not self._left:
            return False
        await self._sleep(2 * self.life)
        # Switches that cannot be written now are written whole later: nobody names what they still hold.
        self._unwritten |= (self._touched(gone) | self._more()) & self._switches.keys()
        self._left.clear()
        held = {number: edges for number, edges in kept.held.items() if number not in gone}
        self.network = self.network.without(self._unlisted())
        self._keep(replace(self._kept, held=held, links=links))
        faults += await self._write(self._unwritten)
        return True

    def _more(self) -> set[int]:
        """Returns the switches that hold links which are not described, or trees that nobody knows of."""
        network, unlisted = self.network, self._unlisted()
        found = {network.node(name) for name in self._left if name in network.names}
        return found | {node for node in self._switches if network.edge_masks[node] & unlisted}

    def _touched(self, trees: Mapping[int, int]) -> set[int]:
        """Returns the switches that have rules of some trees."""
        return {switch for edges in trees.values() for switch in self._places(edges)}

    # --- switches

    def _alone(self) -> set[int]:
        """Returns the switches of which all links to others are down: nobody waits for them."""
        network, found = self.network, set()
        for node in self._switches:
            inner = [link for link in network.out[node] if not network.is_host[network.heads[link]]]
            if inner and all(self.down >> (link >> 1) & 1 for link in inner):
                found.add(node)
        return found

    async def _write_alone(self) -> None:
        """Writes switches that no link leads to, if they can be: they may have been started again."""
        await self._write_all(self._unwritten & self._alone())

    async def _write(self, nodes: Collection[int]) -> list[BaseException]:
        """Writes switches that links lead to, and returns the faults of those that are open.

        The ways of all others go round a switch that could not be written: it keeps what it has.
        """
        faults: list[BaseException] = []
        order = set(nodes) - self._alone()
        for _ in range(2):
            before = set(self._stuck)
            faults = await self._write_all(order)
            if self._stuck == before:
                break
            order = set(self._switches) - self._alone()
        return faults

    async def _write_all(self, nodes: set[int]) -> list[BaseException]:
        order, towards = sorted(nodes), self._ways() if nodes else {}
        work = [self._bring(node, towards.get(node, {})) for node in order]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        faults = []
        for node, fault in zip(order, outcomes, strict=True):
            if isinstance(fault, BaseException):
                name = self.network.names[node]
                if name not in self._stuck:
                    _log.warning("switch is not written", switch=name, error=fault)
                self._stuck.add(name)
                faults += [fault] if self._switches[node].open else []
        return faults

    async def _bring(self, node: int, towards: Towards) -> None:
        name, switch = self.network.names[node], self._switches[node]
        if name not in self._seen:
            self._find(name, await switch.read())
        self._unwritten.discard(node)  # it may be added again meanwhile
        try:
            await switch.bring_to(self._state_with(node, towards, self._kept.held))
        except BaseException:
            self._unwritten.add(node)
            raise
        self._has[name] = self.network.edge_masks[node]
        self._towards[name] = {self.network.names[host]: link for host, link in towards.items()}
        self._stuck.discard(name)

    def _find(self, name: str, found: SwitchState) -> None:
        """Takes what a switch held before this run. The rules of trees that no store knows of are kept until
        publishers have been told others."""
        self._seen.add(name)
        for key, entry in found.entries.items():
            if key.table == _TREES and _tree_of(key) not in self._kept.held:
                self._left.setdefault(name, {})[key] = entry

    def _ways(self) -> dict[int, Towards]:
        """Returns the links towards hosts, by switch."""
        network, switches = self.up, self._switches
        kept = [node for node in switches if network.names[node] in self._stuck or not switches[node].open]
        return ways(network, self._around.macs, {node: self._as_written(node) for node in kept})

    def _as_written(self, node: int) -> Towards:
        """Returns what a switch that cannot be written leads to: of one that this run has never written, its
        own hosts are assumed."""
        network, name = self.up, self.network.names[node]
        if name not in self._towards:
            heads = {network.heads[link]: link for link in network.out[node]}
            return {host: link for host, link in heads.items() if network.is_host[host]}
        places = {known: number for number, known in enumerate(network.names)}
        known = self._towards[name].items()
        return {places[host]: link for host, link in known if host in places}

    def state_of(self, switch: int, held: Mapping[int, int] | None = None) -> SwitchState:
        """Returns what a switch holds with these trees (by default all that may be in use)."""
        return self._state_with(switch, self._ways()[switch], self._kept.held if held is None else held)

    def _state_with(self, node: int, towards: Towards, held: Mapping[int, int]) -> SwitchState:
        network, around = self.network, self._around
        own = states.labels(
            network,
            node,
            HeldTrees(network, held),
            held,
            clean_up=around.clean_up,
            tunnels=around.tunnels.get(node),
            addresses={around.macs[host]: network.ports[link] for host, link in towards.items()},
            controller=controller_id(node) if around.probed else -1,
        )
        left = self._left.get(network.names[node], {})
        return replace(own, entries={**left, **own.entries})

    def _keep(self, kept: Kept) -> None:
        self._store.save(kept)
        self._kept = kept


def _missing(network: Network) -> int:
    """Returns the edges (bits) that a network does not have, however high their numbers."""
    return ~mask_of([edge for edge, (one, other) in enumerate(network.ends) if one != other])


def _tree_of(key: EntryKey) -> int:
    """Returns the id of the tree that a rule is of; 0 if it is no rule of a tree."""
    match = dict(key.matches).get(_ID)
    return match.value if key.table == _TREES and isinstance(match, ExactMatch) else 0


class HeldTrees:
    """Trees by id, as `routing.virtual.stacks.Rules`."""

    def __init__(self, network: Network, trees: Mapping[int, int]) -> None:
        self._network = network
        self._trees = trees

    def links(self, switch: int, number: int) -> int:
        return tree_links(self._network, self._trees.get(number, 0), switch)
