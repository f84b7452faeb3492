"""Probes round after round, and sessions that are opened again, beside a controller's work.

watch = Watch(probes, sessions, seconds=0.5, again=2.0, changed=woken.set, opened=manager.rewrite)
await watch.connect(10.0)
watch.begin()                     # `changed` is called when links have gone down or come up
await watch.become(sessions)      # those of another description
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

from treecast.middleware.control.switches import SwitchRefused
from treecast.middleware.model.logs import Log

from .probes import Probe, Probes
from .sessions import LastingSession

_log = Log(__name__)


class Watch:
    """The links and sessions of one network. `sessions`: by node.

    `seconds`: between rounds of probes, 0: none are sent; `again`: between attempts to open sessions.
    `opened` is called with the node of a session that was opened: the switch may have lost all it held.
    """

    def __init__(
        self,
        probes: Probes,
        sessions: Mapping[int, LastingSession],
        *,
        seconds: float,
        again: float,
        changed: Callable[[], None],
        opened: Callable[[int], None],
    ) -> None:
        self.probes = probes
        self.sessions = sessions
        self.seconds = seconds
        self._again = again
        self._changed = changed
        self._opened = opened
        self._missed: dict[str, str] = {}  # why sessions were not opened at the last attempt
        self._keeping: dict[int, asyncio.Task[None]] = {}  # by node: the task that keeps a session open
        self._probing: asyncio.Task[None] | None = None
        self._sends: dict[bytes, asyncio.Task[None]] = {}

    @property
    def reached(self) -> list[int]:
        """The switches with an open session."""
        return [node for node, session in self.sessions.items() if session.open]

    def why(self) -> str:
        """Returns which switches are not reached, and the reasons."""
        missing = [session.name for session in self.sessions.values() if not session.open]
        return "; ".join([f"{name}: {self._missed.get(name) or 'it does not answer'}" for name in missing])

    async def connect(self, seconds: float) -> None:
        """Opens sessions as far as switches answer within `seconds`."""
        tasks = [asyncio.create_task(self._connect(node)) for node in self.sessions]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=seconds)
        finally:
            await _end(tasks)

    def begin(self) -> None:
        self._probing = asyncio.create_task(self._probe())
        self._keeping = {node: asyncio.create_task(self._keep(node)) for node in self.sessions}

    async def become(self, sessions: Mapping[int, LastingSession]) -> None:
        """Watches these sessions from now on, and closes those that are not among them."""
        gone = [one for one in self.sessions.values() if one not in sessions.values()]
        await _end(self._keeping.values())
        self.sessions = sessions
        await asyncio.gather(*[session.close() for session in gone])
        self._keeping = {node: asyncio.create_task(self._keep(node)) for node in sessions}

    async def close(self) -> None:
        await _end([*self._keeping.values(), *self._sends.values(), *filter(None, [self._probing])])
        await asyncio.gather(*[session.close() for session in self.sessions.values()])

    async def _probe(self) -> None:
        while True:
            if not self.seconds:  # another description may ask for probes
                await asyncio.sleep(self._again)
                continue
            before = self.probes.down
            probes = self.probes.round(self.reached)
            if self.probes.down != before:
                print(f"down={','.join(self.probes.names()).replace(' ', '') or 'none'}", flush=True)
                self._changed()
            self._sends = {frame: task for frame, task in self._sends.items() if not task.done()}
            for probe in probes:
                if probe.frame not in self._sends:  # else its switch is slow
                    self._sends[probe.frame] = asyncio.create_task(self._send(probe))
            await asyncio.sleep(self.seconds)

    async def _send(self, probe: Probe) -> None:
        with contextlib.suppress(SwitchRefused, KeyError):  # it counts as not answered
            await self.sessions[probe.node].send(probe.frame)

    async def _keep(self, node: int) -> None:
        """Keeps a session open: one that does not answer holds up no other."""
        while True:
            await self._connect(node)
            await asyncio.sleep(self._again)

    async def _connect(self, node: int) -> None:
        session = self.sessions[node]
        try:
            if await session.connect():
                self._opened(node)
        except (OSError, SwitchRefused) as error:
            if session.name not in self._missed:
                _log.warning("switch is not reached", switch=session.name, error=error)
            self._missed[session.name] = str(error)
        else:
            self._missed.pop(session.name, None)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
