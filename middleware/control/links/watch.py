"""Probes round after round, and sessions that are opened again, beside a controller's work.

    watch = Watch(probes, sessions, seconds=0.5, again=2.0, changed=woken.set, opened=manager.rewrite)
    await watch.connect()
    watch.begin()                     # `changed` is called when links have gone down or come up
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

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
        self._tasks: list[asyncio.Task[None]] = []
        self._sends: dict[bytes, asyncio.Task[None]] = {}

    @property
    def reached(self) -> list[int]:
        """The switches with an open session."""
        return [node for node, session in self.sessions.items() if session.open]

    async def connect(self) -> None:
        """Opens all sessions that are not open, as far as switches answer."""
        await asyncio.gather(*[self._connect(node) for node in list(self.sessions)])

    def begin(self) -> None:
        self._tasks += [asyncio.create_task(self._probe()), asyncio.create_task(self._reconnect())]

    async def close(self) -> None:
        tasks = [*self._tasks, *self._sends.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*[session.close() for session in self.sessions.values()])

    async def _probe(self) -> None:
        while self.seconds:
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

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(self._again)
            await self.connect()

    async def _connect(self, node: int) -> None:
        session = self.sessions[node]
        try:
            if await session.connect():
                self._opened(node)
        except (OSError, SwitchRefused) as error:
            _log.warning("switch is not reached", switch=session.name, error=error)
