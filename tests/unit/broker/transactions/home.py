"""A home of transactions whose cluster only records the calls that it gets."""

from __future__ import annotations

from typing import Any

from treecast.middleware.broker.transactions import (
    ProducerIds,
    TransactionCoordinator,
    TransactionSettings,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.storage.tables import Tables


class Bench:
    """A coordinator; `restart` kills it and starts it again."""

    def __init__(self, tables: Tables, cluster: Any, clock: Any) -> None:
        self.tables, self.cluster, self.clock = tables, cluster, clock
        self.counters = BrokerCounters()

    async def restart(self) -> None:
        self.home = TransactionCoordinator(
            TransactionSettings(), self.tables, ProducerIds(self.tables), self.counters, self.clock
        )
        self.home.restore()
        await self.home.start(self.cluster)
