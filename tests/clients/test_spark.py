"""Spark reads a daemon by `format("treecast")`, in an interpreter that has registered nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from treecast.middleware.daemon.process import DaemonProcess
from treecast.spark_connectors.errors import DataLossError, WriteError
from treecast.spark_connectors.sink.rows import murmur2
from treecast.spark_connectors.source.offsets import Partition

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 3000
ATTEMPTS = 3
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # queries are short: half of the processor time
)
SMALL = ROOT / "tests/clients/spark/conf"  # Spark's settings for tables of some hundred rows
# Spark allows a worker 10 s to start, however busy the machine is
SLOW = "Python worker failed to connect back"


def fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic("spark", 3, 1), NewTopic("spark-loss", 1, 1)]
    topics += [NewTopic("spark-many", 1000, 1)]
    for made in admin.create_topics(topics).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": address, "compression.type": "lz4", "linger.ms": 20})
    for n in range(RECORDS):
        value = json.dumps({"n": n}).encode()
        producer.produce("spark", value, f"k{n}".encode(), n % 3, headers=[("h", f"h{n}".encode())])
    for n in range(10):
        producer.produce("spark-loss", b"%d" % n, partition=0)
    for partition in (0, 500, 999):
        producer.produce("spark-many", b"v", partition=partition)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that checks often for retention and compaction."""
    flags = ["--retention-check-interval-ms", "500", "--compaction-check-interval-ms", "500"]
    daemon = DaemonProcess(tmp_path_factory.mktemp("shared") / "data", flags)
    yield daemon.start()
    if daemon.running:
        daemon.stop()
    print(f"--- log of the daemon\n{daemon.clean_up()}", file=sys.stderr)


