"""`GroupCoordinator`: the groups that live on this host, and the asyncio edge around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from treecast.middleware.broker.values import GroupListing
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.storage.tables import Tables

from .settings import GroupSettings


class GroupCoordinator:
    """Implements `cluster.GroupHome`.

    `clock` gives wall-clock seconds since the Unix epoch (commit times, retention); `timer` gives the
    seconds that session and rebalance time-outs run on, the loop's own time by default.
    """

    def __init__(
        self,
        settings: GroupSettings,
        tables: Tables,
        counters: BrokerCounters,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        timer: Callable[[], float] | None = None,
    ) -> None: ...

    async def start(self) -> None:
        """Loads groups and offsets from the tables; session time-outs start anew. Serves from here on."""

    async def close(self) -> None:
        """Answers all who wait with NOT_COORDINATOR, and waits for the last write. Safe to call twice."""

    def list_groups(self) -> Sequence[GroupListing]: ...

    async def forget_topic(self, topic: str) -> None:
        """Deletes the offsets committed on a topic that was deleted."""

    async def expire_offsets(self) -> None:
        """Deletes offsets past their retention, and groups of which nothing is left. For housekeeping."""
