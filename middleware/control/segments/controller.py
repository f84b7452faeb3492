"""The network controller at work: looks at receivers, links and routers, and has the manager follow them.

Links are probed beside it (`control.links`). When one goes down or comes up, trees follow at once, for the
receivers that daemons had at the last look: daemons may be reached again only after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Final

from treecast.middleware.control.links.probes import Probes
from treecast.middleware.control.links.sessions import CALL_SECONDS, LastingSession
from treecast.middleware.control.links.watch import Watch
from treecast.middleware.control.switches import SwitchDiffers, SwitchRefused
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.network import RoutingError

from .description import Described
from .manager import Group, SegmentManager
from .probing import SidProbes
from .publishers import Daemons, NotTold
from .routers import LINK_COUNTER, Plan
from .traffic import Rates, Traffic

_log = Log(__name__)

REMIND_SECONDS: Final = 10.0  # between announcements of the same: a daemon may have been started again
FAULTS = (OSError, ValueError, RoutingError, SwitchRefused, SwitchDiffers, NotTold, TreecastError)


class Controller:
    """One network's. `run` works until `ended` is set."""

    def __init__(self, described: Described, plan: Plan, token: str, trust: Path | None = None) -> None:
        """`token` and `trust`: as for `publishers.Daemons`."""
        self._described = described
        self._plan = plan
        self.probes = Probes(plan.network, SidProbes(plan))
        self._sessions = {
            plan.network.node(name): LastingSession(name, address, plan.run, self.probes.answer)
            for name, address in described.routers.items()
        }
        self._daemons = Daemons(described.controls(), token, trust=trust)
        self.manager = SegmentManager(plan, self._sessions, self._daemons, life=described.packet_life)
        self.ended = asyncio.Event()
        self._woken = asyncio.Event()
        self._wanted: dict[Group, int] | None = None
        self._traffic: Traffic | None = None
        if described.capacity:
            thresholds = {"high": described.high, "low": described.low}
            self._traffic = Traffic(plan.network, self.manager.ways, described.capacity, **thresholds)
        self._rates = Rates()
        self._avoid: dict[Group, int] = {}
        self._watch = Watch(
            self.probes,
            self._sessions,
            seconds=described.probe,
            again=described.look,
            changed=self._woken.set,
            opened=self.manager.rewrite,
        )
        self._reminded_at = 0.0
        self._said = ""

    async def start(self) -> None:
        """Returns when routers bring packets to each other and to hosts. Raises if none can be reached."""
        await self._watch.connect(CALL_SECONDS)
        await self.manager.start()

    async def close(self) -> None:
        await self._watch.close()

    async def run(self) -> None:
        self._watch.begin()
        while not self.ended.is_set():
            urgent = self._woken.is_set()
            self._woken.clear()
            try:
                await self._look(urgent)
                self._said = ""
            except FAULTS as error:
                self._say(str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._described.look)

    def end(self) -> None:
        self.ended.set()
        self._woken.set()

    async def _look(self, urgent: bool) -> None:
        if not urgent or self._wanted is None:
            self._wanted = await self._daemons.wanted()
            if self._wanted is not None and self._traffic is not None:
                await self._balance(self._traffic, self._wanted)
        manager, now = self.manager, asyncio.get_running_loop().time()
        if not urgent and now - self._reminded_at >= REMIND_SECONDS:
            self._reminded_at = now
            manager.remind()
        if self._wanted is not None and await manager.update(
            self._wanted, avoid=self._avoid, down=self.probes.down
        ):
            trees, segments = len(manager.forest.groups), len(manager.forest.segments)
            print(f"version={manager.version} trees={trees} segments={segments}", flush=True)

    async def _balance(self, traffic: Traffic, wanted: dict[Group, int]) -> None:
        """Reads the load of links, and decides which ones trees leave."""
        network, sent = self._plan.network, {}
        nodes = [node for node, session in self._sessions.items() if session.open]
        ports = {node: {network.ports[link]: link for link in network.out[node]} for node in nodes}
        reads = [self._sessions[node].counter(LINK_COUNTER, ports[node]) for node in nodes]
        for node, cells in zip(nodes, await asyncio.gather(*reads), strict=True):
            sent.update({ports[node][port]: count for port, (_, count) in cells.items()})
        now = asyncio.get_running_loop().time()
        traffic.count(now, sent)
        before, self._avoid = self._avoid, traffic.avoid(self._rates.take(now, wanted))
        for group in [one for one in self._avoid if self._avoid[one] != before.get(one, 0)]:
            _log.info("tree avoids other links", root=group[0], links=self._avoid[group].bit_count())

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(f"segments: {text}", file=sys.stderr, flush=True)
