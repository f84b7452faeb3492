"""The replica controller with a clock, transport and a store for VNF ids, as a daemon runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from treecast.middleware.fabric.stare.timers import Random
from treecast.middleware.fabric.stare.wakeups import Wakeups
from treecast.middleware.model.counters import ReplicaCounters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.stare_signals import Opened, Signal, SignalKind, encode_signal

from .replicas.controller import ReplicaController
from .replicas.settings import ReplicaSettings
from .replicas.vnf_ids import VnfIds

_log = Log(__name__)

Store = Callable[[Mapping[bytes, bytes | None]], Awaitable[None]]
_STORE_AGAIN: Final = 1.0  # seconds


class ReplicaService:
    """Runs from `start` to `close`, in the event loop's thread."""

    def __init__(
        self,
        settings: ReplicaSettings,
        random: Random,
        counters: ReplicaCounters,
        ids: VnfIds,
        *,
        send: Callable[[int, bytes], None],
        want: Callable[[int], None],
        unwant: Callable[[int], None],
        store: Store,
    ) -> None:
        """`send` sends a signal to a host; `want` and `unwant` subscribe to a state's packets; `store` writes
        items and may raise TreecastError.
        """
        self.controller = ReplicaController(settings, random, counters, ids)
        self._send = send
        self._want = want
        self._unwant = unwant
        self._store = store
        self._wanted: set[int] = set()
        self._runs: dict[int, int] = {}  # of hosts
        self._waiting: list[tuple[int, Opened]] = []  # until ids are stored
        self._storing: asyncio.Task[None] | None = None
        self._closed = False
        self._wakeups = Wakeups(self._work)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wakeups.start(self._loop)

    def close(self) -> None:
        """Stops, because the home moved or the daemon ends."""
        self._closed = True
        self._wakeups.close()
        if self._storing is not None:
            self._storing.cancel()
        for state in self._wanted:
            self._unwant(state)
        self._wanted.clear()

    # --- what comes

    def copy(self, data: bytes, carried: bool) -> None:
        """Handles a packet of a state."""
        if self._closed:
            return
        self.controller.datagram(data, self._loop.time(), carried=carried)
        self._wakeups.soon()

    def signal(self, host: int, run: int, data: bytes | memoryview) -> None:
        """Handles a signal of a host's run. A new run ends earlier ones, with their VNFs."""
        if self._closed:
            return
        known = self._runs.get(host)
        if known is not None and run < known:
            return
        if known != run:
            self._runs[host] = run
            if known is not None or self.controller.ids.of_host(host, run):
                self.controller.host_gone(host, self._loop.time(), run)
        self.controller.signal(host, data, self._loop.time(), run)
        self._wakeups.soon()

    def host_gone(self, host: int) -> None:
        """Handles a host that left the cluster."""
        if not self._closed:
            self._runs.pop(host, None)
            self.controller.host_gone(host, self._loop.time())
            self._wakeups.soon()

    # --- work

    def _work(self) -> None:
        if self._closed:
            return
        self.controller.work(self._loop.time())
        output = self.controller.take()
        for state in output.wanted:
            self._wanted.add(state)
            self._want(state)
        for state in output.unwanted:
            self._wanted.discard(state)
            self._unwant(state)
        for host, data in output.signals:
            self._send(host, data)
        self._waiting += output.opened
        if self._storing is None:
            self._answer_or_store()
        self._wakeups.at(self.controller.next_deadline(), self._loop.time())

    def _answer_or_store(self) -> None:
        """Sends answers to VNFs, but only once their ids are stored, so that no other run of the controller
        gives them.
        """
        if self.controller.ids.changes:
            self._storing = self._loop.create_task(self._store_ids(), name="VNF ids")
            return
        answers, self._waiting = self._waiting, []
        for host, opened in answers:
            self._send(host, encode_signal(Signal(SignalKind.OPENED, opened=(opened,))))

    async def _store_ids(self) -> None:
        ids = self.controller.ids
        changes, ids.changes = ids.changes, {}
        try:
            await self._store(changes)
        except TreecastError as error:
            _log.warning("VNF ids cannot be stored; answers are delayed", error=error)
            ids.changes = {**changes, **ids.changes}
            await asyncio.sleep(_STORE_AGAIN)
        finally:
            self._storing = None
        self._wakeups.soon()
