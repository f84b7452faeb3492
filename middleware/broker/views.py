"""Views: read-only topics of the Kafka face, with those records of a topic that pass a filter.

The view NAME of `orders` is the topic `orders.view.NAME`. It is a setting of `orders`, `treecast.view.NAME`,
whose value is the filter: so it is stored, known at all hosts, and deleted with its topic. It has the topic's
partitions and offsets, and keeps no records. Each host filters what it reads.

A view's topic id follows from its topic's id and its filter: with another filter it is another topic.
"""

from __future__ import annotations

import uuid
from asyncio import Future, ensure_future
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from msgspec.structs import replace

from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicId
from treecast.middleware.model.topic_config import VIEW, TopicConfig
from treecast.middleware.model.topics import check_kafka_name

from .cluster import Leaders, PartitionLeader, ReadWaiter
from .filtering import FilteredReads, KeptBatches, parsed
from .schemas import TopicSchemas, check_schema, check_view, views_to_check
from .values import ActiveProducer, Appended, Isolation, OffsetAtTime, PartitionRead, Topic, View

_INFIX: Final = ".view."
_KEPT: Final = 256  # views whose filters stay compiled
_FACE: Final = "kafka"  # the face that shows views, and counts what they leave out
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Topics(Protocol):
    """The part of `cluster.Definitions` that views need."""

    def topics(self) -> Mapping[str, Topic]: ...

    def topic_by_id(self, topic_id: TopicId) -> Topic: ...

    @property
    def revision(self) -> int: ...


def view_name(topic: str, name: str) -> str:
    """Returns the name of the topic that shows the view `name` of `topic`."""
    return f"{topic}{_INFIX}{name}"


def view_of(topics: Mapping[str, Topic], name: str) -> Topic | None:
    """Returns the view with this full name; None if there is none, or a topic has the name."""
    base, infix, short = name.rpartition(_INFIX)
    topic = topics.get(base) if infix and name not in topics else None
    text = topic.config.views.get(short) if topic is not None else None
    return None if topic is None or text is None else _view(topic, short, text)


def views_in(topics: Mapping[str, Topic]) -> dict[str, Topic]:
    """Returns all views by their full names."""
    return {
        view.name: view
        for topic in topics.values()
        if topic.config.views
        for name, text in topic.config.views.items()
        if (view := _view(topic, name, text)).name not in topics
    }


def view_by_id(topics: Mapping[str, Topic], topic_id: TopicId) -> Topic | None:
    return next((view for view in views_in(topics).values() if view.topic_id == topic_id), None)


def view_names(topic: str, overrides: Mapping[str, str]) -> set[str]:
    """Returns the full names of the views that a topic with these settings has."""
    return {view_name(topic, key.removeprefix(VIEW)) for key in overrides if key.startswith(VIEW)}


