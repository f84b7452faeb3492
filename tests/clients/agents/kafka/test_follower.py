"""Topics of a Kafka cluster at hosts: the same records at the same offsets, and the cluster owns the rest."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from bench.peers.kafka.jars import class_path
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import NodeNotReadyError
from tests.clients.agents.kafka.conftest import FOLLOWED
from tests.clients.agents.kafka.site import PATIENCE, KafkaAgent, Node, Reader, read_all, until
from tests.fault import kafka_apps
from tests.fault.kafka_apps.records import Reader as Committed
from tests.fault.kafka_apps.site import Worker

from treecast.middleware.daemon.process import DaemonProcess

Hosts = tuple[DaemonProcess, DaemonProcess]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def admin(node: Node) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    yield client
    client.close()


def _create(admin: KafkaAdminClient, topic: NewTopic) -> None:
    """kafka-python refuses at once while its idle connection to the cluster is being opened again."""
    deadline = time.monotonic() + 30
    while True:
        try:
            admin.create_topics([topic])
        except NodeNotReadyError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            return


@pytest.fixture
def topic(admin: KafkaAdminClient, agent: KafkaAgent) -> Callable[..., str]:
    """Makes a topic in the Kafka cluster, and waits until it is followed."""

    def make(partitions: int = 1, name: str = "", **config: str) -> str:
        made = name or f"followed.{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        _create(admin, NewTopic(made, partitions, 1, topic_configs=settings))
        agent.until(
            lambda found: found["topics"].get(made, {}).get("fetching") == partitions,
            f"{made} is not followed",
        )
        return made

    return make


def write(
    bootstrap: str, topic: str, values: list[bytes], **settings: object
) -> list[tuple[int, int, bytes]]:
    """Returns (partition, offset, value) of each record."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    sent = [(producer.send(topic, value), value) for value in values]
    producer.flush(PATIENCE)
    done = [(future.get(PATIENCE), value) for future, value in sent]
    producer.close()
    return sorted((found.partition, found.offset, value) for found, value in done)


def addresses(node: Node, hosts: Hosts) -> tuple[str, str, str]:
    return node.bootstrap, hosts[0].ready["kafka"], hosts[1].ready["kafka"]


def test_records_have_the_same_places_everywhere(node: Node, hosts: Hosts, topic: Callable[..., str]) -> None:
    name = topic(3)
    written = write(node.bootstrap, name, [b"%d" % number for number in range(500)])
    for bootstrap in addresses(node, hosts):
        assert read_all(bootstrap, name, 500) == written


def test_produced_at_a_host_and_read_everywhere(node: Node, hosts: Hosts, topic: Callable[..., str]) -> None:
    name = topic(2)
    written = write(hosts[1].ready["kafka"], name, [b"%d" % number for number in range(300)])
    for bootstrap in addresses(node, hosts):
        assert read_all(bootstrap, name, 300) == written


