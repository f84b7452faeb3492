"""A host's attachment to the coordinator: its lease, renewed in time and taken again when it is lost.

Renewals tell how far the host's data directory has come: a stamp, which is on its disk before it is told. A
directory with a lower stamp than the coordinator has heard of is an older one (`model.runs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .coordinator_calls import CoordinatorCalls, ViewWanted
from .lasting import BackOff, lasting
from .v1 import coordinator_pb2 as pb

STAMP_SECONDS = 10.0  # between two stamps: a copy of a directory is recognised once it is so much older

# In the coordinator's refusals (`control.hosts`) of a second host of a name; others are not the name's.
_TAKEN = ("is attached already", "another daemon runs as host")

_log = Log(__name__)


def name_is_taken(error: TreecastError) -> bool:
    """Returns whether an attach was refused because another data directory is attached under the name."""
    return error.fault is Fault.POLICY_VIOLATION and any(text in error.detail for text in _TAKEN)


class Attachment:
    """Keeps one host attached: renews its lease, and attaches again whenever the lease is lost."""

    def __init__(
        self,
        client: CoordinatorCalls,
        request: pb.AttachRequest,
        on_attached: Callable[[pb.AttachResponse], None] = lambda answer: None,
        move_stamp: Callable[[], int] | None = None,
        stamp_seconds: float = STAMP_SECONDS,
    ) -> None:
        """`on_attached` is called on the loop after every attach; each has a new session. `on_change` is
        called after each attempt to attach or renew, with the refusal or None. `move_stamp` raises the stamp
        on the host's disk and returns it, on a thread of its own; it may raise OSError.
        """
        self._client = client
        self.request = request  # of the next attach
        self.answer: pb.AttachResponse | None = None  # of the last one
        self._on_attached = on_attached
        self.directory_is_old = False  # an attach of this run found another one, or a later state
        self.on_old_directory: Callable[[], None] = lambda: None
        self.on_change: Callable[[TreecastError | None], None] = lambda error: None
        # Called when the coordinator wants this host's view, whose store is an older state; hands it in.
        self.on_wanted: Callable[[ViewWanted], Awaitable[None]] = _cannot
        self._session: pb.HostSession | None = None
        self._lease = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._move_stamp = move_stamp
        self._stamp_seconds = stamp_seconds
        self._stamp_told = 0  # the last stamp that the coordinator has
        self.last_error: TreecastError | None = None  # None while attached without errors
        self._moved = asyncio.Event()

    @property
    def attached(self) -> bool:
        return self._session is not None

    @property
    def session(self) -> pb.HostSession:
        """The present session. Raises COORDINATOR_UNAVAILABLE while not attached."""
        if self._session is None:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"not attached to the coordinator at {self._client.target}: {self.last_error or 'not yet'}",
            )
        return self._told(self._session)

    def watching(self) -> pb.HostSession:
        """Returns the session for a watch, which needs none: how far the host's view is."""
        return self._told(self._session or pb.HostSession())

    def _told(self, session: pb.HostSession) -> pb.HostSession:
        heard = self._client.heard()
        heard.name = self.request.name
        return pb.HostSession(host_id=session.host_id, incarnation=session.incarnation, heard=heard)

    async def attach(self) -> pb.AttachResponse:
        """Attaches once, now. Raises the refusal."""
        self.answer = answer = await self._client.attach(self.request)
        self._session, self._lease = answer.session, answer.lease_seconds
        # a later attach of the same run answers the same again
        is_old = answer.older and (answer.run > self.request.run or not self.directory_is_old)
        self._on_attached(answer)
        if is_old:
            self.directory_is_old = True
            self.on_old_directory()
        return answer

    def move(self, address: str) -> None:
        """Attaches again, at once and with another address of the fabric."""
        self.request.address = address
        self._moved.set()

    def start(self) -> None:
        """Keeps the host attached in the background: attaches if necessary, renews, attaches again."""
        if self._tasks:
            return
        work = lasting("attachment to the coordinator", self._run, BackOff(self._client.rng))
        self._tasks = [asyncio.create_task(work)]
        if self._move_stamp is not None:
            work = lasting("stamps of the data directory", self._stamp, BackOff(self._client.rng))
            self._tasks.append(asyncio.create_task(work))

    async def close(self, *, detach: bool) -> None:
        """Stops renewing. With `detach`, also tells the coordinator; if that fails, the lease expires."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        session, self._session = self._session, None
        if detach and session is not None:
            try:
                await self._take_stamp()
                await self._client.detach(session, self._stamp_to_tell)
            except TreecastError as error:
                self.last_error = error

    async def _stamp(self) -> None:
        """Moves the stamp for ever. Beside the renewals: a slow disk must not cost the lease."""
        while True:
            await asyncio.sleep(self._stamp_seconds)
            await self._take_stamp()

    async def _take_stamp(self) -> None:
        if self._move_stamp is None or not self.request.runs:
            return
        try:
            stamp = await asyncio.to_thread(self._move_stamp)
        except OSError as error:
            _log.warning("stamp of the data directory cannot be written", error=error)
        else:
            self.request.runs[-1].stamp = stamp  # also of the next attach

    @property
    def _stamp_to_tell(self) -> int:
        """The stamp on disk, or 0 if the coordinator has it already."""
        stamp = self.request.runs[-1].stamp if self.request.runs else 0
        return stamp if stamp != self._stamp_told else 0

    async def _run(self) -> None:
        back_off = BackOff(self._client.rng)
        while True:
            pause = await self._keep(back_off)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._moved.wait()

    async def _keep(self, back_off: BackOff) -> float:
        """Attaches or renews. Returns the seconds until the next attempt."""
        try:
            if self._session is None or self._moved.is_set():
                self._moved.clear()
                await self._attach_as_is()
            else:
                stamp = self._stamp_to_tell
                self._lease = (await self._client.renew(self.session, stamp)).lease_seconds
                self._stamp_told = stamp or self._stamp_told
        except ViewWanted as wanted:
            return await self._hand_in(wanted, back_off)
        except TreecastError as error:
            lost = error.fault is Fault.UNKNOWN_MEMBER and self._session is not None
            if lost:
                self._session = None
            self.last_error = error
            if not lost:
                self.on_change(error)
            return 0.0 if lost else min(back_off.pause(), max(self._lease / 3, 0.1))
        back_off.reset()
        self.last_error = None
        self.on_change(None)
        return self._lease / 3 * (0.75 + self._client.rng.random() / 4)

    async def _attach_as_is(self) -> None:
        """Attaches with the present address. If that fails, a later attempt does."""
        try:
            await self.attach()
        except TreecastError:
            self._session = None
            raise

    async def _hand_in(self, wanted: ViewWanted, back_off: BackOff) -> float:
        try:
            await self.on_wanted(wanted)
        except TreecastError as error:
            self.last_error = error
            self.on_change(error)
            return min(back_off.pause(), max(self._lease / 3, 0.1))
        return 0.0


async def _cannot(wanted: ViewWanted) -> None:
    raise wanted
