"""`HostQueues`: the queues of one host for all its faces: log, virtual hosts, time-outs, other hosts.

Queues are there whichever faces are on: they are a home to other hosts' clients, and their messages expire.

The changes of a pass of the event loop are written to the store at its end, before anything else, so a
message is never delivered before the store knows that it was handed out. `QueueEdge` has this order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from treecast.middleware.model.counters import QueueLevels
from treecast.middleware.model.logs import Log
from treecast.middleware.model.passes import FACES, Passes
from treecast.middleware.model.timers import NEVER
from treecast.middleware.storage.disk import Disk

from ..turn import Turn
from .exchange import HeaderReader
from .joined import JoinedQueues
from .reach import Reach
from .restoring import QueueStorage
from .settings import QueueSettings
from .spool import SPOOLS, taken_from
from .virtual_host import VirtualHost
from .virtual_hosts import KIND, LocalVirtualHosts, StreamHost

_log = Log(__name__)

_SEGMENT_BYTES: Final = 16 << 20  # of the log: one remaining message keeps a whole segment on disk
_TICK: Final = 0.5  # seconds between looks at what is due without a deadline of its own
_SOONEST: Final = 0.001  # seconds until a deadline that has passed: never in the pass that sets it
_LEAVE: Final = 1.0  # seconds for telling other hosts which queues end with their connections


class Storage(Protocol):
    """The store of the queues."""

    @property
    def size(self) -> int:
        """The size on disk in bytes."""

    @property
    def only_notes(self) -> bool:
        """Whether nothing is gathered that deliveries have to wait for."""

    def flush(self) -> bool:
        """Writes the changes since the last call. Returns whether all are written."""


class Dialect(Protocol):
    """The part that only the protocol of the queues' messages knows, also while its face is off: their
    headers, and how they become records and messages of topics."""

    @property
    def reader(self) -> HeaderReader: ...

    @property
    def streams(self) -> StreamHost: ...

    def begin(self) -> None:
        """The queues are restored: from now on they get what they want of other faces."""

    async def close(self) -> None: ...


class QueueEdge:
    """The end of each pass of the event loop, and the time-outs of queues.

    `outputs` write what connections of faces got. They are told up to which version other hosts know the
    definitions; an answer to a later one has to wait.
    """

    def __init__(
        self,
        hosts: LocalVirtualHosts,
        storage: Storage,
        passes: Passes | None = None,
        levels: QueueLevels | None = None,
    ) -> None:
        """`levels` is updated periodically with the current totals of the queues. `passes` is the host's; the
        default is one of its own."""
        self.outputs: list[Callable[[int], None]] = []
        self._hosts = hosts
        self._storage = storage
        self._levels = levels if levels is not None else QueueLevels()
        self._loop = asyncio.get_running_loop()
        self._passes = passes or Passes(self._loop.call_soon)
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._due: asyncio.TimerHandle | None = None
        self._due_at = NEVER  # of `_due`
        self.closed = False

    def start(self) -> None:
        self._tick()

    def act(self) -> None:
        """Schedules a flush at the end of this pass of the event loop, after queues have changed."""
        if not self._scheduled:
            self._scheduled = True
            self._passes.add(FACES, self.flush)

    def flush(self) -> None:
        """Writes to the store, then to other hosts, then to the connections.

        Only notes are written last, as a single message from another host is on its way to its consumer then.
        """
        self._scheduled = False
        if self.closed:
            return
        joined = self._hosts.joined
        known = 0
        only_notes = self._storage.only_notes
        if not only_notes:
            self._storage.flush()
        if joined is not None:
            joined.now = self._loop.time()
            joined.send()
            known = joined.definitions.known
        for write in self.outputs:
            write(known)
        if only_notes:
            self._storage.flush()
        self._time(self._loop.time())

    # --- time

    def _tick(self) -> None:
        now, wall = self._loop.time(), time.time()
        for vhost in self._hosts.vhosts.values():
            vhost.wall = wall
        joined = self._hosts.joined
        if joined is not None:
            joined.now, joined.wall = now, wall
            joined.tick()
        self._tell_levels()
        self._time(now)
        self._timer = self._loop.call_later(_TICK, self._tick)

    def _time(self, now: float) -> None:
        """Sets a timer for deadlines that fall before the next tick."""
        at = NEVER
        for vhost in self._hosts.vhosts.values():
            if vhost.deadline < at:
                at = vhost.deadline
        if at < now + _TICK and at < self._due_at:
            if self._due is not None:
                self._due.cancel()
            self._due_at = at
            self._due = self._loop.call_later(max(at - now, _SOONEST), self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        for vhost in list(self._hosts.vhosts.values()):
            vhost.wall = time.time()
            vhost.tick(now)
        self._due = None
        self._due_at = NEVER
        self.act()

    def _tell_levels(self) -> None:
        queues = [queue for vhost in self._hosts.vhosts.values() for queue in vhost.queues.values()]
        levels = self._levels
        levels.queues = len(queues)
        levels.ready = sum([queue.ready for queue in queues])
        levels.unsettled = sum([queue.unsettled for queue in queues])
        levels.stored_bytes = self._storage.size

    def stop(self) -> None:
        """Looks at nothing any more. What is done from now on is still sent and written, until `close`."""
        for timer in (self._timer, self._due):
            if timer is not None:
                timer.cancel()
        self._due_at = 0.0  # no timer is set from now on

    def close(self) -> None:
        self.stop()
        self.closed = True


class HostQueues:
    """The queues of one host, from construction, which opens their log, to `close`.

    `hosts` are the virtual hosts. `recorder` keeps definitions beside those of queues, as `kept` finds them.
    Between `restore` and `begin`, faces take up what they know of other hosts' definitions
    (`hosts.joined.definitions.outside`). The constructor raises STORAGE if the log cannot be read.
    """

    def __init__(
        self,
        settings: QueueSettings,
        directory: str,
        turn: Turn,
        passes: Passes,
        levels: QueueLevels | None = None,
        disk: Disk | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._storage = storage = QueueStorage(
            directory,
            disk or Disk(),
            offset=time.time() - loop.time(),
            syncs=True,
            segment_bytes=_SEGMENT_BYTES,
        )
        self._loop = loop
        self._turn = turn
        self.store = storage.store
        self.recorder = storage.journal.recorder("/")
        self.hosts = LocalVirtualHosts(self.store, self.recorder, settings, self.kept(KIND))
        self.edge = QueueEdge(self.hosts, self.store, passes, levels)
        self._spools = VirtualHost(SPOOLS, self.store, storage.journal.recorder(SPOOLS), settings)
        self._dialect: Dialect | None = None
        self._reach: Reach | None = None
        self._closed = False

    def kept(self, kind: str) -> dict[str, object] | None:
        """Returns the stored definition of a kind that `recorder` has declared; None if there is none."""
        found = self._storage.journal.definition("/", kind, b"")
        return dict(found) if found is not None else None

    @property
    def refused_writes(self) -> int:
        """How often the disk has refused a write."""
        return self.store.refusals

    # --- opening

    def restore(self, dialect: Dialect, reach: Reach | None) -> None:
        """Restores the queues. `reach`: the way to other hosts; None on a host alone. Raises STORAGE."""
        self.hosts.use(dialect.reader, dialect.streams)
        messages = self._storage.restore(self._vhost_of, self._loop.time())
        queues = sum(len(vhost.queues) for vhost in self.hosts.vhosts.values())
        if queues:
            _log.info("queues restored", queues=queues, messages=messages)
        # Written before the publish/subscribe journal, which records what other hosts have sent.
        self._turn.add_store(self.store, first=True)
        self._dialect, self._reach = dialect, reach
        dialect.begin()
        if reach is not None:
            taken = taken_from(self._storage.journal.declared.values())
            self.hosts.join(JoinedQueues(self.hosts, self._spools, taken, reach, self.edge.act))

    def _vhost_of(self, name: str) -> VirtualHost:
        if name == SPOOLS:
            return self._spools
        return self.hosts.vhosts.get(name) or self.hosts.add_vhost(name)

    def begin(self) -> None:
        """Lets definitions and messages cross hosts from now on, and queues expire. Nothing was restored:
        there are no queues, and other hosts are refused."""
        if self._dialect is None:
            return
        self.edge.start()
        if self._reach is not None and self.hosts.joined is not None:
            self._reach.join(self.hosts.joined)

    # --- closing

    async def close(self) -> None:
        """Closes after the faces, and after messages have stopped to cross hosts. Writes the queues and
        forces them to disk under every policy. Safe to call twice."""
        if self._closed:
            return
        if self._dialect is not None:
            await self._dialect.close()
        self.edge.stop()
        self.edge.flush()
        if self._reach is not None:
            await self._reach.leave(_LEAVE)
        self.abandon()

    def abandon(self) -> None:
        """Writes and closes the log. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.edge.close()
        if self._dialect is not None:
            self._turn.remove_store(self.store)
            self.store.flush()
            with suppress(OSError):
                self.store.begin_sync()[0].run()
        self.store.close()
