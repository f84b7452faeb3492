"""The tree manager at work: looks at links, switches, publishers and its file, and has `TreeManager` follow.

Links are probed beside it (`control.links`). When one goes down or comes up, whatever it does is dropped, and
frames without a stack and trees move at once. So nobody waits for a publisher that is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Final

from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.control.advice.following import Advised, Printed, Topics
from treecast.middleware.control.advice.place import AdviceFile
from treecast.middleware.control.advice.rules import Adviser
from treecast.middleware.control.links.probes import Probes
from treecast.middleware.control.links.sessions import LastingSession
from treecast.middleware.control.links.watch import Watch
from treecast.middleware.control.switches import SwitchDiffers, SwitchRefused
from treecast.middleware.routing.network import Network, RoutingError

from .adapting import Observed, better_trees
from .advertised import told
from .advised import ManagedTrees
from .description import Described, read
from .manager import Store, Surroundings, TreeManager
from .probing import StackProbes
from .publishers import Daemons, NotAcknowledged
from .wires import moved

WAIT_SECONDS: Final = 2.0  # between attempts at what could not be done
REMIND_SECONDS: Final = 10.0  # between announcements of the same: a daemon may have been started again
CONNECT_SECONDS: Final = 10.0  # for a switch that does not answer at the start
ASK_SECONDS: Final = 5.0  # for a daemon with the topics of advice
FAULTS: Final = (OSError, ValueError, RoutingError, SwitchRefused, SwitchDiffers, NotAcknowledged)


class Controller:
    """One network's. `run` works until `ended` is set. `publishers`: makes them of a description.

    `now`: seconds since 1970. `nonce`: 8 bytes that only this run knows. `opened`: the topics of advice at an
    address.
    """

    def __init__(
        self,
        path: Path,
        described: Described,
        store: Store,
        publishers: Callable[[Described], Daemons],
        *,
        now: int,
        nonce: bytes,
        opened: Callable[[str], Topics] = lambda address: OwnTopics(address, ASK_SECONDS),
    ) -> None:
        self.ended = asyncio.Event()
        self._path = path
        self._described = described
        self._publishers = publishers
        self._nonce = nonce
        self._woken = asyncio.Event()
        self._again = False  # the file shall be read again
        self._chosen: list[int] | None = None  # trees that were learned; None: the strategy's
        self._rng = Random(described.seed)
        self._observed_at = 0.0
        self._reminded_at = 0.0
        self._printed = -1  # the version that was printed last
        self._said = ""
        self._open_topics = opened
        self._followed_at = 0.0
        self._printed_advice = Printed("trees")
        network = described.check()
        self._run = _begin_run(store, now)
        sessions = self._sessions(network, described.switches)
        self._daemons = publishers(described)
        self.manager = TreeManager(
            network,
            sessions,
            self._daemons,
            store,
            limit=described.limit,
            life=described.packet_life,
            around=self._around(described, network),
            named=described.named(),
        )
        self._remark_ports(network)
        self.probes = Probes(self.manager.described, StackProbes(self.manager.described, nonce))
        self._seen = Observed(self.manager.up)
        self._advised = self._follower(described)
        self._watch = Watch(
            self.probes,
            sessions,
            seconds=described.probe,
            again=WAIT_SECONDS,
            changed=self._woken.set,
            opened=self._opened,
        )

    def _sessions(self, network: Network, switches: Mapping[str, str]) -> dict[int, LastingSession]:
        return {
            network.node(name): LastingSession(name, address, self._run, self._heard)
            for name, address in switches.items()
        }

    def _follower(self, described: Described) -> Advised | None:
        place = described.advice
        if not place.kafka:
            return None
        kept = AdviceFile((self._path.parent / described.store).with_suffix(".advice"))
        adviser, own = Adviser(place.limits(), kept.load()), self._open_topics(place.kafka)
        return Advised(
            place.network,
            ManagedTrees(self.manager, self._choose),
            adviser,
            own,
            kept,
            strategy=described.learned,
        )

    async def _choose(self, trees: list[int]) -> None:
        self._chosen = trees
        await self._update()

    def _heard(self, packet: bytes) -> None:
        self.probes.answer(packet)

    def _opened(self, node: int) -> None:
        self.manager.rewrite(node)
        self._woken.set()

    @staticmethod
    def _around(described: Described, network: Network) -> Surroundings:
        return Surroundings(macs=described.macs(network), probed=bool(described.probe))

    # --- from the start to the end

    async def start(self) -> None:
        """Programs switches as far as they answer. Raises SwitchRefused if none does."""
        self._tell_advertised()
        await self._watch.connect(CONNECT_SECONDS)
        if not self._watch.reached:
            raise SwitchRefused(f"no switch is reached: {self._watch.why()}")
        self._watch.begin()
        if self._described.adapt or self._advised is not None:
            trees = [self.manager.rules.trees[number] for number in sorted(self.manager.rules.trees)]
            self._chosen = trees or None  # learned trees outlive the manager

    async def once(self) -> None:
        """Programs all switches and tells all publishers, or raises what went wrong."""
        self._tell_advertised()
        await self._watch.connect(CONNECT_SECONDS)
        if len(self._watch.reached) < len(self._watch.sessions):
            raise SwitchRefused(f"not every switch is reached: {self._watch.why()}")
        await self._update()

    async def close(self) -> None:
        await self._watch.close()

    def end(self) -> None:
        self.ended.set()
        self._woken.set()

    def read_again(self) -> None:
        self._again = True
        self._woken.set()

    async def run(self) -> None:
        while not self.ended.is_set():
            self._woken.clear()
            await self._read_file()
            done = await self._unless_woken(self._look())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._pause() if done else WAIT_SECONDS)

    def _pause(self) -> float:
        every = self._described.advice.every if self._advised is not None else 0.0
        return min(REMIND_SECONDS, self._described.adapt or REMIND_SECONDS, every or REMIND_SECONDS)

    async def _unless_woken(self, work: Coroutine[None, None, None]) -> bool:
        """Works unless something happens meanwhile. Returns whether all was done; says what went wrong."""
        looking = asyncio.create_task(work)
        waking = asyncio.create_task(self._woken.wait())
        await asyncio.wait((looking, waking), return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()
        looking.cancel()
        (outcome,) = await asyncio.gather(looking, return_exceptions=True)
        if isinstance(outcome, FAULTS):
            self._say(self._reason(outcome))
        elif isinstance(outcome, Exception):
            raise outcome
        elif outcome is None:
            self._said = ""
        return outcome is None

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, NotAcknowledged) and self._printed < 0:
            return f"the switches are programmed; waiting for {'; '.join(error.missing)}"
        return str(error)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(f"trees: {text}", file=sys.stderr, flush=True)

    # --- one look

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._described.adapt and self._printed >= 0 and now - self._observed_at >= self._described.adapt:
            self._observed_at = now
            await self._adapt()
        if now - self._reminded_at >= REMIND_SECONDS:
            self._reminded_at = now
            self.manager.remind()
        await self._update()
        if self._advised is not None and now - self._followed_at >= self._described.advice.every:
            self._followed_at = now
            await self._printed_advice.look(self._advised)

    async def _update(self) -> None:
        manager = self.manager
        manager.mark(self.probes.down)
        await manager.update(self._wanted())
        if manager.version != self._printed:
            self._print()

    def _wanted(self) -> list[int]:
        """Returns the trees to have now: those that were learned, and the strategy's where links are down."""
        up, chosen = self.manager.up, self._chosen
        alive = [] if chosen is None else [tree for tree in chosen if self.manager.is_up(tree)]
        if chosen is not None and len(alive) == len(chosen):
            return chosen
        trees = self._described.trees_around(up)
        if chosen is None and self._printed < 0:
            self._remark(trees)
        return [*alive, *trees]

    def _tell_advertised(self) -> None:
        """Prints whom advertisements match, once for each description."""
        for line in told(self._described.relations):
            print(line, flush=True)

    def _remark(self, trees: list[int]) -> None:
        remark = self._described.remark(trees)
        if remark:
            self._say(remark)

    def _remark_ports(self, network: Network) -> None:
        found = moved(self.manager.links, network)
        if found:
            print(
                f"trees: {'; '.join(found)}: write other ports with their ends", file=sys.stderr, flush=True
            )

    async def _adapt(self) -> None:
        """Reads what was sent since the last call, and chooses other trees if better ones exist; while advice
        is valid it only reads.
        """
        manager = self.manager
        self._seen.add(await self._daemons.observed())
        if self._advised is not None and self._advised.watches_only:
            return
        only = self._described.learned
        trees = await asyncio.to_thread(better_trees, manager.base, self._seen, self._rng, strategy=only)
        if trees is not None:
            self._chosen = trees

    def _print(self) -> None:
        rules, cut = self.manager.rules, self._cut_off()
        more = f" cut={','.join(cut)}" if cut else ""
        self._printed = self.manager.version
        print(f"ready version={self._printed} trees={len(rules.trees)} rules={rules.total}{more}", flush=True)

    def _cut_off(self) -> list[str]:
        """Returns the hosts that most others have no way to."""
        up = self.manager.up
        parts = [up.part[host] for host in up.hosts]
        largest = max(parts, key=parts.count, default=-1)
        return [up.names[host] for host in up.hosts if up.part[host] != largest]

    # --- another description

    async def _read_file(self) -> None:
        """Takes the file if it shall be read again. Nothing interrupts this."""
        if self._again:
            self._again = False
            try:
                await self._become(read(self._path))
            except FAULTS as error:
                self._say(str(error))

    async def _become(self, changed: Described) -> None:
        """Takes a changed file. Raises RoutingError, and changes nothing, if it cannot be applied."""
        if changed.store != self._described.store:
            raise RoutingError("the store differs: restart the program")
        network = changed.check()
        changed.trees(network)
        sessions = {}
        before = {one.name: one for one in self._watch.sessions.values()}
        for node, session in self._sessions(network, changed.switches).items():
            old = before.get(session.name)
            same = (
                old is not None and changed.switches[session.name] == self._described.switches[session.name]
            )
            sessions[node] = old if old is not None and same else session
        daemons = self._publishers(changed)
        around = self._around(changed, network)
        self.manager.become(network, sessions, around, daemons, changed.named())
        self._remark_ports(network)
        self.manager.limit, self.manager.life = changed.limit, changed.packet_life
        self._described, self._daemons, self._chosen, self._printed = changed, daemons, None, 0
        listed = self.manager.described
        self.probes.become(listed, StackProbes(listed, self._nonce))
        self._seen = Observed(listed)
        self._advised = self._follower(changed)
        if self._advised is not None:
            self._advised.resume()
        self._watch.seconds = changed.probe
        self._tell_advertised()
        await self._watch.become(sessions)


def _begin_run(store: Store, now: int) -> int:
    """Returns the number of this run, higher than that of any before, which is stored first."""
    kept = store.load().again(now)
    store.save(kept)
    return kept.version
