"""`Bridge`: the topics that MQTT and Kafka share now, and the single path of their messages."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from treecast.middleware.broker.cluster import Cluster
from treecast.middleware.broker.pubsub import Message, PubSub, Recorder, Subscriber, Target, Waiter
from treecast.middleware.broker.turn import Turn
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.counters import BridgeCounters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.model.topics import TopicName
from treecast.middleware.model.wishes import ANY, REST, Wish
from treecast.middleware.wire.crc import crc32c

from .feeding import PartitionFeed
from .recording import Recording
from .records import message_of, record_of

_MOST_PUBLISHERS: Final = 10_000  # remembered publishers, for subscriptions with No Local


class BridgeSettings(Struct, frozen=True):
    """Times in seconds."""

    retry: float = 0.5
    wait: float = 1.0  # the longest that a SUBACK waits for the partitions' end offsets
    queue_bytes: int = 64 << 20


class Bridge(Recorder):
    """The bridge of one host. Active from `start` to `close`."""

    def __init__(
        self,
        hub: PubSub,
        turn: Turn,
        cluster: Cluster,
        counters: BridgeCounters,
        clock: Callable[[], float],
        settings: BridgeSettings | None = None,
    ) -> None:
        """`clock`: seconds since the Unix epoch."""
        super().__init__()
        self._hub = hub
        self._turn = turn
        self._cluster = cluster
        self._counters = counters
        self._clock = clock
        self._settings = settings or BridgeSettings()
        self._host = b"%d/" % cluster.host.host_id
        self._topics: dict[bytes, Topic] = {}  # by the name that MQTT has for them
        self._feeds: dict[bytes, list[PartitionFeed]] = {}
        self._publishers: OrderedDict[bytes, Subscriber] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self.recording = Recording(hub, cluster, counters, self._settings.retry, self._settings.queue_bytes)

    # --- life

    async def start(self) -> None:
        """Starts the bridge. Call it after sessions are restored and before clients connect."""
        self._topics = self._shared()
        self._turn.add_departures(self.recording)
        self._hub.routes.use_recorder(self)
        for topic in self._topics:
            self._look_at(topic)
        self._cluster.definitions.listen(self._changed)
        if self._topics:
            await self.recording.identify()
        await self.recording.start()

    async def close(self) -> None:
        self._cluster.definitions.listen(None)
        self._hub.routes.use_recorder(None)
        self._turn.remove_departures(self.recording)
        self.recording.close()
        tasks = [feed.stop() for feeds in self._feeds.values() for feed in feeds]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)

    def _shared(self) -> dict[bytes, Topic]:
        found: dict[bytes, Topic] = {}
        for topic in self._cluster.definitions.topics().values():
            name = mqtt_name(topic.name)
            if name is not None:
                found[name] = topic
        return found

    def _changed(self, topic: str) -> None:
        """Handles a topic that was created or deleted, or has new partitions or another configuration."""
        name = mqtt_name(topic)
        if name is None:
            return
        old, new = self._topics.pop(name, None), self._cluster.definitions.topics().get(topic)
        if new is not None:
            self._topics[name] = new
        if old is None or new is None or old.topic_id != new.topic_id:
            self._hub.routes.forget_all()
            self._end_feeds(name)
        self._look_at(name, new=True)
        if (
            self._topics and not self.recording.identified
        ):  # request a producer id only once there is something to record
            loop = asyncio.get_running_loop()
            self._keep(loop.create_task(self.recording.identify(), name="producer id"))

    # --- from MQTT

    def records(self, topic: bytes) -> bool:
        return topic in self._topics

    def take(self, message: Message, target: Target) -> None:
        topic = self._topics.get(message.topic)
        if topic is None:  # deleted within this turn
            self._hub.feed_recorded(message, self.publisher)
            return
        publisher = self.publisher
        name = publisher.name.encode() if publisher is not None else b""
        if publisher is not None and self._publishers.get(name) is not publisher:
            self._publishers[name] = publisher
            if len(self._publishers) > _MOST_PUBLISHERS:
                self._publishers.popitem(last=False)
        partition = crc32c(self._host + name + self.lane) % topic.partitions
        record = record_of(message, self._host + name, int(self._hub.clock.wall * 1000))
        if not self.recording.waiting:
            self._turn.ask()
        self.refusal = self.recording.add(topic, partition, record, message.qos > 0)

    # --- to MQTT

    def wanted(self, wish: Wish, wanted: bool) -> None:
        if ANY in wish.pattern or REST in wish.pattern:
            for topic in self._topics:
                if wish.matches(tuple(topic.decode().split("/"))):
                    self._look_at(topic)
        elif (filter := wish.filter) in self._topics and filter is not None:
            self._look_at(filter)

    def _look_at(self, name: bytes, *, new: bool = False) -> None:
        """Starts the feeds of a topic with a subscriber on this host, and ends those of one without.

        `new`: the partitions are newer than their subscribers, so they are read from their first record.
        """
        topic = self._topics.get(name)
        feeds = self._feeds.get(name, [])
        if topic is None or not self._hub.routes.direct_recorded(name).count:
            self._end_feeds(name)
            return
        more = [self._feed(name, topic, index, new) for index in range(len(feeds), topic.partitions)]
        if more:
            self._feeds[name] = feeds + more

    def _feed(self, name: bytes, topic: Topic, index: int, new: bool) -> PartitionFeed:
        self._counters.feeds += 1

        def deliver(records: list[Record]) -> None:
            self._deliver(name, records)

        feed = PartitionFeed(
            self._cluster, topic, index, self._hub.journal, self._counters, self._settings.retry, deliver
        )
        if new:
            feed.begin_at_the_first()
        return feed

    def _end_feeds(self, name: bytes) -> None:
        for feed in self._feeds.pop(name, ()):
            feed.forget()
            self._keep(feed.stop())

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Keeps a reference to a task until it is done or the daemon stops."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _deliver(self, name: bytes, records: list[Record]) -> None:
        self._hub.clock.wall = self._clock()
        for record in records:
            message, publisher = message_of(name, record)
            own = publisher.startswith(self._host) and self._publishers.get(publisher[len(self._host) :])
            self._hub.feed_recorded(message, own or None)
        self._counters.fed += len(records)

    # --- what SUBACK waits for

    def known(self, waiter: Waiter) -> bool:
        new = [feed for feeds in self._feeds.values() for feed in feeds if not feed.ready.is_set()]
        if not new:
            return True
        loop = asyncio.get_running_loop()
        self._keep(loop.create_task(self._wait(new, waiter), name="ends of partitions"))
        return False

    async def _wait(self, feeds: list[PartitionFeed], waiter: Waiter) -> None:
        try:
            async with asyncio.timeout(self._settings.wait):
                await asyncio.gather(*(feed.ready.wait() for feed in feeds))
        except TimeoutError:
            self._counters.feeds_late += 1
        waiter.confirmed()


def mqtt_name(topic: str) -> bytes | None:
    """Returns the MQTT name of a Kafka topic; None if it has none or clients may not use the name."""
    try:
        levels = TopicName.from_kafka(topic)
        name = levels.to_mqtt()
        other = name.startswith("$") or levels.to_kafka() != topic  # another topic has that name
    except TreecastError:
        return None
    return None if other else name.encode()
