"""The topic registry: Kafka's rules, durability, and repair after a crash at any step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.unit.refusals import refusal

from treecast.middleware.broker.settings import BrokerSettings
from treecast.middleware.broker.topics import DELETIONS, TOPICS, TopicRegistry, altered
from treecast.middleware.broker.values import ConfigChange, ConfigOperation, NewTopic, Topic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Change, Tables

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


class Kill(BaseException):
    """The process ends here."""


class RecordingStorage:
    """Records which partitions exist; refuses, or dies, where a test says so."""

    def __init__(self) -> None:
        self.made: set[tuple[str, int]] = set()
        self.opened: list[str] = []
        self.leftovers: list[tuple[str, int]] = []
        self.reconfigured: list[Topic] = []
        self.fail: dict[str, BaseException] = {}

    def open(self, topic: Topic) -> None:
        self.opened.append(topic.name)
        self.made |= {(topic.name, index) for index in range(topic.partitions)}

    async def create(self, topic: Topic, first: int) -> None:
        self._maybe("create")
        self.made |= {(topic.name, index) for index in range(first, topic.partitions)}

    def reconfigure(self, topic: Topic) -> None:
        self.reconfigured.append(topic)

    def remove(self, topic: Topic, first: int) -> None:
        self._maybe("remove")
        self.made -= {(topic.name, index) for index in range(first, topic.partitions)}

    def remove_leftovers(self, name: str, topic_id: TopicId, partitions: int) -> None:
        self.leftovers.append((name, partitions))

    def _maybe(self, step: str) -> None:
        error = self.fail.pop(step, None)
        if error is not None:
            raise error


class Bench:
    """A registry on a table file; `reopen` kills it and starts it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.storage = RecordingStorage()
        self.forgotten: list[str] = []
        self.settings = BrokerSettings(path, max_partitions=100)
        self.rng = random.Random(1)
        self._open()

    def _open(self) -> None:
        self.tables = Tables(self.path / "tables.sqlite", FsyncPolicy.NEVER)
        self.registry = TopicRegistry(self.settings, self.tables, self.storage, self.rng, self._forget)

    async def _forget(self, name: str) -> None:
        self.forgotten.append(name)

    async def reopen(self) -> TopicRegistry:
        self.tables.close()
        self.storage.opened.clear()
        self._open()
        await self.registry.load()
        return self.registry


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.tables.close()


async def test_of_topics_that_are_made_together_the_bound_counts_all(bench: Bench) -> None:
    answers = await bench.registry.create_topics([NewTopic("a", 60), NewTopic("b", 60), NewTopic("c", 40)])
    assert [isinstance(answer, TreecastError) for answer in answers] == [False, True, False]
    assert (await bench.reopen()).topics().keys() == {"a", "c"}
    with refusal(Fault.INVALID_PARTITIONS):
        await bench.registry.create_topic(NewTopic("d"))
    await bench.registry.delete_topic("c")
    await bench.registry.create_topic(NewTopic("d"))


