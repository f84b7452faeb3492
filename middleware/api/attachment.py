"""A host's attachment to the coordinator: its lease, renewed in time and taken again when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from treecast.middleware.model.errors import Fault, TreecastError

from .coordinator_client import CoordinatorCalls
from .lasting import BackOff, lasting
from .v1 import coordinator_pb2 as pb


class Attachment:
    """Keeps one host attached: renews its lease, and attaches again whenever the lease is lost."""

    def __init__(
        self,
        client: CoordinatorCalls,
        request: pb.AttachRequest,
        on_attached: Callable[[pb.AttachResponse], None] = lambda answer: None,
    ) -> None:
        """`on_attached` is called on the loop after every attach; each has a new session. `on_change` is
        called after each attempt to attach or renew, with the refusal or None.
        """
        self._client = client
        self.request = request  # of the next attach
        self.answer: pb.AttachResponse | None = None  # of the last one
        self._on_attached = on_attached
        self.directory_is_old = False  # an attach got a higher run number than the directory's own
        self.on_old_directory: Callable[[], None] = lambda: None
        self.on_change: Callable[[TreecastError | None], None] = lambda error: None
        self._session: pb.HostSession | None = None
        self._lease = 0.0
        self._task: asyncio.Task[None] | None = None
        self.last_error: TreecastError | None = None  # None while attached without errors

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
        return self._session

    async def attach(self) -> pb.AttachResponse:
        """Attaches once, now. Raises the refusal."""
        self.answer = answer = await self._client.attach(self.request)
        self._session, self._lease = answer.session, answer.lease_seconds
        is_old = answer.run > self.request.run > 0
        self._on_attached(answer)
        if is_old:
            self.directory_is_old = True
            self.on_old_directory()
        return answer

    def start(self) -> None:
        """Keeps the host attached in the background: attaches if necessary, renews, attaches again."""
        if self._task is None:
            work = lasting("attachment to the coordinator", self._run, BackOff(self._client.rng))
            self._task = asyncio.create_task(work)

    async def close(self, *, detach: bool) -> None:
        """Stops renewing. With `detach`, also tells the coordinator; if that fails, the lease expires."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        session, self._session = self._session, None
        if detach and session is not None:
            try:
                await self._client.detach(session)
            except TreecastError as error:
                self.last_error = error

    async def _run(self) -> None:
        back_off = BackOff(self._client.rng)
        while True:
            pause = await self._keep(back_off)
            await asyncio.sleep(pause)

    async def _keep(self, back_off: BackOff) -> float:
        """Attaches or renews. Returns the seconds until the next attempt."""
        try:
            if self._session is None:
                await self.attach()
            else:
                self._lease = (await self._client.renew(self._session)).lease_seconds
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
