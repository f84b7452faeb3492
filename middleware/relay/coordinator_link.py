"""`CoordinatorLink`: a host's attachment to the coordinator, the watch that feeds the view, and calls.

While the coordinator is away, the host goes on with its view and calls are refused with
COORDINATOR_UNAVAILABLE. Loss and return of the coordinator are each logged once and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.coordinator_calls import CoordinatorCalls, ViewWanted
from treecast.middleware.api.entries import START, Change, HostEntry, Position, TopicEntry, Update
from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.runs import DirectoryState

from .view import ClusterView
from .view_store import ViewStore

REFUSED_SECONDS = 10.0  # pause before a coordinator that refused this host is asked again
SEEN_SECONDS = 10.0  # the longest time from the coordinator's answer until this host's view has the change

T = TypeVar("T")

_log = Log(__name__)


async def called(call: Awaitable[T]) -> T:
    """Awaits a call to the coordinator, with UNKNOWN_MEMBER raised as COORDINATOR_UNAVAILABLE.

    UNKNOWN_MEMBER means that this host's session is unknown; the host is about to attach again.
    """
    try:
        return await call
    except TreecastError as error:
        if error.fault is not Fault.UNKNOWN_MEMBER:
            raise
        raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, error.detail) from error


class CoordinatorLink:
    """The link to the coordinator, in use from `load` and `start` to `close`.

    `client` makes the calls, with `session` for those that need one.
    """

    def __init__(
        self,
        client: CoordinatorCalls,
        attachment: Attachment,
        view: ClusterView,
        counters: RelayCounters,
    ) -> None:
        self.client = client
        self.view = view
        self._attachment = attachment
        self._counters = counters
        self._store: ViewStore | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[asyncio.Future[None], int] = {}  # -> the revision waited for
        self._away = False
        self._attached_late: list[Callable[[], None]] = []
        self.refused: TreecastError | None = None  # why the coordinator refuses this host
        self.on_old_directory: Callable[[], None] = lambda: None  # an attach during the run has found it old
        self.not_attached: TreecastError | None = None  # why it does not let this host attach
        attachment.on_change = self._note_attachment
        attachment.on_old_directory = self._note_old_directory
        self.wanted = ""  # why the coordinator wants this host's view, until its store has it
        client.position = lambda: view.position
        attachment.on_wanted = self._hand_in
        view.on_reached(self._reached)

    @property
    def session(self) -> pb.HostSession:
        """The host's session. Raises COORDINATOR_UNAVAILABLE while the host is not attached."""
        return self._attachment.session

    @property
    def directory(self) -> DirectoryState:
        """This host's data directory, as the coordinator knows it."""
        request = self._attachment.request
        return DirectoryState(request.instance, tuple(run.id for run in request.runs))

    @property
    def directory_is_old(self) -> bool:
        """Whether an attach of this run found that the coordinator knows another directory of this host, or a
        later state of this one."""
        return self._attachment.directory_is_old

    @property
    def attached(self) -> bool:
        """Whether the host is attached and the coordinator answered the last call of the attachment."""
        return self._attachment.attached and self._attachment.last_error is None

    @property
    def last_error(self) -> TreecastError | None:
        """Why the coordinator cannot be reached; None if it can."""
        return self._attachment.last_error

    def move(self, address: str) -> None:
        """Attaches with another address of this host's fabric, HOST:PORT, as soon as possible."""
        self._attachment.move(address)

    def once_attached(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when a host that started without the coordinator is attached."""
        self._attached_late.append(listener)

    def load(self, store: ViewStore) -> None:
        """Loads the view that an earlier run stored."""
        self._store = store
        known = store.load()
        if known is not None:
            self.view.apply(known)
            self.client.epoch = max(self.client.epoch, known.position.epoch)

    async def fetch(self) -> None:
        """Gets a snapshot from the coordinator now.

        Raises COORDINATOR_UNAVAILABLE after `SEEN_SECONDS` without an answer.
        """
        try:
            async with asyncio.timeout(SEEN_SECONDS), aclosing(self._updates()) as updates:
                await self._take(await anext(updates))
        except TimeoutError:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"the coordinator at {self.client.target} sends no view; try again later",
            ) from None

    def start(self) -> None:
        work = lasting("watch of the coordinator", self._watch, BackOff(self.client.rng))
        self._tasks = [asyncio.create_task(work, name="watch of the coordinator")]

    async def close(self, *, detach: bool) -> None:
        """Stops watching; with `detach` tells the coordinator of the orderly shutdown."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for waiting in list(self._waiting):
            waiting.cancel()
        await self._attachment.close(detach=detach)

    # --- waiting for updates

    async def seen(self, revision: int, seconds: float = SEEN_SECONDS) -> None:
        """Returns when the view has `revision`. Raises TIMED_OUT after `seconds`."""
        if self.view.position.revision >= revision:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = revision
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            raise TreecastError(
                Fault.TIMED_OUT,
                f"the coordinator made the change, but this host did not see it within {seconds:g} s",
            ) from None
        finally:
            self._waiting.pop(waiting, None)

    async def first_seen(self, seconds: float) -> bool:
        """Waits at most `seconds` for the first update; returns whether the view has any."""
        if self.view.position.history:
            return True
        try:
            await self.seen(1, seconds)
        except TreecastError:
            return False
        return True

    def _reached(self, position: Position) -> None:
        for waiting, revision in list(self._waiting.items()):
            if position.revision >= revision and not waiting.done():
                waiting.set_result(None)

    async def _watch(self) -> None:
        """Watches the coordinator and retries forever after a refusal: the coordinator may be replaced."""
        while True:
            try:
                async with aclosing(self._updates(self.view.position)) as updates:
                    async for update in updates:
                        self.refused = None
                        await self._take(update)
            except TreecastError as error:
                if str(error) != str(self.refused):
                    _log.error(
                        "coordinator refuses this host, which continues with what it knows", error=error
                    )
                self.refused = error
            await asyncio.sleep(REFUSED_SECONDS)

    def _updates(self, position: Position = START) -> AsyncGenerator[Update, None]:
        return self.client.watch(position, self._attachment.watching)

    async def _take(self, update: Update) -> None:
        if update.snapshot and update.position.history != self.view.position.history:
            self._check_store(update.changes)
        if self._store is not None:
            # Stored first: after a kill, the host starts from a view no older than what it has acted on.
            await self._store.save(update)
        self.view.apply(update)
        self._counters.coordinator_updates += 1

    def _check_store(self, changes: Sequence[Change]) -> None:
        """Raises POLICY_VIOLATION if the coordinator has a new store, with none of the topics known here.

        Applying its snapshot would delete all topics. A coordinator with an older state of its store passes.
        """
        own = self.view.host_named(self._attachment.request.name)
        topics = {topic.topic_id for topic in self.view.topics}
        if own is None or not topics:
            return
        for change in changes:
            match change.entry:
                case TopicEntry(topic_id=topic_id) if topic_id in topics:
                    return
                case HostEntry(name=own.name, incarnation=later) if later > own.incarnation:
                    return
        raise TreecastError(
            Fault.POLICY_VIOLATION,
            f"the coordinator at {self.client.target} knows none of the {len(topics)} topics that this host"
            " knows: its store is lost; stop it, and rebuild the store with `treecast restore-coordinator`",
        )

    # --- the attachment

    def _note_old_directory(self) -> None:
        self.on_old_directory()

    async def _hand_in(self, wanted: ViewWanted) -> None:
        """Hands in the view to a coordinator whose store is an older state."""
        if not self.wanted:
            _log.error("coordinator's store is an older state; this host hands in its view", error=wanted)
        self.wanted = wanted.detail
        await self.client.hand_in(self._attachment.request.name, self.view.position, self.view.entries())
        self.wanted = ""
        self._counters.views_handed_in += 1

    def _note_attachment(self, error: TreecastError | None) -> None:
        """Called after each attempt to attach or renew."""
        if error is None:
            listeners, self._attached_late = self._attached_late, []
            for listener in listeners:
                listener()
        self._note_refusal(error)
        if error is not None and not self._away:
            self._away = True
            self._counters.coordinator_lost += 1
            _log.warning("coordinator is away; the host continues with what it knows", error=error)
        if error is None:
            self.wanted = ""
        if error is None and self._away:
            self._away = False
            self._counters.coordinator_found += 1
            _log.info("coordinator is back")

    def _note_refusal(self, error: TreecastError | None) -> None:
        """Logs a refusal to attach, which lasts: another daemon has this host's name."""
        refused = error if error is not None and error.fault is Fault.POLICY_VIOLATION else None
        if refused is not None and str(refused) != str(self.not_attached):
            _log.error("coordinator does not let this host attach", error=refused)
        self.not_attached = refused
