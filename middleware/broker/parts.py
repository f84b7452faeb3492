"""`LocalParts`: what a joined host owns itself. `JoinedCluster`: the cluster built on top of it.

A standalone host answers every look-up of `cluster.Cluster` with its own parts (`local.LocalCluster`). On a
joined host, `Broker` gets a `JoinCluster`: it takes the parts and returns the cluster that faces, control
service and transactions use from then on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host
from treecast.middleware.storage.tables import Tables

from .cluster import Cluster
from .groups import GroupCoordinator
from .long_poll import LongPolls
from .partitions import LocalPartitions
from .pubsub_host import HostPubSub
from .settings import BrokerSettings
from .topics import TopicRegistry
from .transactions import ProducerIds, TransactionCoordinator


class LocalParts(Struct, frozen=True):
    """One host's own share of a cluster. `clock` returns seconds since the Unix epoch. `run` is the unique
    number of this run of the host. `polls` are the long polls of all faces.

    `registry` holds the topics from the time when the host was standalone, until they are handed over.
    """

    settings: BrokerSettings
    cluster_id: str
    host: Host
    tables: Tables
    partitions: LocalPartitions
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    registry: TopicRegistry
    counters: Counters
    clock: Callable[[], float]
    rng: random.Random
    run: int
    polls: LongPolls
    pubsub: HostPubSub

    @property
    def homes(self) -> Mapping[HomeKind, object]:
        """The local homes by kind; each implements the Protocol of its `cluster.Kind`."""
        return {HomeKind.GROUP: self.groups, HomeKind.TRANSACTION: self.transactions}


class JoinedCluster(Cluster, Protocol):
    """The cluster as a joined host sees it, from `start` to `close`."""

    async def start(self) -> None:
        """Opens the partitions that this host leads. Groups are already loaded; transactions start later."""

    async def close(self) -> None:
        """Disconnects from the other hosts. The local parts are still open and are closed afterwards."""


JoinCluster = Callable[[LocalParts], JoinedCluster]
