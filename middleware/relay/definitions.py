"""`RelayDefinitions`: the topics of the cluster as this host knows them, and changes through the coordinator.

Look-ups are local. A change is a call to the coordinator; it returns when this host has seen the change and
has opened the partitions that it leads. Changes of the view are applied in order, one at a time: a topic can
be looked up once the partitions that this host leads are open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from treecast.middleware.api.entries import TOPIC, TopicEntry
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker.settings import BrokerSettings
from treecast.middleware.broker.topics import Configs, altered
from treecast.middleware.broker.values import ConfigChange, NewTopic, Topic
from treecast.middleware.broker.views import check_no_view, check_views, view_names
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.logs import Log
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.model.topics import check_new_kafka_name

from .coordinator_link import SEEN_SECONDS, CoordinatorLink
from .homes.outside import OwnersElsewhere

_log = Log(__name__)


class LedPartitions(Protocol):
    """The partitions that this host leads; implemented by `broker.partitions.LocalPartitions`."""

    def open(self, topic: Topic, led: Mapping[int, int]) -> None:
        """At the start: opens the partitions led here and creates missing ones. Raises STORAGE.

        `led`: partition number -> the minimum leader epoch of further appends.
        """

    async def apply(self, topic: Topic, led: Mapping[int, int]) -> None:
        """While running: applies the topic's current state and opens newly led partitions. Raises STORAGE."""

    def remove(self, topic: Topic) -> None:
        """Removes a deleted topic."""

    def put_aside(self, topic: Topic) -> None:
        """Puts aside the files of a topic that has vanished without being deleted."""


