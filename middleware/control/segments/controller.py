"""The network controller at work: looks at receivers, links and routers, and has the manager follow them.

Links are probed beside it (`control.links`). When one goes down or comes up, trees follow at once, for the
receivers that daemons had at the last look: daemons may be reached again only after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.control.advice.following import Advised, Printed, Topics
from treecast.middleware.control.advice.place import AdviceFile
from treecast.middleware.control.advice.rules import Adviser
from treecast.middleware.control.links.probes import Probes
from treecast.middleware.control.links.sessions import CALL_SECONDS, LastingSession
from treecast.middleware.control.links.watch import Watch
from treecast.middleware.control.switches import SwitchDiffers, SwitchRefused
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.routing.network import RoutingError

from .advised import ManagedWays, WaysFile
from .description import Described
from .manager import Group, SegmentManager
from .probing import SidProbes
from .publishers import Daemons, NotTold
from .routers import LINK_COUNTER, Plan
from .traffic import Rates, Traffic

_log = Log(__name__)

REMIND_SECONDS: Final = 10.0  # between announcements of the same: a daemon may have been started again
ASK_SECONDS: Final = 5.0  # for a daemon with the topics of advice
FAULTS = (OSError, ValueError, RoutingError, SwitchRefused, SwitchDiffers, NotTold, TreecastError)


class Controller:
    """One network's. `run` works until `ended` is set."""

    def __init__(
        self,
        described: Described,
        plan: Plan,
        token: str,
        trust: Path | None = None,
        *,
        folder: Path = Path(),
        opened: Callable[[str], Topics] = lambda address: OwnTopics(address, ASK_SECONDS),
    ) -> None:
        """`token` and `trust`: as for `publishers.Daemons`. `folder`: that of the description. `opened`: the
        topics of advice at an address. Raises ValueError for a foreign file in place of a store.
        """
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
        self._opened = opened
        self._store = folder / described.store
        ways = WaysFile(self._store.with_suffix(".ways"), plan.network)
        followed = bool(described.advice.kafka)
        self.managed = ManagedWays(
            self.manager.ways,
            plan.run,
            lambda: self._wanted or {},
            self._update,
            ways.load() if followed else {},
            ways.save,
        )
        self._advised = self._follower()
        self._followed_at = -described.advice.every
        self._following: asyncio.Task[None] | None = None  # a look at advice, beside everything else
        self._one_at_a_time = asyncio.Lock()  # of updates: applied advice makes one, too
        self._balances = not self.managed.avoid  # and does not begin with ways that advice has left
        self._printed_advice = Printed("segments")
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

    def _follower(self) -> Advised | None:
        place = self._described.advice
        if not place.kafka:
            return None
        kept = AdviceFile(self._store.with_suffix(".advice"))
        adviser, own = Adviser(place.limits(), kept.load()), self._opened(place.kafka)
        return Advised(place.network, self.managed, adviser, own, kept)

    def resume(self) -> None:
        """Ends the kill switch of advice, by an operator's word."""
        if self._advised is not None:
            self._advised.resume()
            self._woken.set()

    async def start(self) -> None:
        """Returns when routers bring packets to each other and to hosts. Raises if none can be reached."""
        await self._watch.connect(CALL_SECONDS)
        await self.manager.start()

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
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
        await self._update()
        if self._advised is not None and not urgent:
            self._look_at_advice(self._advised, now)

    async def _update(self) -> None:
        manager = self.manager
        async with self._one_at_a_time:
            if self._wanted is not None and await manager.update(
                self._wanted, avoid=self.managed.avoid, down=self.probes.down
            ):
                trees, segments = len(manager.forest.groups), len(manager.forest.segments)
                print(f"version={manager.version} trees={trees} segments={segments}", flush=True)

    def _look_at_advice(self, advised: Advised, now: float) -> None:
        """Begins a look, unless one still waits for its daemon: trees leave a dead link meanwhile.

        Raises what went wrong in the last one.
        """
        last = self._following
        if last is not None and last.done():
            self._following = None
            last.result()
        if self._following is None and now - self._followed_at >= self._described.advice.every:
            self._followed_at = now
            self._following = asyncio.create_task(self._printed_advice.look(advised), name="advice")

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
        rates = self._rates.take(now, wanted)
        if self._advised is not None and self._advised.watches_only:
            self._balances = False
            return
        if not self._balances:
            traffic.take(self.managed.avoid, rates)
            self._balances = True
        before, avoid = self.managed.avoid, traffic.avoid(rates)
        for group in [one for one in avoid if avoid[one] != before.get(one, 0)]:
            _log.info("tree avoids other links", root=group[0], links=avoid[group].bit_count())
        self.managed.take({group: links for group, links in avoid.items() if links})

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(f"segments: {text}", file=sys.stderr, flush=True)
