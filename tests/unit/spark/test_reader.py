"""A reader as Spark calls it, at a cluster that forgets topics, cuts logs, and replaces topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from treecast.spark_connectors.errors import DataLossError, OptionError
from treecast.spark_connectors.source.offsets import Offsets, Partition
from treecast.spark_connectors.source.options import Subscription

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from treecast.spark_connectors.datasource import TreecastDataSource
from treecast.spark_connectors.source.arrow import schema_of

T0, T1 = Partition("t", 0), Partition("t", 1)


class Topics:
    """A cluster: the ends of its logs, which start at 0. `hidden`: how many next answers lack the topics."""

    def __init__(self, ends: Offsets, topic_id: str = "first") -> None:
        self.ends, self.topic_id = ends, topic_id
        self.hidden = 0
        self.asked: list[Offsets] = []  # which ends were looked at one by one

    def partitions(self, subscription: Subscription) -> list[Partition]:
        if self.hidden:
            self.hidden -= 1
            return []
        return sorted(self.ends)

    def topic_ids(self, partitions: Iterable[Partition]) -> dict[str, str]:
        return {part.topic: self.topic_id for part in partitions}

    def beyond(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        self.asked.append(dict(offsets))
        return {part for part, offset in offsets.items() if self.ends.get(part, -1) < offset}

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        return {part: 0 for part in partitions if part in self.ends}

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        return {part: self.ends[part] for part in partitions if part in self.ends}

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        return dict.fromkeys(times, 0)

    def close(self) -> None:
        pass


def options(**given: str) -> dict[str, str]:
    fixed = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "localDaemon": "false"}
    return fixed | {"startingOffsets": "earliest"} | given


class Query:
    """The calls of a stream's triggers; `ranges` are those that tasks would read, of each batch."""

    def __init__(self, topics: Topics, **given: str) -> None:
        source = TreecastDataSource(options(**given))
        self.reader: Any = source.streamReader(schema_of(include_headers=False))
        self.reader._reading._cluster = topics
        self.at: dict[str, Any] = self.reader.initialOffset()

    def trigger(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        end = self.reader.latestOffset(self.at, ReadAllAvailable() if limit is None else ReadMaxRows(limit))
        ranges = self.plan(end)
        self.at = end
        return ranges

    def plan(self, end: dict[str, Any]) -> list[tuple[Any, ...]]:
        return [part.value for part in self.reader.partitions(self.at, end)]


def test_a_topic_that_one_answer_lacks_is_read_on_where_it_was() -> None:
    topics = Topics({T0: 20, T1: 5})
    for loss in ("false", "true"):
        query = Query(topics, failOnDataLoss=loss)
        assert query.trigger() == [("t", 0, 0, 20), ("t", 1, 0, 5)]
        topics.hidden = 1
        topics.ends[T0] += 3
        assert query.trigger() == [("t", 0, 20, 23)], "it is looked for once more"
        topics.ends[T0] = 20


def test_a_trigger_waits_for_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("treecast.spark_connectors.source.reader.time.monotonic", lambda: now[0])
    topics = Topics({T0: 5})
    query = Query(topics, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert query.trigger() == [("t", 0, 0, 5)], "the first one does not wait"
    topics.ends |= {T0: 9, T1: 5}
    now[0] += 59
    before = query.at
    assert query.trigger() == []
    assert query.at == before, "so Spark makes no batch"
    topics.ends[T1] = 6
    assert query.trigger() == [("t", 0, 5, 9), ("t", 1, 0, 6)]
    topics.ends[T0] = 10
    now[0] += 59
    assert query.trigger() == []
    now[0] += 1
    assert query.trigger() == [("t", 0, 9, 10)], "it has waited for long enough"
    topics.ends[T0] = 11
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == [("t", 0, 10, 11)], "what is available now is read"


def test_tasks_get_no_more_than_they_may() -> None:
    query = Query(Topics({T0: 7}), maxRecordsPerPartition="3")
    assert query.trigger() == [("t", 0, 0, 2), ("t", 0, 2, 4), ("t", 0, 4, 7)]


def test_a_topic_that_stays_away_keeps_its_position(caplog: pytest.LogCaptureFixture) -> None:
    topics = Topics({T0: 20})
    query = Query(topics, failOnDataLoss="false")
    query.trigger()
    topics.hidden = 9
    for _ in range(3):
        assert query.trigger() == []
    assert query.at == {"t": {"id": "first", "0": 20}}
    assert caplog.text.count("partitions are not there; their positions are kept") == 1
    topics.hidden, topics.ends[T0] = 0, 25
    assert query.trigger() == [("t", 0, 20, 25)]


def test_a_topic_that_stays_away_fails_the_query_that_is_to_fail() -> None:
    topics = Topics({T0: 20})
    query = Query(topics)
    query.trigger()
    topics.hidden = 9
    with pytest.raises(DataLossError, match="t-0: no longer there"):
        query.trigger()


def test_a_query_begins_though_an_answer_lacks_its_topic() -> None:
    topics = Topics({T0: 20})
    topics.hidden = 2
    assert Query(topics).trigger() == [("t", 0, 0, 20)]
    topics.hidden = 9
    with pytest.raises(OptionError, match="there is no topic t at h:1"):
        Query(topics)


def test_another_topic_of_its_name_is_read_from_the_beginning() -> None:
    topics = Topics({T0: 20})
    query = Query(topics, failOnDataLoss="false")
    query.trigger()
    topics.hidden = 2
    query.trigger()
    topics.topic_id, topics.ends[T0] = "second", 30
    assert query.trigger() == [("t", 0, 0, 30)]
    assert query.at == {"t": {"id": "second", "0": 30}}


def test_available_now_reads_on_after_an_answer_without_the_topic() -> None:
    topics = Topics({T0: 20})
    query = Query(topics, failOnDataLoss="false")
    query.trigger()
    topics.hidden, topics.ends[T0] = 1, 25
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == [("t", 0, 20, 25)]


PLANNED = {"t": {"id": "first", "0": 100, "1": 5}}


def test_a_plan_beyond_the_end_of_the_log_is_a_loss() -> None:
    """A checkpoint holds a batch that was planned, and the log ends before it."""
    query = Query(Topics({T0: 20, T1: 5}))
    with pytest.raises(DataLossError, match="t-0: to be read up to 100, but it ends at 20"):
        query.plan(PLANNED)
    assert query.reader._reading.cluster().asked == [{T0: 100}]


def test_or_is_read_as_far_as_it_goes() -> None:
    topics = Topics({T0: 20, T1: 5})
    query = Query(topics, failOnDataLoss="false")
    assert query.plan(PLANNED) == [("t", 0, 0, 20), ("t", 1, 0, 5)]
    query.at = PLANNED
    topics.ends[T0] = 22
    assert query.trigger() == [], "it begins at the end, and the loss is logged"
    topics.ends[T0] = 25
    assert query.trigger() == [("t", 0, 22, 25)]


def test_a_topic_without_an_id_that_ends_before_the_plan_begins_is_another_one() -> None:
    query = Query(Topics({T0: 20}), failOnDataLoss="false")
    query.at = {"t": {"0": 50}}
    assert query.plan({"t": {"0": 100}}) == [("t", 0, 0, 20)]


def test_a_planned_topic_that_is_deleted_is_a_loss() -> None:
    topics = Topics({T0: 20, T1: 5})
    query, patient = Query(topics), Query(topics, failOnDataLoss="false")
    del topics.ends[T0]
    with pytest.raises(DataLossError, match="t-0: to be read up to 20, but it is no longer there"):
        query.plan({"t": {"id": "first", "0": 20, "1": 5}})
    assert patient.plan({"t": {"id": "first", "0": 20, "1": 5}}) == [("t", 1, 0, 5)]


def test_ends_that_were_just_asked_for_are_not_asked_again() -> None:
    topics = Topics({T0: 20, T1: 5})
    Query(topics).trigger()
    assert topics.asked == []


def test_a_small_partition_is_read_beside_a_large_one() -> None:
    query = Query(Topics({T0: 3000, T1: 1}))
    assert query.trigger(100) == [("t", 0, 0, 99), ("t", 1, 0, 1)]


def batch(topics: Topics, **given: str) -> list[tuple[Any, ...]]:
    reader: Any = TreecastDataSource(options(**given)).reader(schema_of(include_headers=False))
    reader._reading._cluster = topics
    return [part.value for part in reader.partitions()]


def test_a_batch_between_offsets_that_do_not_exist() -> None:
    topics = Topics({T0: 20})
    beyond = {"endingOffsets": '{"t": {"0": 100}}'}
    with pytest.raises(DataLossError, match="t-0: to be read up to 100, but it ends at 20"):
        batch(topics, **beyond)
    assert batch(topics, failOnDataLoss="false", **beyond) == [("t", 0, 0, 20)]
    late = {"startingOffsets": '{"t": {"0": 50}}'}
    with pytest.raises(DataLossError, match="t-0: read up to 50, but it ends at 20"):
        batch(topics, **late)
    assert batch(topics, failOnDataLoss="false", **late) == []
    assert batch(topics, startingOffsets='{"t": {"0": 20}}') == []


def test_options_without_effect_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        Query(Topics({T0: 1}), **{"kafka.client.id": "a job", "kafka.max.poll.records": "7"})
    assert caplog.text.count("options have no effect here") == 1
    assert "kafka.client.id, kafka.max.poll.records" in caplog.text