async def test_many_topics_are_written_in_groups(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, written = bench.tables.commit, []

    async def counted(changes: Sequence[Change]) -> None:
        written.append(len(changes))
        await commit(changes)

    monkeypatch.setattr(bench.tables, "commit", counted)
    names = [f"t{number % 90}" for number in range(100)]
    answers = await bench.registry.create_topics([NewTopic(name) for name in names])
    assert [isinstance(answer, TreecastError) for answer in answers] == [False] * 90 + [True] * 10
    assert len(written) > 1
    assert sum(written) == 90
    assert (await bench.reopen()).topics().keys() == set(names)


async def test_topics_that_cannot_be_written_down_are_not_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(changes: object) -> None:
        raise TreecastError(Fault.STORAGE, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(bench.tables, "commit", refuse)
        answers = await bench.registry.create_topics([NewTopic("a"), NewTopic("a b"), NewTopic("b")])
    faults = [answer.fault for answer in answers if isinstance(answer, TreecastError)]
    assert faults == [Fault.STORAGE, Fault.INVALID_TOPIC, Fault.STORAGE]
    assert not bench.registry.topics()
    assert not bench.storage.made


async def test_topics_outlive_the_process(bench: Bench) -> None:
    made = await bench.registry.create_topic(NewTopic("a.b", 3, {"retention.ms": "5"}))
    again = await bench.reopen()
    assert again.topics() == {"a.b": made}
    assert again.topic_by_id(made.topic_id).config.retention_ms == 5
    assert bench.storage.opened == ["a.b"]


async def test_defaults_are_the_daemons(bench: Bench) -> None:
    bench.settings = BrokerSettings(
        bench.path, default_partitions=4, topic_defaults={"max.message.bytes": "9"}
    )
    topic = await (await bench.reopen()).create_topic(NewTopic("t"))
    assert (topic.partitions, topic.config.max_message_bytes, topic.config.overrides) == (4, 9, {})


async def test_a_bad_default_is_refused_at_start(bench: Bench) -> None:
    bench.settings = BrokerSettings(bench.path, topic_defaults={"max.message.bytes": "many"})
    with refusal(Fault.INVALID_CONFIG):
        await bench.reopen()


@pytest.mark.parametrize(
    ("new", "fault"),
    [
        (NewTopic(""), Fault.INVALID_TOPIC),
        (NewTopic(".."), Fault.INVALID_TOPIC),
        (NewTopic("a b"), Fault.INVALID_TOPIC),
        (NewTopic("x" * 250), Fault.INVALID_TOPIC),
        (NewTopic("taken"), Fault.TOPIC_EXISTS),
        (NewTopic("t", 0), Fault.INVALID_PARTITIONS),
        (NewTopic("t", -2), Fault.INVALID_PARTITIONS),
        (NewTopic("t", 100), Fault.INVALID_PARTITIONS),
        (NewTopic("t", 2**31 - 1), Fault.INVALID_PARTITIONS),
        (NewTopic("t", 1, {"retention.ms": "soon"}), Fault.INVALID_CONFIG),
        (NewTopic("t", 1, {"no.such.key": "1"}), Fault.INVALID_CONFIG),
    ],
)
async def test_refused(bench: Bench, new: NewTopic, fault: Fault) -> None:
    await bench.registry.create_topic(NewTopic("taken"))
    for validate_only in (True, False):
        with refusal(fault):
            await bench.registry.create_topic(new, validate_only=validate_only)
    assert set((await bench.reopen()).topics()) == {"taken"}


async def test_dots_and_underscores_do_not_collide(bench: Bench) -> None:
    await bench.registry.create_topic(NewTopic("a.b"))
    await bench.registry.create_topic(NewTopic("a_b"))


async def test_validating_changes_nothing(bench: Bench) -> None:
    topic = await bench.registry.create_topic(NewTopic("t", 2), validate_only=True)
    assert topic.partitions == 2
    await bench.registry.create_topic(NewTopic("u"))
    await bench.registry.create_partitions("u", 3, validate_only=True)
    await bench.registry.alter_topic("u", [ConfigChange("retention.ms", SET, "1")], validate_only=True)
    for registry in (bench.registry, await bench.reopen()):
        assert [(t.name, t.partitions, t.config.overrides) for t in registry.topics().values()] == [
            ("u", 1, {})
        ]


async def test_partitions_only_grow(bench: Bench) -> None:
    await bench.registry.create_topic(NewTopic("t", 2))
    for total in (0, 1, 2, 101):
        with refusal(Fault.INVALID_PARTITIONS):
            await bench.registry.create_partitions("t", total)
    with refusal(Fault.UNKNOWN_TOPIC):
        await bench.registry.create_partitions("u", 5)
    await bench.registry.create_partitions("t", 5)
    assert bench.storage.made == {("t", index) for index in range(5)}
    assert (await bench.reopen()).topics()["t"].partitions == 5


async def test_a_deleted_topic_is_gone_with_its_offsets(bench: Bench) -> None:
    topic = await bench.registry.create_topic(NewTopic("t", 2))
    await bench.registry.delete_topic("t")
    assert (bench.storage.made, bench.forgotten) == (set(), ["t"])
    for registry in (bench.registry, await bench.reopen()):
        assert not registry.topics()
        with refusal(Fault.UNKNOWN_TOPIC):
            await registry.delete_topic("t")
        with refusal(Fault.UNKNOWN_TOPIC_ID):
            registry.topic_by_id(topic.topic_id)
    assert bench.storage.leftovers == []
    assert (await bench.registry.create_topic(NewTopic("t"))).topic_id != topic.topic_id


async def test_a_deletion_that_was_broken_off_is_finished(bench: Bench) -> None:
    await bench.registry.create_topic(NewTopic("t", 2))
    bench.storage.fail["remove"] = Kill()
    with pytest.raises(Kill):
        await bench.registry.delete_topic("t")
    registry = await bench.reopen()
    assert not registry.topics()
    assert (bench.storage.leftovers, bench.forgotten) == ([("t", 2)], ["t"])
    await bench.reopen()
    assert len(bench.storage.leftovers) == 1


async def test_a_finished_deletion_never_touches_a_newer_topic(bench: Bench) -> None:
    """The process was killed after a deletion, before it was recorded; the name was in use again."""
    old = await bench.registry.create_topic(NewTopic("t"))
    await bench.registry.delete_topic("t")
    await bench.registry.create_topic(NewTopic("t"))
    bench.tables.write([Change(DELETIONS, old.topic_id.hex, b'{"name": "t", "partitions": 1}')])
    await bench.reopen()
    assert (bench.storage.leftovers, bench.tables.load(DELETIONS)) == ([], {})
    assert ("t", 0) in bench.storage.made


async def test_a_creation_that_failed_left_nothing(bench: Bench) -> None:
    bench.storage.fail["create"] = TreecastError(Fault.STORAGE)
    with refusal(Fault.STORAGE):
        await bench.registry.create_topic(NewTopic("t", 2))
    assert (dict(bench.registry.topics()), bench.tables.load(TOPICS)) == ({}, {})


async def test_a_definition_that_cannot_be_written_takes_its_partitions_back(bench: Bench) -> None:
    await bench.registry.create_topic(NewTopic("t", 1))
    bench.tables._database.execute("PRAGMA query_only = ON")
    for change in (
        bench.registry.create_topic(NewTopic("u", 2)),
        bench.registry.create_partitions("t", 2),
        bench.registry.delete_topic("t"),
        bench.registry.alter_topic("t", [ConfigChange("retention.ms", SET, "1")]),
    ):
        with refusal(Fault.STORAGE):
            await change
    assert bench.storage.made == {("t", 0)}
    assert [(t.name, t.partitions, t.config.overrides) for t in bench.registry.topics().values()] == [
        ("t", 1, {})
    ]


async def test_alterations_are_durable_and_reach_the_partitions(bench: Bench) -> None:
    await bench.registry.create_topic(NewTopic("t", 1, {"retention.ms": "5"}))
    changes = [ConfigChange("retention.ms", DELETE, None), ConfigChange("cleanup.policy", APPEND, "compact")]
    changed = await bench.registry.alter_topic("t", changes)
    assert changed.config.overrides == {"cleanup.policy": "delete,compact"}
    assert bench.storage.reconfigured == [changed]
    assert (await bench.reopen()).topics()["t"] == changed


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, ConfigChange("retention.ms", SET, "1"), {"retention.ms": "1"}),
        ({"retention.ms": "1"}, ConfigChange("retention.ms", DELETE, None), {}),
        ({}, ConfigChange("retention.ms", DELETE, "ignored"), {}),
        ({}, ConfigChange("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({}, ConfigChange("cleanup.policy", APPEND, "delete"), {"cleanup.policy": "delete"}),
        (
            {"cleanup.policy": "delete,compact"},
            ConfigChange("cleanup.policy", SUBTRACT, "delete"),
            {"cleanup.policy": "compact"},
        ),
        ({}, ConfigChange("retention.ms", APPEND, "1"), Fault.INVALID_CONFIG),
        ({}, ConfigChange("retention.ms", SET, None), Fault.INVALID_CONFIG),
        ({}, ConfigChange("unknown", SET, "1"), Fault.INVALID_CONFIG),
        ({"retention.ms": "1"}, ConfigChange("unknown", DELETE, None), {"retention.ms": "1"}),
    ],
)
def test_incremental_alterations(before: dict[str, str], change: ConfigChange, after: object) -> None:
    if isinstance(after, Fault):
        with pytest.raises(TreecastError) as caught:
            altered(before, {}, [change])
        assert caught.value.fault is after
    else:
        assert altered(before, {}, [change]) == after


async def test_an_emptied_list_keeps_everything(bench: Bench) -> None:
    await bench.registry.create_topic(NewTopic("t"))
    await bench.registry.alter_topic("t", [ConfigChange("cleanup.policy", SUBTRACT, "delete")])
    config = bench.registry.topics()["t"].config
    assert (config.cleanup_delete, config.cleanup_compact) == (False, False)


def test_a_key_is_changed_once() -> None:
    change = ConfigChange("retention.ms", SET, "1")
    with pytest.raises(TreecastError) as caught:
        altered({}, {}, [change, change])
    assert caught.value.fault is Fault.INVALID_REQUEST
