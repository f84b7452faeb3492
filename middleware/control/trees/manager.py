"""Brings the label switches of a network from one rule base to the next, make before break.

  manager = TreeManager(network, switches, publishers, store, limit=40)
  await manager.start()                # switches get their state, read back; publishers are told
  await manager.update(wanted trees)   # rules in, publishers told, packets drained, rules out

The steps are those of `routing.virtual.update`. No tree is announced before every switch on it has been read
back. None is removed before every publisher has acknowledged a version without it and twice the longest life
of a packet has passed. A failed step is not skipped: `update` raises, everything written stays, and the next
call, or `start` of a manager with the same store, continues from there. Ids are stored before they are
written to a switch, so that ids of removed trees are never reused, whichever process dies when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct, field

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.virtual.rules import RuleBase, tree_links
from treecast.middleware.routing.virtual.update import Step, StepKind, plan

from . import states

_log = Log(__name__)


class Switch(Protocol):
    """One switch, for example `control.switches.SwitchSession`."""

    async def bring_to(self, desired: SwitchState) -> int:
        """Brings the switch to `desired`; returns the number of writes. Raises if the switch does not hold it
        then.
        """
        ...


class Publishers(Protocol):
    """All publishers, which encode stacks."""

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        """Returns when every publisher uses these trees (edges by id) and no others; otherwise raises."""
        ...


class Kept(Struct, frozen=True):
    """The durable state of a manager. `held`: every tree (edges by id) that a switch may have a rule of;
    those in `usable` are announced. The next tree gets the id `next`.
    """

    version: int = 0
    next: int = 1
    held: dict[int, int] = field(default_factory=dict)
    usable: frozenset[int] = frozenset()


class Store(Protocol):
    """The durable store of `Kept`."""

    def load(self) -> Kept: ...

    def save(self, kept: Kept) -> None: ...


class Surroundings(Struct, frozen=True):
    """The state of switches beside links and trees, by switch: MAC addresses and tunnels, each by port."""

    addresses: Mapping[int, Mapping[int, int]] = field(default_factory=dict)  # switch -> MAC -> port
    tunnels: Mapping[int, Mapping[int, states.Tunnel]] = field(default_factory=dict)  # switch -> port
    clean_up: bool = False


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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.network = network
        self._switches = switches
        self._publishers = publishers
        self._store = store
        self._limit = limit
        self._life = life
        self._around = around or Surroundings()
        self._sleep = sleep
        self._kept = store.load()

    @property
    def version(self) -> int:
        """The version that publishers were told last."""
        return self._kept.version

    @property
    def rules(self) -> RuleBase:
        """The trees that publishers may use, with the next free id."""
        rules = RuleBase(self.network, self._limit)
        for number in sorted(self._kept.usable):
            rules.next = number
            rules.add(self._kept.held[number])
        rules.next = self._kept.next
        return rules

    async def start(self) -> None:
        """Restores the state of switches and tells publishers which trees they may use; then removes
        leftovers.
        """
        await self._write(set(self._switches))
        await self._announce(self._kept.usable)
        await self._remove(self._kept.held.keys() - self._kept.usable)

    async def update(self, wanted: list[int]) -> RuleBase:
        """Changes to a rule base with these trees (edges as bits, in order of preference), and returns it.

        Leaves out trees that do not fit. Raises the error of a switch or publisher.
        """
        await self._remove(self._kept.held.keys() - self._kept.usable)  # leftovers of an interrupted update
        for step in plan(self.rules, wanted).steps:
            await self._take(step)
        return self.rules

    async def _take(self, step: Step) -> None:
        if step.kind is StepKind.INSTALL:
            await self._install(step.trees)
        elif step.kind is StepKind.ANNOUNCE:
            await self._announce(frozenset(step.trees))
        elif step.kind is StepKind.DRAIN:
            await self._sleep(2 * self._life)
        else:
            await self._write_without({rule.tree for rule in step.rules})

    async def _install(self, trees: Mapping[int, int]) -> None:
        kept = self._kept
        self._keep(Kept(kept.version, max(trees) + 1, {**kept.held, **trees}, kept.usable))
        await self._write(self._touched(trees))

    async def _announce(self, usable: frozenset[int]) -> None:
        """Announces trees. Stores the version first: a version that anybody has heard is never used for other
        trees.
        """
        kept = self._kept
        self._keep(Kept(kept.version + 1, kept.next, kept.held, usable))
        trees = {number: kept.held[number] for number in sorted(usable)}
        await self._publishers.announce(self._kept.version, self.network, trees)

    async def _remove(self, trees: set[int]) -> None:
        """Of trees that may have been announced: what is used is announced again, then they are drained."""
        if trees:
            await self._announce(self._kept.usable)
            await self._sleep(2 * self._life)
            await self._write_without(trees)

    async def _write_without(self, trees: set[int]) -> None:
        kept = self._kept
        gone = {number: kept.held[number] for number in trees if number in kept.held}
        held = {number: edges for number, edges in kept.held.items() if number not in gone}
        touched = self._touched(gone)
        await self._write(touched, held)
        self._keep(Kept(kept.version, kept.next, held, kept.usable - gone.keys()))

    def _touched(self, trees: Mapping[int, int]) -> set[int]:
        """Returns the switches that have rules of some trees."""
        alone = RuleBase(self.network, 0)
        return {switch for edges in trees.values() for switch in alone.switches(edges)}

    async def _write(self, switches: set[int], held: Mapping[int, int] | None = None) -> None:
        """All at once; raises the first fault when every switch has answered."""
        held = self._kept.held if held is None else held
        work = [self._switches[switch].bring_to(self.state_of(switch, held)) for switch in sorted(switches)]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        faults = [one for one in outcomes if isinstance(one, BaseException)]
        for fault in faults[1:]:
            _log.warning("another switch failed too", error=fault)
        if faults:
            raise faults[0]

    def state_of(self, switch: int, held: Mapping[int, int] | None = None) -> SwitchState:
        """Returns what a switch holds with these trees (by default all that may be in use)."""
        held = self._kept.held if held is None else held
        return states.labels(
            self.network,
            switch,
            HeldTrees(self.network, held),
            held,
            clean_up=self._around.clean_up,
            tunnels=self._around.tunnels.get(switch),
            addresses=self._around.addresses.get(switch),
        )

    def _keep(self, kept: Kept) -> None:
        self._store.save(kept)
        self._kept = kept


class HeldTrees:
    """Trees by id, as `routing.virtual.stacks.Rules`."""

    def __init__(self, network: Network, trees: Mapping[int, int]) -> None:
        self._network = network
        self._trees = trees

    def links(self, switch: int, number: int) -> int:
        return tree_links(self._network, self._trees.get(number, 0), switch)
