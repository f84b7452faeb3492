"""`Guards`: checks that a producer's transaction is open before a partition or group takes part in it."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable

from treecast.middleware.broker.transactions import TransactionCoordinator
from treecast.middleware.broker.transactions.parts import home_name
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition

from .calls import TransactionCalls
from .keeper import HomeKeeper


class Guards:
    """Checks at once if the home is this host, else by a call to the home."""

    def __init__(self, routed: TransactionCalls, keeper: HomeKeeper, local: TransactionCoordinator) -> None:
        self._routed = routed
        self._keeper = keeper
        self._local = local

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> Future[None] | None:
        """Checks that `producer` may append to `partition` now.

        A partition with an open transaction of the producer need not ask: the home ends it by a marker.
        """
        if home_name(transactional_id) in self._keeper.owned:
            self._local.verify(transactional_id, producer, partition)
            return None
        asked = self._routed.verify(transactional_id, producer, partition)
        return None if asked is None else asyncio.ensure_future(asked)

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None] | None:
        """Checks that the open transaction of `producer` includes the group's offsets."""
        if home_name(transactional_id) in self._keeper.owned:
            self._local.verify_offsets(transactional_id, producer, group_id)
            return None
        return self._routed.verify_offsets(transactional_id, producer, group_id)
