"""The durable topic registry: the topics with their partition counts and configurations.

Names follow Kafka's rules with one exception: Kafka refuses `a_b` beside `a.b` because their metrics
would share a name. Here `.` separates levels and metrics carry names as labels, and both may exist. The
Kafka face still refuses the second of them to its own clients.

Table `topics`: name -> {"id": hex, "partitions": n, "config": {key: text}}.
Table `deletions`: topic id -> {"name": ..., "partitions": n, "views": [their full names]}.

The table is authoritative. New directories are made before the definition is written: a crash in between
leaves directories without a topic, which are put aside if the name is created again. A deletion is written
in one transaction with the topic's removal, and cleared when the directories are gone: after a crash in
between, the next start completes it.
"""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec
from msgspec.structs import replace

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.topic_config import ConfigType, TopicConfig, config_key
from treecast.middleware.model.topics import check_new_kafka_name
from treecast.middleware.storage.tables import Change, Tables

from .settings import BrokerSettings
from .values import ConfigChange, ConfigOperation, NewTopic, Topic
from .views import check_no_view, check_views, view_names

TOPICS, DELETIONS = "topics", "deletions"
_AT_ONCE = 16  # topics made before the loop gets its turn
_TOGETHER = 64  # topics whose definitions are written together
_CONFIGS = 1000


class TopicStorage(Protocol):
    """The storage of partitions. Calls with `first` apply to the partitions from `first` to the last."""

    def open(self, topic: Topic) -> None:
        """Opens all partitions at start, making those that are missing. Raises STORAGE."""

    async def create(self, topic: Topic, first: int) -> None:
        """Makes partitions, and puts directories of unknown topics in their place aside.

        Raises STORAGE, and makes none, if one cannot be made.
        """

    def reconfigure(self, topic: Topic) -> None: ...

    def remove(self, topic: Topic, first: int) -> None:
        """Wakes the readers with UNKNOWN_TOPIC and removes the directories."""

    def remove_leftovers(self, name: str, topic_id: TopicId, partitions: int) -> None:
        """Completes a deletion that a crash interrupted."""


