"""The embedded controller beside a switch that is reached by P4Runtime: packets in, entries and packets out.

Pending writes are collected while the switch works on earlier ones, keeping only the latest per state. The
controller's packets are sent after earlier writes, so an acknowledgement is true when it leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from finsy.proto import p4r

from treecast.middleware.control.switches import Change, EntryKey, Kind, SwitchRefused, SwitchSession
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.timers import Random
from treecast.middleware.model.timers import NEVER

from .embedded import BETWEEN_SWITCHES, EXPIRE, EmbeddedController, Place
from .programming import NO_ROUTES, TABLE, Routes, embedded_state, entry_of, matches_of, width_of

_PORTS_FIELD = 1  # of the packet-out header, by its number in P4Info
_ENTRY_STAGE, _GONE_STAGE = 2, 3


class StareAgent:
    """The agent of one switch, from `run` until it is cancelled. It is its controller's `SwitchDriver`."""

    def __init__(
        self,
        address: str,
        place: Place,
        random: Random,
        settings: StareSettings = BETWEEN_SWITCHES,
        *,
        expire: float = EXPIRE,
    ) -> None:
        """`address`: of the switch's P4Runtime. `expire`: seconds until a subscription that is not refreshed
        expires.
        """
        self.ready = asyncio.Event()
        self.controller: EmbeddedController | None = None  # once the switch's program is known
        self._settings, self._random, self._expire = settings, random, expire
        self._bytes = 0  # size of a set of ports
        self._address = address
        self._place = place
        self._wanted: dict[int, int] = {}  # ports by state, not yet written
        self._held: dict[int, int] = {}  # ports by state, as the switch has them
        self._frames: list[tuple[int, bytes]] = []
        self._work = asyncio.Event()

    def write(self, state: int, ports: int) -> None:
        self._wanted[state] = ports

    def send(self, ports: int, frame: bytes) -> None:
        self._frames.append((ports, frame))

    async def run(self, ports: Iterable[int], routes: Routes = NO_ROUTES) -> None:
        """Programs the switch, which runs p4/stare_embedded.p4, and serves it. Raises SwitchRefused or
        ValueError.
        """
        self._loop = asyncio.get_running_loop()
        async with SwitchSession(self._address, heard=self._heard) as session:
            await session.learn_program()
            width = width_of(session.schema.info)
            controller = self.controller = self._new_controller(width)
            await session.bring_to(embedded_state(self._place, ports, routes, width=width))
            self.ready.set()
            while not session.lost.is_set():
                await self._flush(session)
                await self._wait(controller)
                controller.work(self._loop.time())
        raise SwitchRefused(f"{self._address}: the session has ended")

    def _new_controller(self, width: int) -> EmbeddedController:
        """Returns a controller for sets of `width` ports."""
        self._bytes = width // 8
        return EmbeddedController(
            self._settings, self._random, self._place, self, width=width, expire=self._expire
        )

    async def _wait(self, controller: EmbeddedController) -> None:
        """Waits until a packet arrives or work is due."""
        at = controller.next_deadline()
        wait = None if at == NEVER else max(at - self._loop.time(), 0.0)
        try:
            async with asyncio.timeout(wait):
                await self._work.wait()
        except TimeoutError:
            pass
        self._work.clear()

    def _heard(self, message: p4r.StreamMessageResponse) -> None:
        if self.controller is None or message.WhichOneof("update") != "packet":
            return  # packets that arrive before the switch is programmed are sent again
        port = b"".join(one.value for one in message.packet.metadata)[-2:].rjust(2, b"\0")
        self.controller.packet_in(port + message.packet.payload, self._loop.time())
        self._work.set()

    async def _flush(self, session: SwitchSession) -> None:
        wanted, self._wanted = self._wanted, {}
        frames, self._frames = self._frames, []
        changes = [change for state, ports in wanted.items() if (change := self._change(state, ports))]
        if changes:
            await session.write(sorted(changes, key=lambda change: change.stage))
        for ports, frame in frames:
            metadata = p4r.PacketMetadata(metadata_id=_PORTS_FIELD, value=ports.to_bytes(self._bytes))
            await session.send_packet(frame, [metadata])

    def _change(self, state: int, ports: int) -> Change | None:
        before = self._held.get(state, 0)
        if before == ports:
            return None
        key = EntryKey.of(TABLE, matches_of(state))
        if not ports:
            del self._held[state]
            return Change(_GONE_STAGE, Kind.DELETE, "entries", key, entry_of(state, before))
        self._held[state] = ports
        kind = Kind.MODIFY if before else Kind.INSERT
        return Change(_ENTRY_STAGE, kind, "entries", key, entry_of(state, ports))
