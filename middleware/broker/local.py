"""`LocalCluster`: the cluster of a host alone. It owns everything."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.model.identity import Host, ProducerIdentity

from .cluster import Definitions, GroupHome, PartitionLeader, TransactionHome
from .groups import GroupCoordinator
from .partitions import LocalPartitions
from .topics import TopicRegistry
from .transactions import ProducerIds, TransactionCoordinator
from .values import GroupListing


class LocalCluster:
    """Implements `cluster.Cluster` with the local objects themselves."""

    def __init__(
        self,
        cluster_id: str,
        host: Host,
        registry: TopicRegistry,
        partitions: LocalPartitions,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
    ) -> None:
        self._cluster_id = cluster_id
        self._host = host
        self._registry = registry
        self._groups = groups
        self._producer_ids = producer_ids
        self._partitions = partitions
        self._transactions = transactions

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def host(self) -> Host:
        return self._host

    @property
    def definitions(self) -> Definitions:
        return self._registry

    def partition(self, topic: str, index: int) -> PartitionLeader:
        return self._partitions.get(topic, index)

    def group_home(self, group_id: str) -> GroupHome:
        return self._groups

    def transaction_home(self, transactional_id: str) -> TransactionHome:
        return self._transactions

    async def list_groups(self) -> Sequence[GroupListing]:
        return self._groups.list_groups()

    async def new_producer(self) -> ProducerIdentity:
        return ProducerIdentity(await self._producer_ids.take(), 0)