def check_views(
    topics: Mapping[str, Topic], name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Checks the schema and the views that new settings of the topic `name` add or change. Raises
    INVALID_CONFIG for a filter that cannot be read, needs state, or does not fit the topic's schema,
    INVALID_TOPIC for a name that is too long, TOPIC_EXISTS if a topic has it."""
    check_schema(before, after)
    for key in views_to_check(before, after):
        full = view_name(name, key.removeprefix(VIEW))
        check_kafka_name(full)
        if full in topics:
            raise TreecastError(
                Fault.TOPIC_EXISTS, f"topic {full} exists already: give the view another name"
            )
        try:
            check_view(parsed(after[key]), after)
        except TreecastError as error:
            raise TreecastError(Fault.INVALID_CONFIG, f"filter of view {full}: {error.detail}") from error


def check_no_view(topics: Mapping[str, Topic], name: str) -> None:
    """Raises TOPIC_EXISTS if a topic that is to be created would hide a view."""
    if view_of(topics, name) is not None:
        raise TreecastError(Fault.TOPIC_EXISTS, f"{name} exists already: it is a view")


def read_only(view: Topic) -> TreecastError:
    """Returns the refusal of a change of a view, or of a record for it."""
    assert view.view is not None
    return TreecastError(
        Fault.INVALID_TOPIC,
        f"{view.name} is a view and read-only: write to {view.view.base},"
        " and change views with `treecast filter create` and `delete`",
    )


def _view(topic: Topic, name: str, text: str) -> Topic:
    topic_id = uuid.uuid5(topic.topic_id, f"{name}\0{text}")
    return Topic(
        view_name(topic.name, name),
        topic_id,
        topic.partitions,
        _without_views(topic.config),
        view=View(topic.name, text),
    )


def _without_views(config: TopicConfig) -> TopicConfig:
    own = {key: value for key, value in config.overrides.items() if not key.startswith(VIEW)}
    return replace(config, overrides=MappingProxyType(own), views=_NONE)


class WithViews:
    """The topics of a cluster and their views. Implements `groups.consumer.patterns.KnownTopics`."""

    def __init__(self, known: Topics) -> None:
        self._known = known
        self._revision = -1
        self._names: dict[TopicId, str] = {}  # of views
        self._all: Mapping[str, Topic] = {}

    @property
    def revision(self) -> int:
        return self._known.revision

    def topics(self) -> Mapping[str, Topic]:
        self._refresh()
        return self._all

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """Raises UNKNOWN_TOPIC_ID if there is no such topic or view."""
        self._refresh()
        name = self._names.get(topic_id)
        return self._known.topic_by_id(topic_id) if name is None else self._all[name]

    def _refresh(self) -> None:
        if self._revision == self._known.revision:
            return
        self._revision = self._known.revision
        known = self._known.topics()
        views = views_in(known)
        # A change of the topics copies them only if somebody has a view.
        self._all = {**known, **views} if views else known
        self._names = {view.topic_id: name for name, view in views.items()}


class Views:
    """Looks up partitions of views. `leaders`: where the topics' own partitions are."""

    def __init__(self, topics: Topics, leaders: Leaders, counters: Counters) -> None:
        self._topics = topics
        self._leaders = leaders
        self._counters = counters
        self._schemas = TopicSchemas(topics, counters.broker)
        self._batches = KeptBatches()
        self._reads: dict[TopicId, FilteredReads] = {}

    def partition(self, name: str, index: int) -> PartitionLeader | None:
        """Returns a view's partition; None if there is no such view or partition."""
        view = view_of(self._topics.topics(), name)
        if view is None or view.view is None or not 0 <= index < view.partitions:
            return None
        return ViewPartition(view, index, self._leaders.partition(view.view.base, index), self)

    def reads(self, view: Topic) -> FilteredReads:
        """Returns the view's compiled filter. Raises INVALID_REQUEST if this version cannot read it."""
        found = self._reads.get(view.topic_id)
        if found is None:
            if len(self._reads) >= _KEPT:
                self._reads.clear()
            assert view.view is not None
            found = self._reads[view.topic_id] = FilteredReads(
                view.view.filter, self._counters.face(_FACE), self._schemas, self._batches
            )
        return found


class ViewPartition:
    """Implements `PartitionLeader` for a view: the partition of its topic, without what does not pass."""

    size = 0  # the records are the topic's

    def __init__(self, view: Topic, index: int, base: PartitionLeader, views: Views) -> None:
        self._view = view
        self._index = index
        self._base = base
        self._views = views

    @property
    def here(self) -> bool:
        return self._base.here

    @property
    def leader_epoch(self) -> int:
        return self._base.leader_epoch

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        raise read_only(self._view)

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        raise read_only(self._view)

    def delete_before(self, offset: int) -> int | Future[int]:
        raise read_only(self._view)

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> PartitionRead | Future[PartitionRead]:
        found = self._base.read(offset, max_bytes, isolation, at_least_one=at_least_one)
        if isinstance(found, PartitionRead) and found.size == 0:
            return found
        return ensure_future(self._filtered(found))

    async def _filtered(self, found: PartitionRead | Future[PartitionRead]) -> PartitionRead:
        read = await found if isinstance(found, Future) else found
        assert self._view.view is not None
        return await self._views.reads(self._view).filtered(self._view.view.base, self._index, read)

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        self._base.watch(waiter, isolation)

    def unwatch(self, waiter: ReadWaiter) -> None:
        self._base.unwatch(waiter)

    def check_leader_epoch(self, current: int) -> None:
        self._base.check_leader_epoch(current)

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime | Future[OffsetAtTime]:
        return self._base.offset_for_time(timestamp, isolation)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int] | Future[tuple[int, int]]:
        return self._base.end_of_epoch(leader_epoch)

    def active_producers(self) -> tuple[ActiveProducer, ...]:
        """Returns nobody: producers write to the topic."""
        return ()
