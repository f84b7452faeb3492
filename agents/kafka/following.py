"""`Following`: the topics that are followed, and the work that keeps their copies as the cluster's logs
are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from msgspec import Struct

from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId, TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.leading_host import LeadingHost, leads
from treecast.shims.kafka.codec_client import Fetched
from treecast.shims.kafka.versions import DESCRIBE_CONFIGS

from .asking import KafkaOwner
from .cluster import KafkaCluster, refusal
from .connection import ConnectionLost
from .fetchers import Fetchers
from .looks import Looks
from .partition import CopiedPartition
from .session import Action, Advance, Append, Ask, Cut, Restart
from .settings import KafkaSettings
from .topics import Bring, Change, Grow, InTheWay, Known, Withdraw, changes, followed_config

_TOPIC: Final = 2  # the type of a config resource
_CONFIGS_EVERY: Final = 5.0  # s between two looks at settings

# A new leader of the cluster may say less than all for a moment; what is missing for longer is lost.
_LOST_AFTER: Final = 30.0

_log = Log(__name__)


class Goal(Struct, frozen=True):
    """The end at which a copy is whole. `at`: when the cluster was seen to have it last."""

    end: int
    at: float


class Notes(Protocol):
    """Troubles are noted here for operators, by the part that they concern."""

    def note(self, what: str, detail: str) -> None: ...

    def settled(self, what: str) -> None: ...


class Following:
    """In use from `run` to its cancellation and `close`. All on one event loop."""

    def __init__(self, cluster: KafkaCluster, settings: KafkaSettings, notes: Notes) -> None:
        self.host: LeadingHost
        self._looks = Looks(settings.poll_seconds)
        self.owner = KafkaOwner(cluster, self._looks.soon)
        self.partitions: dict[TopicPartition, CopiedPartition] = {}
        self.serving = False
        self.withdrawn = 0  # topics
        self.fetchers: Fetchers[CopiedPartition] = Fetchers(cluster, settings, self, self.owner)
        self._cluster = cluster
        self._settings = settings
        self._notes = notes
        self._configs_at = -_CONFIGS_EVERY
        self._configs: dict[str, dict[str, str]] = {}
        self._goals: dict[TopicPartition, Goal] = {}  # of copies that wait

    def made(self, topic: Topic, index: int, copy: FollowedPartition) -> CopiedPartition:
        """Makes the partition over its copy; see `relay.leading_host.Copies`."""
        partition = CopiedPartition(topic, copy, self.owner, self._anew)
        self.partitions[partition.name] = partition
        return partition

    def _anew(self, partition: CopiedPartition) -> None:
        self.host.led.leading.begin_anew(partition)

    # --- life

    async def run(self) -> None:
        """Looks at the cluster again and again."""
        while True:
            try:
                await self._cluster.refresh()
                await self._follow()
                self._notes.settled("cluster")
                self.serving = True
            except ConnectionLost as error:
                self._notes.note("cluster", str(error))
            except TreecastError as error:
                self._notes.note("cluster", error.detail)
            await self._looks.next()

    async def close(self) -> None:
        await self.fetchers.close()

    # --- topics

    async def _follow(self) -> None:
        found = self._cluster.found
        await self._look_at_configs()
        for change in list(changes(found.topics, self._known(), self._settings.follows)):
            await self._carry_out(change)
        self._keep_to_view()
        for name, partition in self.partitions.items():
            leader = self._cluster.leader(name.topic, name.partition)
            if leader is not None and found.topics[name.topic].topic_id == partition.topic.topic_id:
                self.fetchers.led(partition, leader)
        self.fetchers.keep()
        await self._claim()

    def _keep_to_view(self) -> None:
        """Has a copy of each partition that is led here, and none of topics that are gone.

        Another agent of this name may have brought and withdrawn topics while this directory was not in use,
        and an own change may have been seen late.
        """
        brought = {topic.topic_id: topic for topic in self.host.led.brought()}
        known = brought.keys() | {one.topic_id for one in self._cluster.found.topics.values()}
        copied = {one.topic.topic_id: one.topic for one in self.partitions.values()}
        for topic_id in copied.keys() - known:
            self.host.led.store.drop(copied[topic_id])
            self._forget(topic_id)
        for topic in brought.values():
            try:
                self.host.led.open(topic)
            except TreecastError as error:
                self._notes.note(f"topic {topic.name}", error.detail)

    async def _claim(self) -> None:
        """Leads the partitions that another directory had before: an earlier run's, or the agent's that a
        standby has followed.

        Each waits until its copy has what the cluster had at first, so that no replica is asked to cut what
        the copy lacks. A cluster that stays below that has lost records: the copy is whole without them.
        """
        waiting, now = self.host.waiting(), asyncio.get_running_loop().time()
        for name, entry in waiting:
            partition = self.partitions.get(name)
            if partition is None or partition.session.high_watermark < 0 or partition.session.trouble:
                continue
            found, goal = partition.session.high_watermark, self._goals.get(name)
            if goal is None or (found < goal.end and now - goal.at >= _LOST_AFTER):
                goal = Goal(found, now)
            elif found >= goal.end:
                goal = Goal(goal.end, now)
            self._goals[name] = goal
            if partition.end >= goal.end:
                await self.host.claim(name, entry)
                _log.info("partition is led here again", partition=name, end=partition.end)
        self._goals = {name: self._goals[name] for name, _ in waiting if name in self._goals}

    def _known(self) -> Iterator[Known]:
        host_id = self.host.fabric_host.replicas.host_id
        for entry in self.host.link.view.topics:
            yield Known(
                entry.name, entry.topic_id, len(entry.partitions), entry.config, leads(entry, host_id)
            )

    async def _carry_out(self, change: Change) -> None:
        what = f"topic {change.name}"
        try:
            await self._change(change)
        except TreecastError as error:
            self._notes.note(what, error.detail)
            if error.fault is Fault.COORDINATOR_UNAVAILABLE:
                raise
        else:
            if not isinstance(change, InTheWay):
                self._notes.settled(what)

    async def _change(self, change: Change) -> None:
        match change:
            case Bring(name, topic_id, partitions):
                config = self._configs.get(name) or await self._described([name], name)
                topic = await self.host.bring(name, topic_id, partitions, config)
                _log.info("topic is followed", topic=name, partitions=topic.partitions)
            case Grow(name, total):
                await self.host.grow(name, total)
            case Withdraw(name, why):
                await self._withdraw(name, why)
            case InTheWay(name):
                self._notes.note(
                    f"topic {name}",
                    "hosts of this cluster lead a topic of this name themselves: delete it, or leave the name"
                    " out with kafka.not_topics",
                )

    async def _withdraw(self, name: str, why: str) -> None:
        topic = self.host.led.topics()[name]
        await self.host.withdraw(topic)
        self._configs.pop(name, None)
        self.withdrawn += 1
        self._forget(topic.topic_id)
        _log.info("topic is no longer followed", topic=name, reason=why)

    def _forget(self, topic_id: TopicId) -> None:
        for one in [one for one in self.partitions.values() if one.topic.topic_id == topic_id]:
            one.session.gone()
            one.end_stream()
            if self.partitions.get(one.name) is one:
                del self.partitions[one.name]

    # --- settings

    async def _look_at_configs(self) -> None:
        now = asyncio.get_running_loop().time()
        names = [
            entry.name for entry in self._known() if entry.ours and entry.name in self._cluster.found.topics
        ]
        if now - self._configs_at < _CONFIGS_EVERY or not names:
            return
        self._configs_at = now
        await self._described(names, names[0])
        for known in self._known():
            config = self._configs.get(known.name)
            if known.ours and config is not None and config != dict(known.config):
                await self.host.configure(known.name, config, known.config)
                self._reconfigure(known.name)

    def _reconfigure(self, name: str) -> None:
        topic = self.host.led.topics()[name]
        for one in self.partitions.values():
            if one.name.topic == name:
                one.copy.reconfigure(topic.config)

    async def _described(self, names: list[str], wanted: str) -> dict[str, str]:
        """Asks for the settings of topics; returns those of `wanted`."""
        rows = [{"resource_type": _TOPIC, "resource_name": name} for name in names]
        answer = await self._cluster.at_any(DESCRIBE_CONFIGS, {"resources": rows})
        for one in answer.results:
            if one.error_code:
                self._notes.note(f"settings of {one.resource_name}", refusal(one.error_code).detail)
                continue
            self._configs[one.resource_name] = followed_config({row.name: row.value for row in one.configs})
        return self._configs.get(wanted, {})

    # --- fetching

    def led_by(self, node: int) -> Iterable[CopiedPartition]:
        return [one for one in self.partitions.values() if one.session.leader == node]

    def take(self, partition: CopiedPartition, answer: Fetched) -> None:
        session = partition.session
        self.do(partition, session.fetched(answer, partition.end, partition.log.start_offset))

    def do(self, partition: CopiedPartition, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Append():
                    partition.append_copied(action)
                case Advance(start):
                    partition.advance(start)
                case Cut(offset):
                    _log.warning(
                        "copy is cut: the Kafka cluster does not have these records",
                        partition=partition.name,
                        first=offset,
                        end=partition.end,
                    )
                    partition.cut(offset)
                case Restart(offset, missed):
                    _log.warning(
                        "copy begins again: the Kafka cluster's log begins later",
                        partition=partition.name,
                        offset=offset,
                        missed=missed,
                    )
                    partition.restart(offset, missed)
                case Ask(bounds):
                    if bounds:
                        self.fetchers.seek(partition)
                    else:
                        self._looks.soon()
