"""`Broker`: opens a data directory and puts the parts of one host's broker together."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host

from .cluster import Cluster
from .settings import BrokerSettings


class Broker:
    """One host's broker.

    `clock` gives wall-clock seconds since the Unix epoch, `rng` draws identifiers. `cluster` exists
    from `start` to `close`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        host: Host,
        counters: Counters,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.host = host
        self.counters = counters
        self._clock = clock
        self._rng = rng if rng is not None else random.SystemRandom()
        self.cluster: Cluster

    async def start(self) -> None:
        """Opens the data directory and recovers what is in it.

        Raises `DataDirectoryError` where another daemon uses it, another version wrote it, or it
        belongs to another host; nothing is touched then.
        """

    async def close(self) -> None:
        """Wakes who waits, flushes, and marks the shutdown as clean. Safe to call twice."""

    async def housekeeping(self, now: float) -> float:
        """Does what is due by `now` (seconds of `clock`); answers when to call again at the latest.

        Retention, compaction, expiry of producers, offsets and transactional ids, interval fsync and
        transaction time-outs. The daemon calls it from one timer, never twice at a time.
        """
        return now + 1.0
