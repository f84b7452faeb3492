"""`Guards`: whether a producer's transaction is open, asked before partitions and groups take part in it."""

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
    """At once where the transactional id is at home here, else by a call to its home."""

    def __init__(self, routed: TransactionCalls, keeper: HomeKeeper, local: TransactionCoordinator) -> None:
        self._routed = routed
        self._keeper = keeper
        self._local = local

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> Future[None] | None:
        """Whether `producer` may append to `partition` now.

        A partition that has an open transaction of the producer need not ask: the home ends it by a marker.
        """
        if home_name(transactional_id) in self._keeper.owned:
            self._local.verify(transactional_id, producer, partition)
            return None
        asked = self._routed.verify(transactional_id, producer, partition)
        return None if asked is None else asyncio.ensure_future(asked)

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None] | None:
        """Whether the open transaction of `producer` holds the group's offsets."""
        if home_name(transactional_id) in self._keeper.owned:
            self._local.verify_offsets(transactional_id, producer, group_id)
            return None
        return self._routed.verify_offsets(transactional_id, producer, group_id)