class RelayDefinitions:
    """Implements `broker.cluster.Definitions`, in use from `start` to `close`."""

    def __init__(
        self,
        settings: BrokerSettings,
        host_id: int,
        link: CoordinatorLink,
        led: LedPartitions,
        forget_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """`forget_topic`: called with the name of each deleted topic."""
        self._settings = settings
        self._host_id = host_id
        self._link = link
        self._led = led
        self._forget_topic = forget_topic
        self._configs = Configs(settings.topic_defaults)
        self._topics: dict[str, Topic] = {}
        self._view = MappingProxyType(self._topics)
        self._names: dict[TopicId, str] = {}
        self._listener: Callable[[str], None] | None = None
        self.revision = 0
        self._todo: deque[tuple[TopicEntry | None, TopicEntry | None, bool]] = deque()
        self._more = asyncio.Event()
        self._done = 0  # number of applied changes
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._owners = OwnersElsewhere(link.view)

    # --- life

    async def start(self) -> None:
        """Opens the partitions that this host leads according to the view, then follows the view.

        The view must not change meanwhile. Yields to the event loop after each topic, so that the lease can
        be renewed.
        """
        TopicConfig.of(self._settings.topic_defaults)  # raises for a bad default even without topics
        for entry in self._link.view.topics:
            topic = self._topic(entry)
            self._led.open(topic, self._leads(entry))
            self._keep(topic)
            await asyncio.sleep(0)
        self._link.view.topics.subscribe(self._heard)
        self._task = asyncio.create_task(self._follow(), name="topics of the cluster")

    async def settled(self) -> None:
        """Returns when all changes of the view so far are applied. Raises TIMED_OUT after `SEEN_SECONDS`."""
        wanted = self._done + len(self._todo)
        if not self._todo:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, waiting))
        try:
            async with asyncio.timeout(SEEN_SECONDS):
                await waiting
        except TimeoutError:
            raise TreecastError(
                Fault.TIMED_OUT, "the topic is changed, but this host has not applied the change yet"
            ) from None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for _, waiting in self._waiting:
            waiting.cancel()

    # --- look-ups

    def topics(self) -> Mapping[str, Topic]:
        return self._view

    def listen(self, listener: Callable[[str], None] | None) -> None:
        self._listener = listener

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        name = self._names.get(topic_id)
        if name is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC_ID)
        return self._topics[name]

    # --- changes

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        check_new_kafka_name(new.name)
        if new.name in self._topics:
            raise TreecastError(Fault.TOPIC_EXISTS, f"topic {new.name} exists already")
        self._check_owners(new.name)
        partitions = self._settings.default_partitions if new.partitions == -1 else new.partitions
        _check_partitions(partitions)
        self._configs.of(new.config)
        check_no_view(self._topics, new.name)
        check_views(self._topics, new.name, {}, new.config)
        request = pb.CreateTopicEntryRequest(
            name=new.name,
            partitions=partitions,
            config=dict(new.config),
            pinned=list(new.leaders),
            validate_only=validate_only,
        )
        return await self._changed(await self._link.client.create_topic(request), validate_only)

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | TreecastError]:
        """Creates all topics concurrently: the coordinator commits concurrent requests together."""
        asked = (self.create_topic(one, validate_only=validate_only) for one in new)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, TreecastError):
                raise answer
        return [answer for answer in answers if isinstance(answer, Topic | TreecastError)]

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Topic:
        topic = self._own(name)
        if total <= topic.partitions:
            raise TreecastError(
                Fault.INVALID_PARTITIONS,
                f"topic {name} has {topic.partitions} partitions already; their number can only grow",
            )
        request = pb.CreatePartitionEntriesRequest(name=name, total=total, validate_only=validate_only)
        return await self._changed(await self._link.client.create_partitions(request), validate_only)

    async def alter_topic(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Topic:
        topic = self._own(name)
        before = topic.config.overrides
        after = altered(before, self._settings.topic_defaults, changes)
        TopicConfig.of(after, self._settings.topic_defaults)
        check_views(self._topics, name, before, after)
        request = pb.AlterTopicEntryRequest(
            name=name,
            set={key: value for key, value in after.items() if before.get(key) != value},
            unset=sorted(before.keys() - after.keys()),
            validate_only=validate_only,
        )
        return await self._changed(await self._link.client.alter_topic(request), validate_only)

    async def delete_topic(self, name: str) -> Topic:
        topic = self._own(name)
        answer = await self._link.client.delete_topic(name)
        await self._carried_out(answer.revision)
        return topic

    async def _changed(self, answer: pb.TopicEntryResponse, validate_only: bool) -> Topic:
        try:
            topic = self._topic(TOPIC.read(answer.topic))
        except ValueError as error:
            raise TreecastError(
                Fault.INTERNAL, f"the coordinator's entry of the topic cannot be read: {error}"
            ) from error
        if not validate_only:
            await self._carried_out(answer.revision)
        return topic

    async def _carried_out(self, revision: int) -> None:
        """Waits until this host has seen the revision and applied its changes."""
        await self._link.seen(revision)
        await self.settled()

    def _existing(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {name}")
        return topic

    def _own(self, name: str) -> Topic:
        """Returns a topic that may be changed here. Raises POLICY_VIOLATION for one that an agent brought."""
        topic = self._existing(name)
        entry = self._link.view.topic(name)
        for partition in entry.partitions if entry is not None else ():
            leader = self._link.view.host(partition.leader)
            if leader is not None and leader.leads_nothing:
                raise TreecastError(
                    Fault.POLICY_VIOLATION,
                    f"topic {name} is led by the Kafka cluster beside {leader.name}: change it there",
                )
        return topic

    def _check_owners(self, name: str) -> None:
        """Raises UNKNOWN_TOPIC, upon which clients ask again, for a topic that a Kafka cluster would lead."""
        for owner in self._owners.owners():
            if owner.follows(name):
                raise TreecastError(
                    Fault.UNKNOWN_TOPIC,
                    f"topics of such names are led by Kafka cluster {owner.cluster}: create {name} there",
                )

    # --- following the view

    def _heard(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        # Whether the view is in doubt is asked now: when the change is applied, it may have moved on.
        self._todo.append((before, after, self._link.view.doubtful))
        self._more.set()

    async def _follow(self) -> None:
        while True:
            await self._more.wait()
            while self._todo:
                before, after, doubtful = self._todo[0]
                try:
                    await self._carry_out(before, after, doubtful)
                except TreecastError as error:
                    name = after.name if after is not None else before.name if before is not None else ""
                    _log.error("topic cannot be followed", topic=name, error=error)
                except Exception:
                    _log.exception("change of a topic failed")
                # Only now: until it is applied, `settled` has to count it as open.
                self._todo.popleft()
                self._done += 1
                self._tell_waiting()
            self._more.clear()

    def _tell_waiting(self) -> None:
        for wanted, waiting in self._waiting:
            if self._done >= wanted and not waiting.done():
                waiting.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    async def _carry_out(self, before: TopicEntry | None, after: TopicEntry | None, doubtful: bool) -> None:
        if before is not None and (after is None or after.topic_id != before.topic_id):
            await self._remove(before, doubtful)
        if after is not None:
            topic = self._topic(after)
            views: set[str] = set()
            if before is not None and before.topic_id == after.topic_id:
                views = view_names(after.name, before.config)
            await self._led.apply(topic, self._leads(after))
            self._keep(topic)
            for name in sorted(views - view_names(after.name, after.config)):
                await self._forget_topic(name)

    async def _remove(self, entry: TopicEntry, doubtful: bool) -> None:
        """Removes files only if the coordinator stated that the topic was deleted; else puts them aside."""
        topic = self._topics.pop(entry.name, None)
        if topic is None:
            return
        del self._names[topic.topic_id]
        self._tell_listener(topic.name)
        if doubtful:
            _log.error(
                "coordinator was restored without a topic; its files are renamed, not removed",
                topic=topic.name,
            )
            self._led.put_aside(topic)
            return
        self._led.remove(topic)
        for name in (topic.name, *sorted(view_names(topic.name, topic.config.overrides))):
            await self._forget_topic(name)

    def _keep(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self._tell_listener(topic.name)

    def _tell_listener(self, name: str) -> None:
        self.revision += 1
        if self._listener is not None:
            self._listener(name)

    def _leads(self, entry: TopicEntry) -> Mapping[int, int]:
        """Returns partition number -> leader epoch of the partitions led here.

        A partition that waits for this host has no leader.
        """
        return {
            number: leader.leader_epoch
            for number, leader in enumerate(entry.partitions)
            if leader.leader == self._host_id and not leader.waits
        }

    def _topic(self, entry: TopicEntry) -> Topic:
        config = self._configs.of(entry.config)
        return Topic(entry.name, entry.topic_id, len(entry.partitions), config)


def _check_partitions(total: int) -> None:
    if total < 1:
        raise TreecastError(Fault.INVALID_PARTITIONS, f"a topic has at least one partition, not {total}")
