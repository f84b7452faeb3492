"""Brings routers and publishers from one set of trees to the next, make before break.

    manager = SegmentManager(plan, switches, publishers)
    await manager.start()               # ways are written; what was held before this run is kept for now
    await manager.update(wanted)        # segments in, publishers told, packets drained, segments out

A tree is for a root and a set of receivers, and avoids some links. It never changes: another set, or other
links to avoid, is another tree, which shares what lies behind a router with the others
(`routing.replication`). No SID is told before every router on its tree was read back; none is removed before
every publisher has acknowledged a version without it and twice the longest life of a packet has passed. What
an earlier run has left on routers goes in the same way: so a controller may die at any step. What could not
be done raises, and the next call goes on from there.

Links that are down (`control.links`) are in no path of routers and in no tree. A router all of whose links
are down is written if it can be; the others do not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.model.logs import Log
from treecast.middleware.model.standing import Standing
from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.network import RoutingError, Unreachable
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.segments import Segment
from treecast.middleware.routing.replication.ways import Ways

from .routers import Plan, RouterState

_log = Log(__name__)

Group = tuple[str, tuple[str, ...]]  # the root, and the receivers in ascending order, by name
Tree = tuple[Group, int]  # with its links (bits): its name in the forest
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
        self.ways = Ways(plan.network, plan.paths)
        self.forest = Forest(plan.network, self.ways.plan)
        self._plan = plan
        self._switches = switches
        self._publishers = publishers
        self._life = life
        self._sleep = sleep
        self._routers = {node: RouterState(plan, self.ways, node) for node in switches}
        self._unread = set(switches)  # routers of which it is not known what an earlier run has left there
        self._usable: set[Tree] = set()  # whose segments are all on routers
        self._unwritten = set(switches)  # routers that do not hold what they shall
        self._draining: list[Segment] = []  # that nobody is told of any more
        self._left = True  # what an earlier run has left is still there
        self._changed = True  # since publishers were told last
        self._reminds = False
        self._count = 0
        self._unreached, self._unwell = Standing(), Standing()  # groups without a tree; routers

    @property
    def version(self) -> int:
        """Of what publishers were told last; higher than that of any earlier run."""
        return (self._plan.run << 32) + self._count

    async def start(self) -> None:
        """Routers that can be written bring packets to each other and to hosts. Raises if none can."""
        faults = await self._write()
        if len(faults) == len(self._switches):
            raise faults[min(faults)]

    def rewrite(self, node: int) -> None:
        """Has a router written at the next update: it may have lost what it held."""
        self._unwritten.add(node)

    def remind(self) -> None:
        """Has publishers told again at the next update: one may have been restarted."""
        self._reminds = True

    async def update(
        self, wanted: Iterable[Group], *, avoid: Mapping[Group, int] | None = None, down: int = 0
    ) -> bool:
        """Makes trees for just these groups; leaves out those whose receivers cannot be reached.

        `avoid`: links that a group's tree shall not use (bits); `down`: links that carry nothing. Returns
        whether anything was changed.
        """
        if down != self.ways.down:
            self.ways.down = down
            self._unwritten |= self._switches.keys()
        trees = self._open(set(wanted), avoid or {})
        written = bool(self._unwritten)
        await self._write_all()
        if trees != self._usable or self._changed or self._left:
            await self._announce(trees)
        else:
            await self._remind(trees)
            if not self._draining:
                return written
        self._close(trees)
        await self._drain()
        return True

    def _open(self, groups: set[Group], avoid: Mapping[Group, int]) -> set[Tree]:
        """Returns the trees of these groups; a group whose tree cannot be built is left out."""
        found: set[Tree] = set()
        self._unreached.keep(groups)
        for group in sorted(groups):
            root, receivers = group
            try:
                found.add(self._tree(group, avoid.get(group, 0)))
                self._unreached.ends(group)
            except RoutingError as error:
                if self._unreached.begins(group, error):
                    named = ", ".join(receivers)
                    _log.warning("no tree can be built", root=root, receivers=named, error=error)
        return found

    def _tree(self, group: Group, avoid: int) -> Tree:
        """Returns the tree of a group, which exists or is made. Raises RoutingError if receivers cannot be
        reached.
        """
        network = self._plan.network
        root = network.node(group[0])
        leaves = mask_of([network.node(name) for name in group[1]]) & ~(1 << root)
        try:
            planned = self.ways.plan(root, leaves, avoid)
        except Unreachable:
            avoid = 0  # better over a full link than not at all
            planned = self.ways.plan(root, leaves, avoid)
        tree = (group, planned.links)
        if tree not in self.forest.groups:
            self._hold(tree, self.forest.open(tree, root, leaves, avoid).created)
        return tree

    def _hold(self, tree: Tree, segments: Iterable[Segment]) -> None:
        """Has routers hold the segments of a new tree; if one has no room for them, there is no such tree."""
        try:
            for segment in segments:
                self._routers[segment.node].hold(segment)
                self._unwritten.add(segment.node)
        except RoutingError:
            for segment in self.forest.close(tree).removed:
                self._routers[segment.node].drop(segment.number)
            raise

    async def _announce(self, trees: set[Tree]) -> None:
        self._count += 1
        self._changed = True  # until all of them have acknowledged it
        await self._publishers.announce(self.version, self._told(trees))
        self._usable, self._changed, self._reminds = trees, False, False

    async def _remind(self, trees: set[Tree]) -> None:
        if self._reminds:
            self._reminds = False
            await self._publishers.announce(self.version, self._told(trees))

    def _told(self, trees: set[Tree]) -> Told:
        found: Told = {}
        for tree in sorted(trees):
            entry = self.forest.groups[tree].entry
            if entry is not None:
                root, receivers = tree[0]
                found.setdefault(root, {})[receivers] = self._plan.sid_of(entry).to_bytes(16)
        return found

    def _close(self, trees: set[Tree]) -> None:
        """Trees that nobody is told of any more."""
        for tree in self.forest.groups.keys() - trees:
            self._draining += self.forest.close(tree).removed

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
        await self._write_all()

    async def _write_all(self) -> None:
        """Raises the first fault of a router that links lead to."""
        faults = await self._write()
        alone = self.ways.alone()
        for fault in [faults[node] for node in sorted(faults) if node not in alone][:1]:
            raise fault

    async def _write(self) -> dict[int, BaseException]:
        """Writes all that need it at once, and returns the faults by router when each has answered."""
        nodes = sorted(self._unwritten)
        self._unwritten.clear()  # others may be added meanwhile
        outcomes = await asyncio.gather(*[self._bring(node) for node in nodes], return_exceptions=True)
        named = zip(nodes, outcomes, strict=True)
        faults = {node: one for node, one in named if isinstance(one, BaseException)}
        self._unwritten |= faults.keys()
        for node in nodes:
            router, fault = self._plan.network.names[node], faults.get(node)
            if fault is None:
                if self._unwell.ends(node):
                    _log.info("router is written again", router=router)
            elif self._unwell.begins(node, fault):
                _log.warning("router is not written", router=router, error=fault)
        return faults

    async def _bring(self, node: int) -> None:
        switch, router = self._switches[node], self._routers[node]
        if node in self._unread:
            if self._left:
                router.keep(await switch.read())
            self._unread.discard(node)
        await switch.bring_to(router.state())
