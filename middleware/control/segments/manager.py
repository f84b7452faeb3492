"""Brings routers and publishers from one set of trees to the next, make before break.

    manager = SegmentManager(plan, switches, publishers)
    await manager.start()               # ways are written; what was held before this run is kept for now
    await manager.update(wanted)        # segments in, publishers told, packets drained, segments out

A tree is for a root and a set of receivers, and never changes: another set is another tree, which shares what
lies behind a router with the others (`routing.replication`). No SID is told before every router on its tree
was read back; none is removed before every publisher has acknowledged a version without it and twice the
longest life of a packet has passed. What an earlier run has left on routers goes in the same way: so a
controller may die at any step. What could not be done raises, and the next call goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.network import RoutingError
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.segments import Segment
from treecast.middleware.routing.replication.shapes import direct

from .routers import Plan, RouterState

_log = Log(__name__)

Group = tuple[str, tuple[str, ...]]  # the root, and the receivers in ascending order, by name
Told = dict[str, dict[tuple[str, ...], bytes]]  # by root: the SID for each set of receivers


class Switch(Protocol):
    """One router; `control.switches.SwitchSession` is one."""

    async def read(self) -> SwitchState: ...

    async def bring_to(self, desired: SwitchState) -> int:
        """How many writes it took. Raises where the router does not hold it then."""
        ...


class Publishers(Protocol):
    """All daemons that may be roots."""

    async def announce(self, version: int, told: Told) -> None:
        """Returns when every one of them uses these trees and no others; else raises."""
        ...


class SegmentManager:
    """One network's. `life`: a packet's longest, in seconds."""

    def __init__(
        self,
        plan: Plan,
        switches: Mapping[int, Switch],
        publishers: Publishers,
        *,
        life: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.forest = Forest(plan.network, direct(plan.paths))
        self._plan = plan
        self._switches = switches
        self._publishers = publishers
        self._life = life
        self._sleep = sleep
        self._routers: dict[int, RouterState] = {}
        self._usable: set[Group] = set()  # whose segments are all on routers
        self._unwritten: set[int] = set()  # routers that do not hold what they shall
        self._draining: list[Segment] = []  # that nobody is told of any more
        self._left = True  # what an earlier run has left is still there
        self._changed = True  # since publishers were told last
        self._count = 0

    @property
    def version(self) -> int:
        """Of what publishers were told last; higher than that of any earlier run."""
        return (self._plan.run << 32) + self._count

    async def start(self) -> None:
        """Routers can be read, and bring packets to each other and to hosts."""
        for node, switch in self._switches.items():
            self._routers[node] = RouterState(self._plan, node, await switch.read())
            self._unwritten.add(node)
        await self._write()

    async def update(self, wanted: Iterable[Group]) -> bool:
        """Trees for just these; those whose receivers cannot be reached are left out. Whether anything was
        changed."""
        groups = set(wanted)
        self._open(groups - self.forest.groups.keys())
        await self._write()
        usable = groups & self.forest.groups.keys()
        if usable != self._usable or self._changed or self._left:
            await self._announce(usable)
        elif not self._draining:
            return False
        self._close(usable)
        await self._drain()
        return True

    def _open(self, groups: set[Group]) -> None:
        for group in sorted(groups):
            root, receivers = group
            try:
                leaves = mask_of([self._plan.network.node(name) for name in receivers])
                change = self.forest.open(group, self._plan.network.node(root), leaves)
            except RoutingError as error:
                _log.warning("no tree can be built", root=root, receivers=", ".join(receivers), error=error)
                continue
            for segment in change.created:
                self._routers[segment.node].hold(segment)
                self._unwritten.add(segment.node)

    async def _announce(self, usable: set[Group]) -> None:
        self._count += 1
        self._changed = True  # until all of them have acknowledged it
        await self._publishers.announce(self.version, self._told(usable))
        self._usable, self._changed = usable, False

    def _told(self, usable: set[Group]) -> Told:
        found: Told = {}
        for group in sorted(usable):
            entry = self.forest.groups[group].entry
            if entry is not None:
                root, receivers = group
                found.setdefault(root, {})[receivers] = self._plan.sid_of(entry).to_bytes(16)
        return found

    def _close(self, usable: set[Group]) -> None:
        """Groups that nobody is told of any more."""
        for group in self.forest.groups.keys() - usable:
            self._draining += self.forest.close(group).removed

    async def _drain(self) -> None:
        """Removes unused segments once all packets that named them have arrived."""
        if not self._draining and not self._left:
            return
        await self._sleep(2 * self._life)
        for segment in self._draining:
            self._routers[segment.node].drop(segment.number)
            self._unwritten.add(segment.node)
        if self._left:
            for node, router in self._routers.items():
                router.forget()
                self._unwritten.add(node)
        self._draining, self._left = [], False
        await self._write()

    async def _write(self) -> None:
        """All at once; raises the first fault when every router has answered."""
        nodes = sorted(self._unwritten)
        work = [self._switches[node].bring_to(self._routers[node].state()) for node in nodes]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        faults = [one for one in outcomes if isinstance(one, BaseException)]
        self._unwritten = {
            node for node, one in zip(nodes, outcomes, strict=True) if isinstance(one, BaseException)
        }
        for fault in faults[1:]:
            _log.warning("another router failed too", error=fault)
        if faults:
            raise faults[0]