class Configs:
    """Topics' configurations. Topics with equal overrides share one value, as most topics have none."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        self._defaults = defaults
        self._known: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def of(self, overrides: Mapping[str, str]) -> TopicConfig:
        """As `TopicConfig.of`."""
        key = frozenset(overrides.items())
        known = self._known.get(key)
        if known is None:
            known = TopicConfig.of(overrides, self._defaults)
            if len(self._known) >= _CONFIGS:
                self._known.clear()
            self._known[key] = known
        return known


class TopicRegistry:
    """The `Definitions` of a standalone host."""

    def __init__(
        self,
        settings: BrokerSettings,
        tables: Tables,
        storage: TopicStorage,
        rng: random.Random,
        on_removed: Callable[[str], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._storage = storage
        self._rng = rng
        self._on_removed = on_removed
        self._topics: dict[str, Topic] = {}
        self._view = MappingProxyType(self._topics)
        self._by_id: dict[TopicId, str] = {}
        self._partitions = 0  # of all topics together
        self._configs = Configs(settings.topic_defaults)
        self._changing = asyncio.Lock()
        self._listener: Callable[[str], None] | None = None
        self.revision = 0

    async def load(self) -> None:
        """Reads the tables, completes interrupted deletions, and opens every partition."""
        for topic in (await self.read()).values():
            self._storage.open(topic)

    async def read(self) -> Mapping[str, Topic]:
        """As `load`, but opens no partitions: for a host that hands its topics over."""
        TopicConfig.of(self._settings.topic_defaults)  # refuses a bad default even if there are no topics
        for name, value in self._tables.load(TOPICS).items():
            self._keep(self._decode(name, value))
        for key, value in self._tables.load(DELETIONS).items():
            entry = json.loads(value)
            if entry["name"] not in self._topics:  # else the deletion lacked only this
                self._storage.remove_leftovers(entry["name"], uuid.UUID(key), entry["partitions"])
                await self._forget([entry["name"], *entry.get("views", ())])
            await self._tables.commit([Change(DELETIONS, key, None)])
        return self._view

    def topics(self) -> Mapping[str, Topic]:
        return self._view

    def listen(self, listener: Callable[[str], None] | None) -> None:
        self._listener = listener

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        name = self._by_id.get(topic_id)
        if name is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC_ID)
        return self._topics[name]

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        (made,) = await self.create_topics([new], validate_only=validate_only)
        if isinstance(made, TreecastError):
            raise made
        return made

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | TreecastError]:
        if validate_only:
            async with self._changing:
                return await self._made(new, validate_only)
        answers: list[Topic | TreecastError] = []
        for begin in range(0, len(new), _TOGETHER):  # writing thousands at once would hold up the loop
            answers += await self._create(new[begin : begin + _TOGETHER])
        return answers

    async def _create(self, new: Sequence[NewTopic]) -> list[Topic | TreecastError]:
        async with self._changing:
            answers = await self._made(new, False)
            topics = [answer for answer in answers if isinstance(answer, Topic)]
            if not topics:
                return answers
            try:
                await self._tables.commit([self._entry(topic) for topic in topics])
            except TreecastError as error:
                self._withdraw(topics)
                return [error if isinstance(answer, Topic) else answer for answer in answers]
            except BaseException:
                self._withdraw(topics)
                raise
            for topic in topics:
                self._keep(topic)
            return answers

    async def _made(self, new: Sequence[NewTopic], validate_only: bool) -> list[Topic | TreecastError]:
        """Makes topics with their partitions. They take effect once their definitions are written."""
        answers: list[Topic | TreecastError] = []
        names: set[str] = set()
        partitions = 0
        for number, one in enumerate(new):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            try:
                topic = self._defined(one, names, partitions)
                if not validate_only:
                    await self._storage.create(topic, 0)
            except TreecastError as error:
                answers.append(error)
                continue
            except BaseException:
                self._withdraw([] if validate_only else [made for made in answers if isinstance(made, Topic)])
                raise
            answers.append(topic)
            names.add(topic.name)
            partitions += topic.partitions
        return answers

    def _withdraw(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._storage.remove(topic, 0)

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Topic:
        async with self._changing:
            topic = self._existing(name)
            if total <= topic.partitions:
                raise TreecastError(
                    Fault.INVALID_PARTITIONS,
                    f"topic {name} has {topic.partitions} partitions already; their number can only grow",
                )
            self._check_partitions(total, total - topic.partitions)
            grown = replace(topic, partitions=total)
            if validate_only:
                return grown
            return await self._grow(grown, topic.partitions)

    async def alter_topic(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Topic:
        async with self._changing:
            topic = self._existing(name)
            overrides = altered(topic.config.overrides, self._settings.topic_defaults, changes)
            config = self._configs.of(overrides)
            check_views(self._topics, name, topic.config.overrides, overrides)
            changed = replace(topic, config=config)
            if validate_only:
                return changed
            await self._tables.commit([self._entry(changed)])
            self._keep(changed)
            self._storage.reconfigure(changed)
            gone = view_names(name, topic.config.overrides) - view_names(name, overrides)
            await self._forget(sorted(gone))
            return changed

    async def delete_topic(self, name: str) -> Topic:
        async with self._changing:
            topic = self._existing(name)
            key = topic.topic_id.hex
            views = sorted(view_names(name, topic.config.overrides))
            value = {"name": name, "partitions": topic.partitions, "views": views}
            broken_off = json.dumps(value).encode()
            await self._tables.commit([Change(TOPICS, name, None), Change(DELETIONS, key, broken_off)])
            del self._topics[name]
            self._partitions -= topic.partitions
            del self._by_id[topic.topic_id]
            self._tell(name)
            self._storage.remove(topic, 0)
            await self._forget([name, *views])
            await self._tables.commit([Change(DELETIONS, key, None)])
            return topic

    async def _forget(self, names: Sequence[str]) -> None:
        """Lets those know who keep something about topics or views that are gone."""
        for name in names:
            await self._on_removed(name)

    async def _grow(self, topic: Topic, first: int) -> Topic:
        """Makes the partitions from `first` on, then writes the definition. On an error neither is kept."""
        await self._storage.create(topic, first)
        try:
            await self._tables.commit([self._entry(topic)])
        except BaseException:
            self._storage.remove(topic, first)
            raise
        self._keep(topic)
        return topic

    def _defined(self, new: NewTopic, beside: Collection[str], more: int) -> Topic:
        """Returns the checked definition of a new topic. `beside` names the topics made with it, which
        have `more` partitions in total."""
        check_new_kafka_name(new.name)
        if new.name in self._topics or new.name in beside:
            raise TreecastError(Fault.TOPIC_EXISTS, f"topic {new.name} exists already")
        if new.leaders:
            raise TreecastError(
                Fault.INVALID_ASSIGNMENT, "this host is alone and leads everything: name no leaders"
            )
        partitions = self._settings.default_partitions if new.partitions == -1 else new.partitions
        self._check_partitions(partitions, partitions + more)
        config = self._configs.of(new.config)
        check_no_view(self._topics, new.name)
        check_views(self._topics, new.name, {}, new.config)
        topic_id = uuid.UUID(int=self._rng.getrandbits(128), version=4)
        return Topic(new.name, topic_id, partitions, config)

    def _check_partitions(self, total: int, more: int) -> None:
        if total < 1:
            raise TreecastError(Fault.INVALID_PARTITIONS, f"a topic has at least one partition, not {total}")
        most = self._settings.max_partitions
        if self._partitions + more > most:
            raise TreecastError(
                Fault.INVALID_PARTITIONS,
                f"{more} partitions more than the {self._partitions} there are would pass this daemon's bound"
                f" of {most}: raise it with --max-partitions",
            )

    def _existing(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {name}")
        return topic

    def _keep(self, topic: Topic) -> None:
        before = self._topics.get(topic.name)
        self._partitions += topic.partitions - (before.partitions if before is not None else 0)
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic.name
        self._tell(topic.name)

    def _tell(self, name: str) -> None:
        self.revision += 1
        if self._listener is not None:
            self._listener(name)

    def _entry(self, topic: Topic) -> Change:
        value = {
            "id": topic.topic_id.hex,
            "partitions": topic.partitions,
            "config": dict(topic.config.overrides),
        }
        return Change(TOPICS, topic.name, json.dumps(value).encode())

    def _decode(self, name: str, value: bytes) -> Topic:
        entry = msgspec.json.decode(value)
        config = self._configs.of(entry["config"])
        return Topic(name, uuid.UUID(entry["id"]), entry["partitions"], config)


def altered(
    overrides: Mapping[str, str], defaults: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str]:
    """Returns the overrides after IncrementalAlterConfigs' `changes` (KIP-339). Raises the same errors as
    Kafka's controller."""
    result = dict(overrides)
    if len({change.name for change in changes}) != len(changes):
        raise TreecastError(Fault.INVALID_REQUEST, "a configuration key is named twice")
    for change in changes:
        if change.operation is ConfigOperation.DELETE:
            result.pop(change.name, None)
            continue
        key = config_key(change.name)
        if key is None:
            raise TreecastError(Fault.INVALID_CONFIG, f"unknown topic config name: {change.name}")
        if change.value is None:
            raise TreecastError(Fault.INVALID_CONFIG, f"{change.name} needs a value")
        if change.operation is ConfigOperation.SET:
            result[change.name] = change.value
            continue
        if key.type is not ConfigType.LIST:
            raise TreecastError(
                Fault.INVALID_CONFIG,
                f"{change.name} is not a list: set it instead of appending or subtracting",
            )
        before = result.get(change.name, defaults.get(change.name, key.default))
        result[change.name] = _edited_list(before, change)
    return result


def _edited_list(before: str, change: ConfigChange) -> str:
    items = [item.strip() for item in before.split(",") if item.strip()]
    named = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.operation is ConfigOperation.APPEND:
        return ",".join(items + [item for item in named if item not in items])
    return ",".join(item for item in items if item not in named)
