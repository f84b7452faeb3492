"""`HostPubSub`: the publish/subscribe of one host for all its faces: hub, journal, turn and bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from treecast.middleware.model.budget import WorkBudget
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.isolation import Isolation
from treecast.middleware.model.logs import Log
from treecast.middleware.model.passes import TURN, Passes
from treecast.middleware.model.rarely import Rarely
from treecast.middleware.model.records import Record
from treecast.middleware.storage.block_log import SyncTicket
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.sync_thread import SyncThread

from .bridge import Bridge
from .bridge.recording import bound_of, refusal_of
from .cluster import Cluster
from .pubsub import Journal, PubSub, PubSubSettings, Undecided, open_journal
from .turn import Turn

_log = Log(__name__)

_TICK = 0.5  # seconds between the ends of turns that were not asked for


class LoopEdge:
    """Implements `turn.Edge` over the running event loop and a thread for syncs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        passes: Passes | None = None,
        isolated: dict[str, int] | None = None,
    ) -> None:
        """`isolated`: counts speakers of a turn that have raised."""
        self._loop = loop
        counted = {} if isolated is None else isolated
        self._isolation = Isolation(counted, _log, "a part of the turn has failed; the others go on")
        self.soon: Callable[[Callable[[], None]], object] = (passes or Passes(loop.call_soon)).at(TURN)
        self._syncs = SyncThread(loop)
        self._complaint = Rarely()

    def force(self, tickets: Sequence[SyncTicket], then: Callable[[list[str]], None]) -> None:
        self._syncs.run(tickets, then)

    def refused(self, error: str) -> None:
        if self._complaint.due(self._loop.time()):
            _log.error("journal cannot be written", error=error, left_out=self._complaint.left_out())

    def failed(self, error: Exception) -> None:
        self._isolation.note("speaker", error)

    async def settled(self) -> None:
        """Returns when no sync is running."""
        await self._syncs.settled()

    def close(self) -> None:
        self._syncs.close()


class HostPubSub:
    """The publish/subscribe of one host, from construction, which opens the journal, to `close`.

    `passes`: of the host's event loop, for all that is written at the end of a pass. `work`: the budget of
    the costly requests of all faces.

    Between construction and `start`, faces restore the sessions in the journal; their interest is then known
    from the start. The constructor raises STORAGE if the journal cannot be read.
    """

    def __init__(
        self,
        settings: PubSubSettings,
        directory: str,
        fsync: FsyncPolicy,
        counters: Counters,
        clock: Callable[[], float],
        disk: Disk | None = None,
    ) -> None:
        """`directory` is the journal's. `clock` returns seconds since the Unix epoch."""
        self._counters = counters
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.passes = Passes(self._loop.call_soon)
        self._edge = LoopEdge(self._loop, self.passes, counters.pubsub.isolated)
        self.work = WorkBudget(self._loop.time, self._loop.call_soon)
        self._shared: tuple[Bridge, Cluster] | None = None
        self.turn = Turn(fsync, self._edge)
        self.hub = PubSub(settings, counters.pubsub)
        self.hub.use_reach(Undecided(self.hub.shares))
        self.hub.clock.wall = clock()
        self.journal = self._open(directory, disk or Disk())
        self._timer = self._loop.call_later(_TICK, self._tick)

    def _open(self, directory: str, disk: Disk) -> Journal:
        hub = self.hub
        journal, highest = open_journal(directory, disk, hub.settings, hub.counters, hub.retained, syncs=True)
        hub.use_journal(journal)
        self.turn.add_store(journal)
        for message in hub.retained.all():
            hub.clock.seen(message.stamp)
        hub.routes.begin_serials(highest)
        return journal

    async def start(self, cluster: Cluster) -> None:
        """Shares topics with Kafka and tells other hosts; called once faces have restored their sessions."""
        bridge = Bridge(self.hub, self.turn, cluster, self._counters.bridge, self._clock)
        self._shared = bridge, cluster
        cluster.events.begin()
        await bridge.start()
        self.hub.use_reach(cluster.events)
        await cluster.begin_events()

    # --- other faces' records

    async def identify(self) -> None:
        """Gets a producer id for `record`, if there is none."""
        if self._shared is not None:
            await self._shared[0].recording.identify()

    def record(self, topic: str, record: Record) -> bool:
        """Appends a record to a topic of one partition, once it is stored with this turn. Returns False, and
        drops it, if it is too large for the topic, if too many bytes wait for the partition, or if the host
        starts or ends."""
        if self._shared is None:
            return False
        bridge, cluster = self._shared
        known, recording = cluster.definitions.topics().get(topic), bridge.recording
        if known is None:
            return False
        if not recording.waiting:
            self.turn.ask()
        return recording.add(known, 0, record, True) is None

    def takes(self, topic: str, record: Record) -> bool:
        """Whether the topic, of whichever host, takes such a record."""
        if self._shared is None:
            return False
        known = self._shared[1].definitions.topics().get(topic)
        return known is not None and refusal_of(known.config, record, bound_of(record)) is None

    def full(self, topic: str) -> bool:
        """Whether `record` refuses more of a topic now, which it may take later."""
        return self._shared is None or self._shared[0].recording.full((topic, 0))

    def _tick(self) -> None:
        self.hub.clock.wall = self._clock()
        self.turn.look()
        self.hub.fold()
        self._tell_levels()
        self._timer = self._loop.call_later(_TICK, self._tick)

    def _tell_levels(self) -> None:
        levels = self._counters.pubsub_levels
        levels.subscriptions = self.hub.subscriptions
        levels.retained = self.hub.retained.count
        levels.journal_bytes = self.journal.size

    async def leave(self) -> None:
        """Stops messages from crossing faces and hosts, while subscribers still are there. Safe to call
        twice."""
        if self._shared is not None:
            bridge, cluster = self._shared
            self._shared = None
            await bridge.close()
            await cluster.end_events()
            self.hub.use_reach(None)

    async def close(self) -> None:
        """Closes after the faces and before the cluster. Forces writes to disk under every policy."""
        await self.leave()
        self.turn.end()
        await self._edge.settled()
        self.abandon()

    def abandon(self) -> None:
        """Closes the journal. Safe to call twice."""
        self._timer.cancel()
        journal = self.hub.journal
        self.hub.use_journal(None)
        if journal is None:
            return
        self.turn.remove_store(journal)
        journal.flush()
        with suppress(OSError):
            journal.begin_sync()[0].run()
        journal.close()
        self._edge.close()

    # --- chores

    async def sweep(self, now: float) -> None:
        """Forgets retained messages that have expired."""
        self.hub.sweep()

    def force(self) -> None:
        """Begins to force to disk what was written since the last call, if the policy says so: the journal,
        and the stores of faces that take part in the turn."""
        self.turn.force()