def test_librdkafka_reads_and_writes_at_a_host(hosts: Hosts, topic: Callable[..., str]) -> None:
    name = topic(2)
    first, second = hosts
    producer = Producer({"bootstrap.servers": first.ready["kafka"], "enable.idempotence": True})
    for number in range(200):
        producer.produce(name, b"%d" % number)
    assert producer.flush(PATIENCE) == 0
    consumer = Consumer(
        {"bootstrap.servers": second.ready["kafka"], "group.id": f"g.{name}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    values = []
    while len(values) < 200:
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None, message.error()
        values.append(message.value())
    consumer.close()
    assert sorted(values) == sorted(b"%d" % number for number in range(200))


def test_each_record_leaves_the_cluster_once(
    node: Node, hosts: Hosts, agent: KafkaAgent, topic: Callable[..., str]
) -> None:
    """Two hosts with two readers each: the cluster sends what was produced, and a tenth more at most."""
    name = topic(1)
    before = agent.status()
    written = write(node.bootstrap, name, [bytes(10_000)] * 500)
    readers = [Reader(host.ready["kafka"], name) for host in hosts for _ in range(2)]
    for reader in readers:
        with reader:
            assert sorted(reader.read(500)) == written
    after = agent.status()
    fetched = after["fetched_bytes"] - before["fetched_bytes"]
    assert fetched <= 1.1 * (after["topics"][name]["bytes"])


def test_commits_are_the_clusters(node: Node, hosts: Hosts, topic: Callable[..., str]) -> None:
    name = topic(1)
    write(node.bootstrap, name, [b"%d" % number for number in range(10)])
    at_host = KafkaConsumer(bootstrap_servers=hosts[0].ready["kafka"], group_id=f"g.{name}")
    place = TopicPartition(name, 0)
    at_host.assign([place])
    at_host.seek(place, 7)
    assert next(at_host).offset == 7
    at_host.commit()
    at_host.close()
    for bootstrap in addresses(node, hosts):
        other = KafkaConsumer(bootstrap_servers=bootstrap, group_id=f"g.{name}")
        assert other.committed(place) == 8
        assert other.end_offsets([place])[place] == 10
        other.close()


def test_a_group_moves_between_the_cluster_and_a_host(
    node: Node, hosts: Hosts, topic: Callable[..., str]
) -> None:
    """Each move goes on at the last commit: nothing is lost, nothing comes twice."""
    name = topic(2)
    producer = KafkaProducer(bootstrap_servers=node.bootstrap)
    sent, found = 0, []
    for move, bootstrap in zip(range(12), itertools.cycle(addresses(node, hosts)), strict=False):
        for _ in range(40):
            producer.send(name, b"%d" % sent, partition=sent % 2)
            sent += 1
        reader = Reader(bootstrap, name, group_id=f"g.{name}", enable_auto_commit=False)
        with reader as consumer:
            if move % 3 == 2:
                producer.flush(PATIENCE)
                reader.read(sent - len(found))
            else:
                reader.read(20)
            consumer.commit()
        found += reader.found
    producer.flush(PATIENCE)
    last = Reader(hosts[0].ready["kafka"], name, group_id=f"g.{name}")
    with last:
        found += last.read(sent - len(found))
    producer.close()
    assert sorted(int(value) for _, _, value in found) == list(range(sent))


def test_transactions_are_read_committed_at_hosts(
    node: Node, hosts: Hosts, topic: Callable[..., str]
) -> None:
    """Half of them end at the cluster, half at a host; every third is aborted."""
    name = topic(1)
    wanted = []
    for at, bootstrap in enumerate((node.bootstrap, hosts[1].ready["kafka"])):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t.{name}.{at}"})
        producer.init_transactions(PATIENCE)
        for number in range(6):
            value = b"%d-%d" % (at, number)
            producer.begin_transaction()
            producer.produce(name, value)
            if number % 3 == 2:
                producer.flush(PATIENCE)
                producer.abort_transaction(PATIENCE)
            else:
                producer.commit_transaction(PATIENCE)
                wanted.append(value)
    for bootstrap in addresses(node, hosts):
        found = read_all(bootstrap, name, len(wanted), isolation_level="read_committed")
        assert [value for _, _, value in found] == wanted
        every = read_all(bootstrap, name, 12)
        assert [offset for _, offset, _ in every] == [2 * number for number in range(12)]


def test_offsets_and_records_commit_together_at_a_host(
    node: Node, hosts: Hosts, topic: Callable[..., str]
) -> None:
    """Read, process, write exactly once at a host: the group's offsets are in the transaction."""
    source, sink = topic(1), topic(1)
    write(node.bootstrap, source, [b"%d" % number for number in range(10)])
    here = hosts[0].ready["kafka"]
    group = f"g.{source}"
    consumer = Consumer(
        {
            "bootstrap.servers": here,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": here, "transactional.id": f"t.{source}"})
    producer.init_transactions(PATIENCE)
    consumer.subscribe([source])
    producer.begin_transaction()
    for _ in range(10):
        message = consumer.poll(PATIENCE)
        assert message is not None
        producer.produce(sink, message.value())
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([Place(source, 0, 10)], metadata, PATIENCE)
    producer.commit_transaction(PATIENCE)
    consumer.close()
    reader = KafkaConsumer(bootstrap_servers=node.bootstrap, group_id=group)
    assert reader.committed(TopicPartition(source, 0)) == 10
    reader.close()
    assert len(read_all(hosts[1].ready["kafka"], sink, 10, isolation_level="read_committed")) == 10


def test_a_log_start_that_moves_is_followed(
    node: Node, hosts: Hosts, agent: KafkaAgent, admin: KafkaAdminClient, topic: Callable[..., str]
) -> None:
    name = topic(1)
    place = TopicPartition(name, 0)
    write(node.bootstrap, name, [b"%d" % number for number in range(50)])
    assert len(read_all(hosts[0].ready["kafka"], name, 50)) == 50
    at_host = KafkaAdminClient(bootstrap_servers=hosts[1].ready["kafka"])
    at_host.delete_records({place: 20})
    at_host.close()
    for bootstrap in addresses(node, hosts):
        consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        until(lambda consumer=consumer: consumer.beginning_offsets([place])[place] == 20, "the start stays")
        consumer.close()
        until(lambda bootstrap=bootstrap: read_all(bootstrap, name, 30)[0][1] == 20, "old records are read")


def test_a_topic_made_anew_is_another_topic(
    node: Node, hosts: Hosts, agent: KafkaAgent, admin: KafkaAdminClient, topic: Callable[..., str]
) -> None:
    name = topic(1)
    write(node.bootstrap, name, [b"old"] * 20)
    assert len(read_all(hosts[0].ready["kafka"], name, 20)) == 20
    admin.delete_topics([name])
    agent.until(lambda found: name not in found["topics"], "the topic is still followed")
    topic(2, name)
    written = write(node.bootstrap, name, [b"new"] * 10)
    for bootstrap in addresses(node, hosts):
        assert read_all(bootstrap, name, 10) == written


def test_new_partitions_are_followed(
    node: Node, hosts: Hosts, agent: KafkaAgent, admin: KafkaAdminClient, topic: Callable[..., str]
) -> None:
    name = topic(1)
    admin.create_partitions({name: NewPartitions(3)})
    agent.until(lambda found: found["topics"][name]["fetching"] == 3, "the new partitions are not followed")
    written = write(node.bootstrap, name, [b"%d" % number for number in range(60)])
    assert read_all(hosts[1].ready["kafka"], name, 60) == written


def test_other_names_are_not_followed_and_followed_names_are_not_made_here(
    node: Node, hosts: Hosts, agent: KafkaAgent, admin: KafkaAdminClient
) -> None:
    admin.create_topics([NewTopic("followed.not.this", 1, 1), NewTopic("another", 1, 1)])
    here = KafkaAdminClient(bootstrap_servers=hosts[0].ready["kafka"])
    with pytest.raises(Exception, match="create followed"):
        here.create_topics([NewTopic("followed.later", 1, 1)])
    assert "followed.not.this" not in agent.status()["topics"]
    assert "another" not in here.list_topics()
    here.close()


def treecast(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "treecast.middleware.cli", "agent", *words],
        capture_output=True,
        check=False,
        text=True,
    )
    return f"{done.returncode} {done.stdout}{done.stderr}"


def test_status_and_doctor_say_what_is_followed(
    node: Node, agent: KafkaAgent, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    write(node.bootstrap, name, [b"one"])
    said = ""

    def copied() -> bool:
        nonlocal said
        said = " ".join(treecast("status", "--admin", f"127.0.0.1:{agent.admin}").split())
        return "2 of 2 partitions fetched, 1 records, 0 to come" in said

    until(copied, "it is not copied")
    assert said.startswith("0 ")
    said = treecast("doctor", "--config", str(agent.config))
    assert said.startswith("0 ")
    assert "it serves all that is asked for" in said
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(agent.config.read_text().replace(node.bootstrap, "127.0.0.1:1"))
    said = treecast("doctor", "--config", str(wrong))
    assert said.startswith("1 ")
    assert "127.0.0.1:1" in said


def test_a_second_agent_for_the_cluster_refuses_to_start(
    node: Node, hosts: Hosts, agent: KafkaAgent, tmp_path: Path
) -> None:
    token = hosts[0].data / "join-token"
    control = hosts[0].ready["control"]
    other = KafkaAgent("other-site", tmp_path, node.bootstrap, control, token, 'topics = ["x"]')
    other.start(wait=False)
    assert other.process is not None
    assert other.process.wait(PATIENCE) == 1
    assert other.process.stdout is not None
    other.process.stdout.close()
    assert "agent kafka-site follows Kafka cluster" in other.log.read_text()


def test_a_followed_topic_is_changed_in_its_cluster(hosts: Hosts, topic: Callable[..., str]) -> None:
    name = topic(1)
    here = KafkaAdminClient(bootstrap_servers=hosts[0].ready["kafka"])
    with pytest.raises(Exception, match="change it there"):
        here.delete_topics([name])
    here.close()


def test_the_node_and_the_agent_are_killed_and_started(
    node: Node, hosts: Hosts, agent: KafkaAgent, topic: Callable[..., str]
) -> None:
    name = topic(1)
    written = write(node.bootstrap, name, [b"%d" % number for number in range(100)])
    assert read_all(hosts[0].ready["kafka"], name, 100) == written
    node.kill()
    agent.until(lambda found: found["troubles"], "nobody says that the cluster is away")
    assert read_all(hosts[0].ready["kafka"], name, 100) == written
    agent.kill()
    node.again()
    written += write(node.bootstrap, name, [b"%d" % number for number in range(100, 150)])
    agent.start()
    agent.until(lambda found: not found["troubles"], "the cluster is back")
    for bootstrap in addresses(node, hosts):
        assert read_all(bootstrap, name, 150) == written
    written += write(hosts[0].ready["kafka"], name, [b"%d" % number for number in range(150, 170)])
    assert read_all(hosts[1].ready["kafka"], name, 170) == written


def everything(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes]]:
    """Returns (offset, key, value) of what partition 0 has, from its log start to its end."""
    consumer, place = KafkaConsumer(bootstrap_servers=bootstrap), TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end = consumer.end_offsets([place])[place]
    found: list[tuple[int, bytes, bytes]] = []
    deadline = time.monotonic() + PATIENCE
    while consumer.position(place) < end:
        assert time.monotonic() < deadline, f"{len(found)} records of {topic} have come"
        for records in consumer.poll(timeout_ms=1000).values():
            found += [(one.offset, one.key, one.value) for one in records]
    consumer.close()
    return found


COMPACTED = {
    "cleanup_policy": "compact,delete",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "min_compaction_lag_ms": "0",
}


def fill(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes]]:
    """Writes ten values for each of ten keys, over several segments. Returns (offset, key, value) of all."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    written: list[tuple[int, bytes, bytes]] = []
    for number in range(10):
        value = b"%d" % number
        sent = [(key, producer.send(topic, value, key=key)) for key in (b"%d" % one for one in range(10))]
        written += [(future.get(PATIENCE).offset, key, value) for key, future in sent]
        time.sleep(0.12)  # so that the next record begins a segment
    producer.close()
    return written


def test_a_compacted_topic_keeps_its_gaps(
    node: Node, hosts: Hosts, agent: KafkaAgent, admin: KafkaAdminClient, topic: Callable[..., str]
) -> None:
    """One is compacted by the cluster after a host has all of it, one before it is followed."""
    filled, late = topic(1, **COMPACTED), "followed.late"
    written = fill(node.bootstrap, filled)
    end = written[-1][0] + 1
    first, second = (host.ready["kafka"] for host in hosts)
    assert everything(first, filled)[-1][0] == end - 1
    until(lambda: len(everything(node.bootstrap, filled)) < 50, "the cluster does not compact it")
    kept = everything(node.bootstrap, filled)
    for bootstrap in (first, second):
        found = everything(bootstrap, filled)
        assert set(kept) <= set(found) <= set(written)
        assert {key: value for _, key, value in found} == {key: value for _, key, value in kept}
    admin.delete_records({TopicPartition(filled, 0): end - 5})
    until(lambda: [one[0] for one in everything(second, filled)] == [*range(end - 5, end)], "the start stays")

    agent.kill()
    settings = {key.replace("_", "."): value for key, value in COMPACTED.items()}
    _create(admin, NewTopic(late, 1, 1, topic_configs=settings))
    end = fill(node.bootstrap, late)[-1][0] + 1
    until(lambda: len(everything(node.bootstrap, late)) < 50, "the cluster does not compact it")
    agent.start()
    agent.until(lambda found: found["topics"].get(late, {}).get("end", 0) >= end, "it is not followed")
    kept = everything(node.bootstrap, late)
    assert len(kept) < end
    found = everything(first, late)
    assert set(kept) <= set(found)
    assert len(found) < end
    assert {key: value for _, key, value in found} == {key: value for _, key, value in kept}


def test_kafka_streams_with_exactly_once_at_a_host(
    node: Node, hosts: Hosts, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Copies and counts in transactions over followed topics, its internal ones among them."""
    name = "followed.streams"
    source, target, counts = (topic(2, f"{name}.{part}") for part in ("source", "target", "counts"))
    for part in ("repartition", "changelog"):
        topic(2, f"{name}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-{part}")
    program, classes = Path(kafka_apps.__file__).with_name("Count.java"), tmp_path / "classes"
    compiler = ["javac", "-encoding", "UTF-8", "-cp", class_path(), "-d", str(classes), str(program)]
    subprocess.run(compiler, check=True)
    here, there = hosts[0].ready["kafka"], hosts[1].ready["kafka"]
    write(here, source, [b"%d" % number for number in range(200)])
    words = ["Count", there, name, source, target, counts, str(tmp_path / "state"), "exactly_once_v2"]
    worker = Worker("streams", words, tmp_path, str(classes))
    worker.start()
    try:
        copied, counted = Committed(here, target), Committed(here, counts)
        until(lambda: copied.look() >= 200, "records are not copied")
        until(lambda: counted.look() and sum(map(int, dict(counted.records).values())) >= 200, "no counts")
    finally:
        worker.kill()
        print((tmp_path / "streams.log").read_text()[-4000:])
    assert sorted(int(value) for _, value in copied.records) == [*range(200)]
    assert set(dict(counted.records).values()) == {b"20"}


def stands_by(agent: KafkaAgent) -> IO[bytes]:
    """Starts an agent as a standby. Returns its output after the line that says so."""
    agent.start(wait=False)
    assert agent.process is not None
    assert agent.process.stdout is not None
    assert agent.process.stdout.readline() == b"standby site=kafka-site\n"
    return agent.process.stdout


def test_a_standby_takes_over(
    node: Node, hosts: Hosts, agent: KafkaAgent, topic: Callable[..., str], tmp_path: Path
) -> None:
    """It has another data directory. Nothing is lost or repeated, and the earlier agent is refused."""
    name = topic(2)
    written = write(node.bootstrap, name, [b"%d" % number for number in range(100)])
    for host in hosts:
        assert read_all(host.ready["kafka"], name, 100) == written
    token, control = hosts[0].data / "join-token", hosts[0].ready["control"]
    other = KafkaAgent("kafka-site", tmp_path, node.bootstrap, control, token, f"{FOLLOWED}\nstandby = true")
    try:
        stands_by(other)
        assert other.stop() == 0  # a signal ends a standby as well
        said = stands_by(other)
        agent.kill()
        written += write(node.bootstrap, name, [b"%d" % number for number in range(100, 150)])
        assert said.readline().startswith(b"ready ")
        other.until(lambda found: found["topics"].get(name, {}).get("end") == 150, "it does not catch up")
        written += write(hosts[1].ready["kafka"], name, [b"%d" % number for number in range(150, 170)])
        for bootstrap in addresses(node, hosts):
            assert read_all(bootstrap, name, 170) == sorted(written)
        assert other.status()["cuts"] == 0
        agent.start(wait=False)
        assert agent.process is not None
        assert agent.process.wait(PATIENCE) == 1
        assert "attached already" in agent.log.read_text()
    finally:
        other.clean_up()
        print(other.log.read_text())
    assert "Traceback" not in other.log.read_text()
