"""The embedded controller beside a switch that is reached by P4Runtime: packets in, entries and packets out.

Pending writes are collected while the switch works on earlier ones, keeping only the latest per state. The
controller's packets are sent after earlier writes, so an acknowledgement is true when it leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from finsy.proto import p4r
from msgspec.structs import replace

from treecast.middleware.control.switches import (
    Change,
    EntryKey,
    Kind,
    SwitchDiffers,
    SwitchRefused,
    SwitchSession,
    SwitchState,
)
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.timers import Random
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER

from .embedded import BETWEEN_SWITCHES, EXPIRE, EmbeddedController, Place
from .programming import NO_ROUTES, TABLE, Routes, embedded_state, entry_of, matches_of, width_of

_log = Log(__name__)

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
        run: int = 0,
        heard: Callable[[bytes], bool] | None = None,
    ) -> None:
        """`address`: of the switch's P4Runtime. `expire`: seconds until a subscription that is not refreshed
        expires. `run`: number of this process, higher than of those before, which the switch may still know;
        `heard`: takes a packet, after the number of its port (16 bits), before the controller does; returns
        whether it was its own.
        """
        self.ready = asyncio.Event()
        self.controller: EmbeddedController | None = None  # once the switch's program is known
        self._settings, self._random, self._expire = settings, random, expire
        self._bytes = 0  # size of a set of ports
        self._address = address
        self._election = run << 32
        self._first = heard
        self._session: SwitchSession | None = None  # while the switch is reached
        self._place = place
        self._ports: tuple[int, ...] = ()
        self._routes = NO_ROUTES
        self._moved = False  # the switch does not hold its place and routes yet
        self._wanted: dict[int, int] = {}  # ports by state, not yet written
        self._held: dict[int, int] = {}  # ports by state, as the switch has them
        self._frames: list[tuple[int, bytes]] = []
        self._work = asyncio.Event()

    def write(self, state: int, ports: int) -> None:
        self._wanted[state] = ports

    def send(self, ports: int, frame: bytes) -> None:
        self._frames.append((ports, frame))

    @property
    def open(self) -> bool:
        """Whether the switch is reached now."""
        return self._session is not None and not self._session.lost.is_set()

    def become(self, place: Place, ports: Iterable[int], routes: Routes) -> None:
        """Takes another place in the network's tree."""
        self._place, self._ports, self._routes = place, tuple(ports), routes
        self._moved = True
        if self.controller is not None:
            self.controller.become(place, asyncio.get_running_loop().time())
        self._work.set()

    def probe(self, port: int, frame: bytes) -> None:
        """Sends a frame out of a port if the switch is reached."""
        if self.open:
            self.send(1 << port, frame)
            self._work.set()

    async def keep(self, again: float) -> None:
        """Serves the switch, whose place is known by `become`, until it is cancelled. After a session was
        lost another is opened, at most each `again` seconds; the switch then gets what it has lost.
        """
        while True:
            try:
                await self.run(self._ports, self._routes)
            except (OSError, ValueError, SwitchRefused, SwitchDiffers) as error:
                _log.warning("switch is not served", switch=self._address, error=error)
            await asyncio.sleep(again)

    async def run(self, ports: Iterable[int], routes: Routes = NO_ROUTES) -> None:
        """Programs the switch, which runs p4/stare_embedded.p4, and serves it. Raises SwitchRefused or
        ValueError.
        """
        self._loop = asyncio.get_running_loop()
        self._ports, self._routes = tuple(ports), routes
        self._election += 1
        async with SwitchSession(self._address, election_id=self._election, heard=self._heard) as session:
            await session.learn_program()
            width = width_of(session.schema.info)
            controller = self.controller = self.controller or self._new_controller(width)
            await self._program(session, controller, width)
            self._session = session
            self.ready.set()
            watching = asyncio.create_task(self._wake_when(session.lost))
            try:
                await self._serve(session, controller, width)
            finally:
                watching.cancel()
        raise SwitchRefused(f"{self._address}: the session has ended")

    async def _wake_when(self, event: asyncio.Event) -> None:
        await event.wait()
        self._work.set()

    async def _serve(self, session: SwitchSession, controller: EmbeddedController, width: int) -> None:
        while not session.lost.is_set():
            if self._moved:
                await self._program(session, controller, width)
            await self._flush(session)
            await self._wait(controller)
            controller.work(self._loop.time())

    async def _program(self, session: SwitchSession, controller: EmbeddedController, width: int) -> None:
        """Brings the switch to its place, with the entries that its controller has."""
        self._moved, self._wanted = False, {}
        held = self._held = controller.held()
        own = embedded_state(self._place, self._ports, self._routes, width=width)
        entries = SwitchState.of(entries=[(TABLE, entry_of(state, to)) for state, to in held.items()]).entries
        await session.bring_to(replace(own, entries={**own.entries, **entries}))

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
        if self._first is not None and self._first(port + message.packet.payload):
            return
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
