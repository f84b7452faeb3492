"""`LocalCluster`: the cluster of a host alone. It owns everything."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.identity import Host, ProducerIdentity
from treecast.middleware.storage.tables import Tables

from .cluster import Definitions, GroupHome, PartitionLeader, TransactionHome
from .groups import GroupCoordinator, GroupSettings
from .parts import LocalParts
from .transactions import TransactionCoordinator
from .values import GroupListing, MemberIdentity, OffsetCommits, PartitionErrors


class LocalGroups(GroupCoordinator):
    """The groups of a host that is home to all transactions as well."""

    def __init__(
        self,
        settings: GroupSettings,
        tables: Tables,
        counters: BrokerCounters,
        transactions: TransactionCoordinator,
        *,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        super().__init__(settings, tables, counters, clock=clock, rng=rng)
        self._transactions = transactions

    async def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> PartitionErrors:
        """Refused where no open transaction of the producer holds the group: nothing would decide them."""
        self._transactions.verify_offsets(transactional_id, producer, group_id)
        return await super().commit_transaction_offsets(group_id, member, transactional_id, producer, offsets)


class LocalCluster:
    """Implements `cluster.Cluster` with the local objects themselves."""

    def __init__(self, parts: LocalParts) -> None:
        self._parts = parts

    @property
    def cluster_id(self) -> str:
        return self._parts.cluster_id

    @property
    def host(self) -> Host:
        return self._parts.host

    @property
    def definitions(self) -> Definitions:
        return self._parts.registry

    def partition(self, topic: str, index: int) -> PartitionLeader:
        return self._parts.partitions.get(topic, index)

    def group_home(self, group_id: str) -> GroupHome:
        return self._parts.groups

    def transaction_home(self, transactional_id: str) -> TransactionHome:
        return self._parts.transactions

    async def list_groups(self) -> Sequence[GroupListing]:
        return self._parts.groups.list_groups()

    async def new_producer(self) -> ProducerIdentity:
        return ProducerIdentity(await self._parts.producer_ids.take(), 0)
