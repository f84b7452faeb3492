"""The status of the agent beside a Kafka cluster, beyond that of all agents."""

from __future__ import annotations

from msgspec import Struct

from treecast.agents.common.status import AgentStatus

from .partition import CopiedPartition


class TopicStatus(Struct):
    """A followed topic. `end`: the sum of the copies' ends. `lag`: records that the cluster has and the
    copies lack.

    `hosts`: the most hosts that follow one of its partitions. `fetching`: the partitions that are being
    fetched.
    """

    partitions: int = 0
    fetching: int = 0
    end: int = 0
    lag: int = 0
    bytes: int = 0
    hosts: int = 0
    leader_epoch: int = 0

    def add(self, one: CopiedPartition, hosts: int) -> None:
        self.partitions += 1
        self.fetching += not one.session.trouble
        self.end += one.end
        self.lag += max(one.session.high_watermark - one.end, 0)
        self.bytes += one.log.size
        self.hosts = max(self.hosts, hosts)
        self.leader_epoch = max(self.leader_epoch, one.leader_epoch)


class KafkaStatus(AgentStatus, frozen=True, kw_only=True):
    """`fetched_bytes`: all that brokers have sent in answer to fetches. `copied_bytes`: the records of it.

    `cuts`: times that a copy had records which the cluster lost. `missed`: offsets that the cluster removed
    before they were copied. `withdrawn`: topics that ended.
    """

    topics: dict[str, TopicStatus]
    fetched_bytes: int
    copied_bytes: int
    cuts: int
    missed: int
    withdrawn: int
