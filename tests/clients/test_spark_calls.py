"""The calls that Spark makes to the source and the sink, at a real daemon and without a JVM."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from treecast.spark_connectors.datasource import TreecastDataSource
from treecast.spark_connectors.errors import DataLossError, WriteError
from treecast.spark_connectors.links import LINKS
from treecast.spark_connectors.sink import writer
from treecast.spark_connectors.sink.options import SinkOptions, parse_options
from treecast.spark_connectors.source.arrow import schema_of

SCHEMA = schema_of(include_headers=False)
NOBODY = "127.0.0.1:1"
attempts = itertools.count(1)


@pytest.fixture(autouse=True)
def _no_links_are_left() -> Iterator[None]:
    yield
    LINKS.close()


class Task:
    """A task's context: its partition, and the query and the batch that Spark's local properties name."""

    def __init__(self, partition: int, query: str, batch: int) -> None:
        self._partition, self._attempt = partition, next(attempts)
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}

    def partitionId(self) -> int:
        return self._partition

    def taskAttemptId(self) -> int:
        return self._attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


class Query:
    """A query that copies topic `source` into `target`, ROWS offsets a batch, with a checkpoint in `at`."""

    ROWS = 100

    def __init__(self, servers: str, source: str, target: str) -> None:
        given = {"kafka.bootstrap.servers": servers, "topic": target, "writeTimeoutMs": "30000"}
        self.options: SinkOptions = parse_options(given, streaming=True)
        read = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
        self.reader: Any = TreecastDataSource(read | {"readTimeoutMs": "30000"}).streamReader(SCHEMA)
        self.name = f"query of {target}"
        self.at: list[dict[str, Any]] = [self.reader.initialOffset()]

    def batch(self, *, empty: bool = False) -> None:
        """Runs the next batch; with `empty`, no row passes the query."""
        number = len(self.at) - 1
        end = self.reader.latestOffset(self.at[-1], ReadMaxRows(self.ROWS))
        written = []
        for place, part in enumerate(self.reader.partitions(self.at[-1], end)):
            task: Any = Task(place, self.name, number)
            rows = (
                rows.select(["value"]).slice(0, 0 if empty else rows.num_rows)
                for rows in self.reader.read(part)
            )
            name = writer.streaming_batch(task, self.options)
            written.append(writer.put(rows, name, self.options, task))
        writer.finish(written, number, self.options, committed=True)
        self.at.append(end)

    def restored(self, batches: int) -> None:
        """Puts the checkpoint back to its state after the first batches."""
        del self.at[batches + 1 :]


@pytest.fixture
def fill(kafka: str) -> Callable[..., None]:
    def write(topic: str, partition: int, first: int, until: int) -> None:
        producer = Producer({"bootstrap.servers": kafka})
        for n in range(first, until):
            producer.produce(topic, f"{partition}-{n}".encode(), partition=partition)
        assert producer.flush(60) == 0

    return write


@pytest.fixture
def values(read_all: Callable[..., Any]) -> Callable[[str], list[bytes]]:
    return lambda topic: sorted(one.sample.value for one in read_all(topic, "read_committed"))


def test_a_checkpoint_one_batch_old_is_no_repeat_where_it_has_as_many_rows(
    kafka: str, new_topic: Any, fill: Any, values: Any, is_treecast: bool
) -> None:
    """The backlogs have changed: the batch has as many rows as the one that was written, but others."""
    if not is_treecast:
        pytest.skip("parts of transactions are Treecast's own")
    source, target = new_topic(2), new_topic()
    fill(source, 0, 0, 100)
    fill(source, 1, 0, 100)
    query = Query(kafka, source, target)
    query.batch()
    query.batch()
    before = values(target)
    assert len(before) == 200
    query.restored(1)
    query.batch()
    assert values(target) == before, "the same rows are a repeat"
    query.restored(1)
    fill(source, 1, 100, 400)
    with pytest.raises(
        WriteError, match=r"its rows differ .* was committed with 100 rows: .* not with 100 rows"
    ):
        query.batch()
    assert values(target) == before
    query.reader.stop()


def test_a_batch_without_rows_is_no_repeat_either(
    kafka: str, new_topic: Any, fill: Any, values: Any, is_treecast: bool
) -> None:
    """After a batch without rows the next one would write again what the last one had written."""
    if not is_treecast:
        pytest.skip("parts of transactions are Treecast's own")
    source, target = new_topic(), new_topic()
    query = Query(kafka, source, target)
    for number, empty in enumerate((True, False, True, True)):
        fill(source, 0, 10 * number, 10 * number + 10)
        query.batch(empty=empty)
    assert len(values(target)) == 10
    query.restored(2)
    query.batch(empty=True)
    query.restored(1)
    with pytest.raises(WriteError, match=r"was committed with 10 rows: .* not with 0 rows"):
        query.batch(empty=True)
    query.restored(0)
    with pytest.raises(WriteError, match="batch 0 is no repeat of the last one"):
        query.batch(empty=True)
    query.reader.stop()


def test_any_server_of_the_list_will_do(
    kafka: str, new_topic: Any, fill: Any, values: Any, is_treecast: bool
) -> None:
    if not is_treecast:
        pytest.skip("parts of transactions are Treecast's own")
    source, target = new_topic(), new_topic()
    fill(source, 0, 0, 10)
    query = Query(f"{NOBODY},{kafka}", source, target)
    query.batch()
    assert len(values(target)) == 10
    query.reader.stop()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_options_of_a_client_change_nothing_about_a_log_that_was_cut(
    kafka: str, new_topic: Any, fill: Any, level: str
) -> None:
    topic = new_topic()
    fill(topic, 0, 0, 20)
    given = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "kafka.isolation.level": level}
    reader: Any = TreecastDataSource(given | {"kafka.client.id": "x"}).streamReader(SCHEMA)
    start = reader.initialOffset()
    start[topic]["0"] = 100
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end[topic]["0"] == 20
    with pytest.raises(DataLossError, match="read up to 100, but it ends at 20"):
        reader.partitions(start, end)
    reader.stop()


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_planned_batch_whose_records_do_not_exist_ends(
    kafka: str, new_topic: Any, fill: Any, loss: str
) -> None:
    topic = new_topic()
    fill(topic, 0, 0, 10)
    given = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "startingOffsets": "earliest"}
    reader: Any = TreecastDataSource(given | {"failOnDataLoss": loss}).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = {topic: start[topic] | {"0": 100}}
    if loss == "true":
        with pytest.raises(DataLossError, match="to be read up to 100, but it ends at 10"):
            reader.partitions(start, end)
    else:
        parts = reader.partitions(start, end)
        assert sum(rows.num_rows for part in parts for rows in reader.read(part)) == 10
    reader.stop()