@pytest.fixture(scope="module")
def found(
    shared_daemon: DaemonProcess,
    tmp_path_factory: pytest.TempPathFactory,
    require_tool: Callable[[str], str],
    require: Callable[[bool, str], None],
) -> dict[str, Any]:
    """The results of `spark/reads.py`: one session for all tests, as a session takes long to start."""
    require_tool("java")
    require(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")
    fill(shared_daemon.kafka)
    said = ""
    for _ in range(ATTEMPTS):
        said, found = _reads(shared_daemon.kafka, tmp_path_factory.mktemp("spark"))
        if found or SLOW not in said:
            break
    assert found, said
    return found


def _reads(address: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """Returns the script's last output, and its results."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/clients/spark/reads.py"), address, str(folder)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ
        | {"JDK_JAVA_OPTIONS": JAVA, "SPARK_CONF_DIR": str(SMALL), "SPARK_LOCAL_IP": "127.0.0.1"}
        | {"TREECAST_RUNTIME_DIR": str(folder)},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = json.loads(lines[-1].removeprefix("FOUND ")) if lines else {}
    return f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}", found


def test_a_batch_has_the_columns_of_sparks_kafka_source(found: dict[str, Any]) -> None:
    batch = found["batch"]
    assert batch["columns"] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    assert (batch["count"], batch["distinct"]) == (RECORDS, RECORDS)
    assert (batch["key"], batch["value"], batch["headers"]) == ("k22", '{"n": 22}', [["h", "h22"]])
    assert batch["type"] == 0
    assert batch["year"] > 2000


def test_a_batch_between_offsets(found: dict[str, Any]) -> None:
    wanted = [[0, offset] for offset in range(990, 1000)] + [[2, offset] for offset in range(10)]
    assert found["bounds"]["rows"] == wanted


def test_partitions_are_split(found: dict[str, Any]) -> None:
    assert found["split"]["tasks"] >= 7
    assert found["split"]["count"] == RECORDS


def test_a_filter(found: dict[str, Any]) -> None:
    assert found["filtered"]["values"] == [0, 1, 2, 3, 2999]


def test_available_now_takes_all_in_bounded_batches_and_nothing_twice(found: dict[str, Any]) -> None:
    now = found["available_now"]
    assert now["batches"] == [1000, 1000, 1000]
    assert (now["written"], now["distinct"], now["again"]) == (RECORDS, RECORDS, 0)


def test_small_batches_are_read_beside_the_driver_where_it_is_asked_for(found: dict[str, Any]) -> None:
    assert found["small"] == {
        "300": {"written": RECORDS, "distinct": RECORDS, "tasks": 10},
        "1500": {"written": RECORDS, "distinct": RECORDS, "tasks": 6},
    }


def test_lost_records_fail_the_query_or_are_gone_over_as_chosen(found: dict[str, Any]) -> None:
    loss = found["loss"]
    first = loss["before"][1] + 1
    assert f"spark-loss-0: offsets {first} to 59 are gone" in loss["error"]
    assert loss["after"] == [[0, offset] for offset in range(60, 100)]


def test_a_checkpoint_that_retention_has_overtaken_fails_the_query_or_is_gone_over(
    found: dict[str, Any],
) -> None:
    """Retention by size and by time, in segments; the compacted topic of the same query loses nothing."""
    cut = found["cut"]
    size, time = cut["starts"]["size"], cut["starts"]["time"]
    assert (size % 10, time) == (0, 50)
    assert cut["read"]["cut"] == 30
    lost = cut["error"].split("has not read: ")[1].split(". Retention")[0].split("; ")
    assert [part.split("-")[1] for part in lost] == ["size", "time"]
    assert lost[0].endswith(f"offsets 10 to {size - 1} are gone")
    assert lost[1].endswith("offsets 10 to 49 are gone")
    assert cut["after"]["size"] == list(range(size, 100))
    assert cut["after"]["time"] == list(range(50, 100))
    assert cut["after"]["keys"] == cut["left"]


def test_gaps_that_compaction_left_are_no_loss(found: dict[str, Any]) -> None:
    """Micro-batches start and end in the gap; the query fails on data loss, but there is none."""
    cut = found["cut"]
    assert cut["left"] == list(range(85, 100))
    assert (cut["read"]["cut-keys"], cut["gaps"]) == (10, "no error")
    assert cut["after gaps"] == cut["left"]


def test_a_checkpoint_of_another_topic_is_refused(found: dict[str, Any]) -> None:
    assert (
        "the checkpoint is that of another query: it is about topic spark,"
        in found["other_checkpoint"]["error"]
    )


def test_topics_and_partitions_that_come_while_a_query_runs_are_read_from_their_start(
    found: dict[str, Any],
) -> None:
    ends = {("a", 0): 10, ("a", 1): 5, ("b", 0): 5}
    assert found["grows"]["rows"] == [[*part, offset] for part, end in ends.items() for offset in range(end)]


def test_a_topic_of_a_thousand_partitions(found: dict[str, Any]) -> None:
    assert found["many"] == {"written": [[0, 0], [500, 0], [999, 0]], "partitions": 1000}


def test_values_are_decoded_into_the_columns_of_a_schema(found: dict[str, Any]) -> None:
    decoded = found["decoded"]
    assert decoded["row"] == [22, None, 7, "h"]
    assert "does not fit the schema" in decoded["failed"]
    assert (decoded["dropped"], decoded["kept"]) == (0, RECORDS)
    assert "the layout '<ii' has 2 fields, the schema has 1: n" in decoded["layout"]


def test_json_is_kept_as_from_json_keeps_it(found: dict[str, Any]) -> None:
    """The comparison is field by field; timestamps without a zone are in the session's zone."""
    kept = found["json"]
    assert kept["ours"] == kept["theirs"]
    assert '"t":"2026-07-01T12:00:00.000-04:00"' in kept["ours"][0]
    assert kept["named"] == '{"t":"2026-07-01T08:00:00.000-04:00"}'


def test_what_is_wrong_is_named(found: dict[str, Any]) -> None:
    wrong = found["wrong"]
    assert "did you mean subscribePattern?" in wrong["option"]
    assert "there is no topic absent" in wrong["topic"]
    assert "no Kafka face answers at 127.0.0.1:1" in wrong["nobody"]


class ByKafkaPython:
    """The answers of kafka-python's consumer, in the form of `Cluster`'s."""

    def __init__(self, address: str, level: str) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            bootstrap_servers=address, isolation_level=level, enable_auto_commit=False
        )

    def partitions(self, takes: Callable[[Partition], bool]) -> list[Partition]:
        found = [
            Partition(topic, number)
            for topic in self._consumer.topics()
            for number in self._consumer.partitions_for_topic(topic) or ()
        ]
        return sorted(filter(takes, found))

    def offsets(self, kind: str, parts: list[Partition]) -> dict[Partition, int]:
        from kafka import TopicPartition

        found = getattr(self._consumer, kind)([TopicPartition(*part) for part in parts])
        return {Partition(part.topic, part.partition): offset for part, offset in found.items()}

    def at_times(self, parts: list[Partition], time: int) -> dict[Partition, int | None]:
        from kafka import TopicPartition

        found = self._consumer.offsets_for_times({TopicPartition(*part): time for part in parts})
        return {
            Partition(part.topic, part.partition): None if answer is None else answer.offset
            for part, answer in found.items()
        }

    def topic_ids(self, topics: set[str]) -> dict[str, str]:
        return {topic: str(self._consumer._client.cluster.topic_id(topic)) for topic in topics}

    def close(self) -> None:
        self._consumer.close()


TIMES = (0, 2500, 3000, 9000)


def told_by_kafka_python(address: str, level: str) -> list[object]:
    """Returns partitions, ends and times of a topic."""
    theirs = ByKafkaPython(address, level)
    parts = theirs.partitions(lambda part: part.topic == "asked-a")
    said: list[object] = [parts, theirs.partitions(lambda part: part.topic.startswith("asked-"))]
    said += [theirs.offsets("beginning_offsets", parts), theirs.offsets("end_offsets", parts)]
    said += [theirs.at_times(parts, at) for at in TIMES]
    said.append(theirs.topic_ids({"asked-a"}))
    theirs.close()
    return said


def told_by_us(address: str, level: str) -> tuple[list[object], set[Partition]]:
    """Returns the same, and the partitions that end before offset 5."""
    from treecast.spark_connectors.servers import Servers
    from treecast.spark_connectors.source.asking import DaemonCluster
    from treecast.spark_connectors.source.options import Subscription

    ours = DaemonCluster(Servers.parse(address), committed=level == "read_committed", timeout=60)
    parts = ours.partitions(Subscription(topics=("asked-a", "asked-absent")))
    more = [*parts, Partition("asked-a", 7), Partition("asked-absent", 0)]
    said: list[object] = [parts, ours.partitions(Subscription(pattern="asked-.*"))]
    said += [ours.earliest(more), ours.latest(more)]
    said += [ours.at_times(dict.fromkeys(parts, at)) for at in TIMES]
    said.append(ours.topic_ids(parts))
    beyond = ours.beyond(dict.fromkeys(parts, 5))
    ours.close()
    return said, beyond


def test_the_driver_is_told_what_kafka_python_is(shared_daemon: DaemonProcess) -> None:
    """With deleted records, an open transaction and an empty partition."""
    pytest.importorskip("pyspark")
    admin = AdminClient({"bootstrap.servers": shared_daemon.kafka})
    old = {"retention.ms": "-1"}  # its records are dated 1970
    topics = [NewTopic("asked-a", 3, 1, config=old), NewTopic("asked-b", 1, 1)]
    for made in admin.create_topics(topics).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": shared_daemon.kafka, "transactional.id": "asked"})
    producer.init_transactions(60)
    for number in range(2):
        producer.begin_transaction()
        for n in range(5):
            producer.produce("asked-a", b"v", partition=number, timestamp=1000 * n + 1)
        producer.flush(60)
        if not number:
            producer.commit_transaction(60)
    for done in admin.delete_records([TopicPartition("asked-a", 0, 2)]).values():
        done.result(60)
    levels = ("read_uncommitted", "read_committed")
    ours = {level: told_by_us(shared_daemon.kafka, level) for level in levels}
    theirs = {level: told_by_kafka_python(shared_daemon.kafka, level) for level in levels}
    producer.abort_transaction(60)
    a = [Partition("asked-a", n) for n in range(3)]
    for level in levels:
        said, beyond = ours[level]
        assert said == theirs[level]
        assert beyond == {a[2]}, "an open transaction does not hide where the log ends"
    assert ours["read_uncommitted"][0][:4] == [
        a,
        [*a, Partition("asked-b", 0)],
        dict(zip(a, (2, 0, 0), strict=True)),
        dict(zip(a, (6, 5, 0), strict=True)),
    ]
    assert ours["read_committed"][0][3] == dict(zip(a, (6, 0, 0), strict=True))
    assert set(ours["read_committed"][0][-1]) == {"asked-a"}


def test_a_topic_that_was_made_anew_fails_the_query_or_is_read_from_its_beginning(
    found: dict[str, Any],
) -> None:
    """This holds whether the new topic has fewer records than the checkpoint has read, or more."""
    recreated = found["anew_recreated"]
    for name in ("fewer", "more"):
        assert f"anew-{name}-" in recreated[name]["error"]
        assert (
            "was deleted and created again: the query has read the topic with id" in recreated[name]["error"]
        )
        assert recreated[name]["again"] == 2, "each topic's offset 0 once"
    assert (recreated["fewer"]["rows"], recreated["more"]["rows"]) == (210, 500)


def test_a_checkpoint_without_ids_finds_that_its_topic_ends_earlier(found: dict[str, Any]) -> None:
    without = found["anew_without_ids"]
    assert "-0: read up to 200, but it ends at 10" in without["error"]
    assert without["rows"] == 210


def test_a_task_reads_the_topic_that_was_meant_or_nothing(shared_daemon: DaemonProcess) -> None:
    """The topic was replaced after the plan, or its leader reports that the log ends early."""
    pytest.importorskip("pyspark")
    from treecast.spark_connectors.servers import Servers
    from treecast.spark_connectors.source.asking import DaemonCluster
    from treecast.spark_connectors.source.fetch import PartitionReader
    from treecast.spark_connectors.source.options import Subscription
    from treecast.spark_connectors.source.planning import Range

    admin = AdminClient({"bootstrap.servers": shared_daemon.kafka})
    admin.create_topics([NewTopic("meant", 1, 1)])["meant"].result(60)
    producer = Producer({"bootstrap.servers": shared_daemon.kafka})
    for n in range(5):
        producer.produce("meant", b"%d" % n)
    assert producer.flush(60) == 0
    servers = Servers.parse(shared_daemon.kafka)
    cluster = DaemonCluster(servers, committed=False, timeout=60)
    (part,) = cluster.partitions(Subscription(topics=("meant",)))
    topic_id = cluster.topic_ids([part])["meant"]
    assert cluster.beyond({part: 5}) == set()
    assert cluster.beyond({part: 6}) == {part}

    def read(topic_id: str, *, fail: bool) -> int:
        reader = PartitionReader(Range(part, 0, 5), servers, topic_id=topic_id, fail_on_data_loss=fail)
        return sum(len(columns) for columns in reader.read())

    assert (read(topic_id, fail=True), read("", fail=True)) == (5, 5)
    assert read("another id", fail=False) == 0
    with pytest.raises(DataLossError, match="meant was deleted and created again: offsets 0 to 4 of meant-0"):
        read("another id", fail=True)
    cluster.close()


# --- the sink


def test_a_copied_checkpoint_that_writes_elsewhere_writes_all_of_its_batches(found: dict[str, Any]) -> None:
    """A query whose output topic was replaced does so as well; one that writes to the same topic repeats
    nothing."""
    assert found["anew_copied"] == {"blue": 3000, "green": 1000, "anew": 1000}


def test_a_checkpoint_that_was_restored_does_not_leave_out_other_rows(found: dict[str, Any]) -> None:
    restored = found["anew_restored"]
    assert "and are not written" in restored["error"]
    assert "is committed, so batch 1 is no repeat of the last one" in restored["error"]
    assert restored["count"] == 5000


def test_totals_from_a_checkpoint_one_batch_old_are_not_left_out(found: dict[str, Any]) -> None:
    """There is a row for each key, so a batch that is planned up to another end has as many rows."""
    totals = found["anew_totals"]
    assert "was committed with 2 rows: anew-totals-" in totals["error"]
    assert ", not with 2 rows: anew-totals-" in totals["error"]
    assert totals["before"] == totals["after"] == {"0": "20", "1": "20"}


def test_each_batch_numbers_anew_with_a_new_checkpoint(found: dict[str, Any]) -> None:
    """In the second run only the forgotten batch counts as done already."""
    assert found["anew_each_batch"] == {"counts": [3000, 3000, 6000]}


def test_a_name_that_is_used_for_other_rows_is_refused(found: dict[str, Any]) -> None:
    named, columns = found["anew_named"], found["anew_columns"]
    assert "was committed with 50 rows: anew-named-" in named["errors"][0]
    assert ", not with 60 rows: anew-named-" in named["errors"][0]
    assert "is committed, so batch 6 is no repeat of the last one" in named["errors"][1]
    assert named["count"] == 50
    assert "was committed with 50 rows: anew-column-1-" in columns["error"]
    assert columns["counts"] == [50, 0]


def test_what_is_not_written_again_is_counted_and_logged(
    found: dict[str, Any], shared_daemon: DaemonProcess
) -> None:
    skipped = "treecast_broker_batches_skipped_total"
    with urllib.request.urlopen(f"http://{shared_daemon.ready['admin']}/metrics") as page:
        (line,) = [line for line in page.read().decode().splitlines() if line.startswith(f"{skipped} ")]
    assert float(line.split()[1]) >= 3
    assert "1000 rows: anew-each-" in shared_daemon.log()


def test_columns_as_sparks_kafka_sink_takes_them(found: dict[str, Any]) -> None:
    columns = found["sink_columns"]
    assert (columns["count"], columns["values"], columns["asked"]) == (300, 300, [0, 1, 2])
    assert columns["by_hash"] == [[key, murmur2(key.encode()) % 2**31 % 3] for key, _ in columns["by_hash"]]
    assert (columns["headers"], columns["time"], columns["now"]) == ([["h", 8]], 12.345, True)


def test_a_batch_that_has_a_name_is_written_once(found: dict[str, Any]) -> None:
    assert found["sink_repeated"] == {"named": 50, "all": 150}


def test_what_a_failed_job_staged_is_aborted(found: dict[str, Any]) -> None:
    failed = found["sink_failed"]
    assert failed["staged"] > 0
    assert (failed["error"], failed["nothing"], failed["after"]) == (True, 0, 10)


def test_what_a_task_begins_after_its_job_was_given_up_is_refused(shared_daemon: DaemonProcess) -> None:
    """Spark does not wait for tasks that it cancels: a part staged then would hold up readers for long."""
    pytest.importorskip("pyspark")
    from treecast.spark_connectors.links import LINKS
    from treecast.spark_connectors.servers import Servers
    from treecast.spark_connectors.sink.options import parse_options
    from treecast.spark_connectors.sink.producing import Producer as Staging
    from treecast.spark_connectors.sink.writer import TreecastWriter

    options = parse_options({"kafka.bootstrap.servers": shared_daemon.kafka, "topic": "t"}, streaming=False)
    writer = TreecastWriter(options)
    batch, servers = writer._batch, Servers.parse(shared_daemon.kafka)

    def staging() -> Staging:
        lease, compression = options.lease_ms, options.compression
        return Staging(servers, lease_ms=lease, compression=compression, timeout=30)

    early, late = staging(), staging()
    assert early.begin(batch.part("early"))
    writer.abort([])
    assert not late.begin(batch.part("late"))
    with pytest.raises(WriteError):
        early._add([Partition("spark", 0)])
    early.close()
    late.close()
    LINKS.close()


def test_a_stream_is_written_once_though_the_driver_forgot_a_batch(found: dict[str, Any]) -> None:
    stream = found["sink_stream"]
    assert (stream["batches"], stream["again"], stream["same_query"]) == ([0, 1, 2], [2], True)
    assert (stream["count"], stream["distinct"], stream["all"]) == (RECORDS, RECORDS, RECORDS)


def test_tasks_know_their_query_and_batch(found: dict[str, Any]) -> None:
    """Spark's local properties tell them; the daemon has the batches under the query's own id."""
    assert found["sink_stream"]["open"] == [False, False, False, True]


def test_what_is_wrong_with_a_write_is_named(found: dict[str, Any]) -> None:
    wrong = found["sink_wrong"]
    assert "there is no option topc of a write; did you mean topic?" in wrong["option"]
    assert "there is no column value to be written, only v" in wrong["column"]
    assert "there is no topic absent" in wrong["topic"]
    assert "a row is for partition 9 of sink-columns-" in wrong["partition"]
    assert "127.0.0.1:1 has not taken what is written for 0.3 s" in wrong["nobody"]
    assert "topics are appended to" in wrong["mode"]
