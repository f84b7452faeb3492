"""`KafkaAgent`: the agent beside one Kafka cluster, from `start` to `close`.

    brokers <--fetches-- BrokerFetcher --> CopiedPartition --stream--> hosts that read
    brokers <--produces, offsets-- KafkaOwner <--calls-- hosts
    coordinators <--groups, transactions-- KafkaGroups, KafkaTransactions <--calls-- hosts

The agent defines for all hosts which groups and transactional ids are the cluster's. The definition is also
its lock: one agent follows a Kafka cluster for a cluster of hosts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from treecast.agents.common.life import SiteLife, StartRefused, member_of
from treecast.agents.common.status import AgentCounters, Trouble
from treecast.middleware.api.entries import HostEntry
from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.middleware.broker.values import GroupListing, TransactionListing
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.relay.brokerless import FabricHostSettings
from treecast.middleware.relay.homes.outside import PREFIX, Owner
from treecast.middleware.relay.leading_host import LeadingHost

from .cluster import KafkaCluster
from .connection import ConnectionLost
from .following import Following
from .groups import KafkaGroups
from .partition import CopiedPartition
from .settings import KafkaAgentSettings
from .status import KafkaStatus, TopicStatus
from .transactions import KafkaTransactions

_FIRST_SECONDS: Final = 60.0  # how long the Kafka cluster is waited for at the start
_TRY_EVERY: Final = 1.0
# The ids that hosts give to idempotent producers are above all that a Kafka cluster gives: a partition tells
# producers by their ids alone.
_PRODUCER_IDS: Final = 1 << 40


class Homes:
    """Implements `relay.homes.outside.OwnerHomes`."""

    def __init__(self, cluster: KafkaCluster, settings: KafkaAgentSettings) -> None:
        self.groups = KafkaGroups(cluster)
        self.transactions = KafkaTransactions(cluster)
        self._owner = Owner(0, "", settings.kafka.groups, settings.kafka.transactional_ids)

    async def list_groups(self) -> list[GroupListing]:
        return [one for one in await self.groups.list_groups() if self._owner.owns_group(one.group_id)]

    async def list_transactions(self, ids: Sequence[str] | None) -> list[TransactionListing]:
        return await self.transactions.list_transactions(ids)


class KafkaAgent:
    """One agent. All is called on one event loop."""

    def __init__(self, settings: KafkaAgentSettings) -> None:
        """Raises SettingsError."""
        settings.check()
        agent, kafka = settings.agent, settings.kafka
        self._settings = settings
        self.life = SiteLife(agent, self)
        self.cluster = KafkaCluster(
            kafka.brokers, kafka.tls_context(), kafka.log_in, f"treecast-agent-{agent.name}"
        )
        self.following = Following(self.cluster, kafka, self)
        host = FabricHostSettings(
            agent.name,
            Path(agent.data),
            agent.join,
            agent.token,
            agent.fabric_address,
            agent.fabric_settings,
            PubSubSettings(),
            agent.fsync,
            member=member_of(agent),
            standby=self._stand_by if kafka.standby else None,
        )
        self.host = LeadingHost(host, Counters(), self.following.made, Homes(self.cluster, settings))
        self.host.on_successor = self._end_for
        self.following.host = self.host
        self._task: asyncio.Task[None] | None = None

    @property
    def admin_address(self) -> str:
        return self.life.admin_address

    # --- life

    async def start(self) -> None:
        """Joins the cluster of hosts and finds the Kafka cluster. Raises StartRefused, TreecastError or
        OSError.

        The caller must call `close` even after a failure.
        """
        await self.host.open()
        self.settled("standby")
        await self.life.start(self.host)
        await self._find_cluster()
        await self._take_lock()
        await self.host.keep_producer_ids_above(_PRODUCER_IDS)
        self._task = asyncio.create_task(self.following.run(), name="following")

    async def _stand_by(self, reason: TreecastError) -> None:
        """Another agent of this name serves, or the coordinator is away: waits for the end of its lease."""
        self.note("standby", reason.detail)
        self.life.stand_by()
        await asyncio.sleep(_TRY_EVERY)

    def _end_for(self, successor: HostEntry) -> None:
        """Another agent has taken the name over while this one was cut off: hosts listen to that one."""
        self.life.end(
            f"another agent has taken over the name {successor.name}, at {successor.address}: started again,"
            " this one waits for its end with kafka.standby = true, and is refused without"
        )

    async def _find_cluster(self) -> None:
        """Waits for the first answer of the Kafka cluster. What was copied before can be read meanwhile."""
        deadline = asyncio.get_running_loop().time() + _FIRST_SECONDS
        while True:
            try:
                await self.cluster.refresh()
                self.settled("cluster")
                return
            except ConnectionLost as error:
                self.note("cluster", str(error))
                if asyncio.get_running_loop().time() > deadline:
                    raise StartRefused(
                        f"no broker of the Kafka cluster answers ({error}): check kafka.bootstrap, and"
                        " start it"
                    ) from error
            await asyncio.sleep(_TRY_EVERY)

    async def _take_lock(self) -> None:
        """Defines what the Kafka cluster owns. Raises StartRefused if another agent has."""
        kafka, cluster_id = self._settings.kafka, self.cluster.found.cluster_id
        mine = Owner(
            self.host.fabric_host.replicas.host_id,
            cluster_id,
            kafka.groups,
            kafka.transactional_ids,
            kafka.topics,
            kafka.not_topics,
        )
        key = f"{PREFIX}{cluster_id}"
        held = msgspec.json.decode(await self.host.define(key, msgspec.json.encode(mine)), type=Owner)
        known = self.host.link.view.host(held.host)
        if held.host != mine.host and known is not None:
            raise StartRefused(
                f"agent {known.name} follows Kafka cluster {cluster_id} for these hosts already: start this"
                " one when that host has left the cluster"
            )
        if held != mine:
            await self.host.redefine(key, msgspec.json.encode(mine))

    async def close(self) -> None:
        """Stops in order. Safe to call twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self.following.close()
        self.cluster.close()
        await self.life.close()
        await self.host.close()

    # --- troubles and status

    def note(self, what: str, detail: str) -> None:
        self.life.note(what, detail)

    def settled(self, what: str) -> None:
        self.life.settled(what)

    def status(self) -> KafkaStatus:
        agent, following = self._settings.agent, self.following
        partitions = list(following.partitions.values())
        topics: dict[str, TopicStatus] = {}
        troubles = list(self.life.troubles.values())
        for one in sorted(partitions, key=lambda one: one.name):
            topic = topics.setdefault(one.topic.name, TopicStatus())
            topic.add(one, self._followers(one))
            if one.session.trouble:
                troubles.append(Trouble(f"partition {one.name}", one.session.trouble))
        counters = AgentCounters(
            taken=sum(one.copied_batches for one in partitions),
            received=following.owner.produced,
            published=following.owner.produced,
            refused_there=dict(following.owner.refused),
        )
        fetched = following.fetchers.received
        found = self.cluster.found
        return KafkaStatus(
            kind="kafka",
            site=agent.name,
            host_id=self.host.fabric_host.replicas.host_id,
            cluster_id=agent.cluster_id,
            broker=f"Kafka {found.cluster_id}, {len(found.brokers)} brokers" if found.cluster_id else "",
            connected="cluster" not in self.life.troubles and bool(found.cluster_id),
            serving=following.serving,
            interest="",
            lag=sum(topic.lag for topic in topics.values()),
            owed=0,
            spool_bytes=sum(one.log.size for one in partitions),
            exchanges={},
            sites={},
            counters=counters,
            troubles=troubles,
            topics=topics,
            fetched_bytes=fetched,
            copied_bytes=sum(one.copied_bytes for one in partitions),
            cuts=sum(one.cuts for one in partitions),
            missed=sum(one.missed for one in partitions),
            withdrawn=following.withdrawn,
        )

    def _followers(self, partition: CopiedPartition) -> int:
        streams = self.host.led.leading.of_topic(partition.topic.name)
        found = [one for one in streams if one.partition is partition]
        return len(found[0].hosts()) if found else 0
