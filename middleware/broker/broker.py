"""`Broker`: one host's broker, from opening its data directory to closing it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from treecast.middleware.model.budget import WorkBudget
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host, new_cluster_id
from treecast.middleware.model.logs import Log

from .cluster import Cluster
from .composition import Parts
from .directory import DataDirectory
from .long_poll import LongPolls
from .parts import JoinCluster
from .pubsub_host import HostPubSub
from .queues.host import HostQueues
from .schemas import TopicSchemas
from .settings import BrokerSettings

_log = Log(__name__)


class Broker:
    """One host's broker.

    `clock` returns wall-clock seconds since the Unix epoch; `rng` draws identifiers. `cluster` exists
    from `start` to `close`. A joined host passes the data directory that it has opened, and `join`, which
    makes the cluster from the local parts; the broker closes both.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        host: Host,
        counters: Counters,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        directory: DataDirectory | None = None,
        join: JoinCluster | None = None,
    ) -> None:
        self.settings = settings
        self.host = host
        self.counters = counters
        self._clock = clock
        self._rng = rng if rng is not None else random.SystemRandom()
        self._directory = directory
        self._join = join
        self._parts: Parts | None = None

    @property
    def cluster(self) -> Cluster:
        return self._open.cluster

    @property
    def pubsub(self) -> HostPubSub:
        """The publish/subscribe of the host, for the faces that offer it; exists from `start` to `close`."""
        return self._open.pubsub

    @property
    def queues(self) -> HostQueues:
        """The queues of the host, whichever faces are on; exists from `start` to `close`."""
        return self._open.queues

    async def begin_events(self) -> None:
        """Lets messages cross faces and hosts; called once the faces have restored persistent sessions."""
        self.queues.begin()
        await self.pubsub.start(self.cluster)

    @property
    def schemas(self) -> TopicSchemas:
        """The schemas that topics declare; exist from `start` to `close`."""
        return self._open.schemas

    @property
    def polls(self) -> LongPolls:
        """The long polls that the fetches of all faces share; exists from `start` to `close`."""
        return self._open.polls

    @property
    def work(self) -> WorkBudget:
        """The budget that the costly requests of all faces share; exists from `start` to `close`."""
        return self._open.pubsub.work

    async def start(self) -> None:
        """Opens the data directory and recovers its contents.

        Raises `DataDirectoryError`, without touching anything, if another daemon uses the directory,
        another version wrote it, or it belongs to another host. Raises STORAGE on a disk error.
        """
        directory, self._directory = self._directory, None
        if directory is None:
            directory = DataDirectory.open(
                self.settings.data, self.host.host_id, new_cluster_id(self._rng.getrandbits(128))
            )
        if not directory.was_clean:
            _log.warning("data directory was not closed in order; logs are checked", path=directory.path)
        try:
            parts = Parts(
                self.settings, self.host, self.counters, directory, self._clock, self._rng, self._join
            )
        except BaseException:
            directory.close(clean=False)
            raise
        try:
            await parts.start()
        except BaseException:
            await parts.leave()
            parts.abandon()
            raise
        self._parts = parts

    async def close(self) -> None:
        """Wakes all waiters, flushes, and marks the shutdown as clean. Safe to call twice."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()
        directory, self._directory = self._directory, None
        if directory is not None:  # passed in, but never used
            directory.close(clean=directory.was_clean)

    async def housekeeping(self, now: float) -> float:
        """Runs the chores due by `now` (seconds of `clock`); returns the latest time for the next call.

        The chores are retention, compaction, expiry of producers, offsets and transactional ids, interval
        fsync and transaction time-outs. The daemon calls it from one timer; calls never overlap.
        """
        return await self._open.housekeeping.run(now)

    @property
    def _open(self) -> Parts:
        if self._parts is None:
            raise RuntimeError("the broker is not started")
        return self._parts
