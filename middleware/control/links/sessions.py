"""A switch's P4Runtime session that is opened again after it was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

from finsy.proto import p4r

from treecast.middleware.control.switches import Program, SwitchRefused, SwitchSession, SwitchState
from treecast.middleware.model.logs import Log

_log = Log(__name__)

CALL_SECONDS = 30.0


class LastingSession:
    """A switch for a manager. `heard`: called with each packet that the switch sends to its controller.

    Each session has a higher election id than those before, also of earlier runs (`run`, from 1): the switch
    may not have noticed yet that they ended.
    """

    def __init__(
        self,
        name: str,
        address: str,
        run: int,
        heard: Callable[[bytes], object],
        program: Program | None = None,
    ) -> None:
        """`program`: what the switch shall run; None: what it runs already."""
        self._program = program
        self.name = name
        self._address = address
        self._heard = heard
        self._election = run << 32
        self._sending = asyncio.Lock()  # a stream takes one message at a time
        self._session: SwitchSession | None = None

    @property
    def open(self) -> bool:
        return self._session is not None and not self._session.lost.is_set()

    async def connect(self) -> bool:
        """Opens the session if there is none. Returns whether it was opened now."""
        if self.open:
            return False
        await self.close()
        self._election += 1
        session = SwitchSession(
            self._address, election_id=self._election, name=self.name, heard=self._message
        )
        async with self._answering():
            await session.__aenter__()
        try:
            async with self._answering():
                if self._program is None:
                    await session.learn_program()
                else:
                    await session.set_program(self._program)
        except BaseException:
            await session.__aexit__()
            raise
        self._session = session
        return True

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__()

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                yield
        except TimeoutError as error:
            raise SwitchRefused(f"{self.name} does not answer") from error

    def _message(self, message: p4r.StreamMessageResponse) -> None:
        if message.HasField("packet"):
            self._heard(message.packet.payload)

    def _opened(self) -> SwitchSession:
        if self._session is None or not self.open:
            raise SwitchRefused(f"{self.name} is not reached")
        return self._session

    # --- calls

    async def read(self) -> SwitchState:
        session = self._opened()
        async with self._answering():
            return await session.read()

    async def bring_to(self, desired: SwitchState) -> int:
        session = self._opened()
        async with self._answering():
            return await session.bring_to(desired)

    async def counter(self, name: str, cells: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Returns packets and bytes in cells of a counter."""
        session = self._opened()
        async with self._answering():
            return await session.counter(name, cells)

    async def send(self, frame: bytes) -> None:
        """Sends a frame into the switch."""
        session = self._opened()
        async with self._sending, self._answering():
            await session.send_packet(frame)
