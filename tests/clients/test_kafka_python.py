"""kafka-python 3, unmodified."""

from __future__ import annotations

import uuid

import kafka as kafka_python
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    GroupIdNotFoundError,
    InvalidPartitionsError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

pytestmark = pytest.mark.clients


@pytest.fixture
def make_producer(kafka):
    producers = []

    def make(**settings):
        producers.append(KafkaProducer(bootstrap_servers=kafka, **settings))
        return producers[-1]

    yield make
    for producer in producers:
        producer.close(timeout=5)


@pytest.fixture
def make_consumer(kafka):
    consumers = []

    def make(*topics, **settings):
        base = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, "session_timeout_ms": 6000}
        consumers.append(KafkaConsumer(*topics, bootstrap_servers=kafka, **(base | settings)))
        return consumers[-1]

    yield make
    for consumer in consumers:
        consumer.close()


@pytest.fixture
def client(kafka):
    with KafkaAdminClient(bootstrap_servers=kafka) as admin_client:
        yield admin_client


def poll(consumer, seconds=0.1):
    """Polls once; returns the records in order of partition."""
    return [record for batch in consumer.poll(timeout_ms=int(seconds * 1000)).values() for record in batch]


def test_version():
    assert kafka_python.__version__ == "3.0.12"


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(make_producer, new_topic, read_all, acks):
    topic = new_topic()
    producer = make_producer(acks=acks, enable_idempotence=False)
    for number in range(300):
        producer.send(topic, b"%d" % number)
    producer.flush(30)
    assert [stored.sample.value for stored in read_all(topic)] == [b"%d" % i for i in range(300)]


def test_every_compression_goes_in_and_out(
    make_producer, make_consumer, new_topic, stored_codecs, samples, make_sample, until, compression
):
    topic = new_topic()
    kind = None if compression == "none" else compression
    producer = make_producer(compression_type=kind, linger_ms=50)
    futures = [
        producer.send(topic, s.value, key=s.key, headers=list(s.headers), partition=0) for s in samples
    ]
    producer.flush(30)
    assert [future.get(30).offset for future in futures] == list(range(len(samples)))
    consumer = make_consumer(topic, group_id=None)
    read = []
    until(lambda: len(read) >= len(samples), lambda: read.extend(poll(consumer)), "all samples")
    assert [make_sample(r.key, r.value, tuple(r.headers)) for r in read] == list(samples)
    assert stored_codecs(topic, 0) == {compression}


def test_message_sizes_up_to_the_limit_and_beyond(make_producer, new_topic, read_all):
    topic = new_topic(config={"max.message.bytes": "1048588"})
    producer = make_producer(max_request_size=5_000_000)
    producer.send(topic, b"x" * 1_048_000).get(30)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, b"y" * 1_048_600).get(30)
    assert [len(stored.sample.value) for stored in read_all(topic)] == [1_048_000]


def test_two_members_share_and_one_takes_over(make_producer, make_consumer, new_topic, until, unique):
    topic, group = new_topic(partitions=4), unique("group")
    first = make_consumer(topic, group_id=group, enable_auto_commit=False)
    second = make_consumer(topic, group_id=group, enable_auto_commit=False)
    seen = []

    def step():
        for consumer in (first, second):
            seen.extend(poll(consumer, 0.05))

    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, step, "two partitions each")
    assert {p.partition for c in (first, second) for p in c.assignment()} == {0, 1, 2, 3}
    producer = make_producer()
    for number in range(400):
        producer.send(topic, b"%d" % number, partition=number % 4)
    producer.flush(30)
    until(lambda: len(seen) >= 400, step, "400 records")
    assert {(r.partition, r.offset) for r in seen} == {(p, o) for p in range(4) for o in range(100)}
    for consumer in (first, second):
        consumer.commit()
    first.close()
    until(lambda: len(second.assignment()) == 4, lambda: seen.extend(poll(second, 0.05)), "take-over")
    producer.send(topic, b"after", partition=2).get(30)
    until(lambda: len(seen) >= 401, lambda: seen.extend(poll(second, 0.05)), "the last record")
    assert [r.value for r in seen[400:]] == [b"after"]


def test_a_group_goes_on_where_it_committed(make_producer, make_consumer, new_topic, until, unique):
    topic, group = new_topic(), unique("group")
    producer = make_producer()
    for number in range(20):
        producer.send(topic, b"%d" % number)
    producer.flush(30)
    partition = TopicPartition(topic, 0)
    first = make_consumer(topic, group_id=group, enable_auto_commit=False)
    until(first.assignment, lambda: first.poll(50), "the assignment")
    first.commit({partition: OffsetAndMetadata(7, "a note", -1)})
    first.close(autocommit=False)
    second = make_consumer(topic, group_id=group, enable_auto_commit=False)
    seen = []
    until(lambda: seen, lambda: seen.extend(poll(second)), "records")
    assert seen[0].offset == 7
    assert second.committed(partition, metadata=True).metadata == "a note"


def test_seek_by_time(make_consumer, new_topic, write_all, make_sample, until):
    topic = new_topic()
    base = 1_700_000_000_000
    write_all(
        topic, [make_sample(None, b"%d" % i) for i in range(100)], 0, [base + i * 1000 for i in range(100)]
    )
    consumer = make_consumer(group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    found = consumer.offsets_for_times({partition: base + 41_500})[partition]
    assert (found.offset, found.timestamp) == (42, base + 42_000)
    assert consumer.offsets_for_times({partition: base + 10**9})[partition] is None
    consumer.seek(partition, found.offset)
    seen = []
    until(lambda: len(seen) == 58, lambda: seen.extend(poll(consumer)), "the records after it")
    assert seen[0].value == b"42"
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}


def test_an_offset_out_of_range_follows_the_reset_policy(
    make_consumer, new_topic, write_all, make_sample, until
):
    topic = new_topic()
    write_all(topic, [make_sample(None, b"%d" % i) for i in range(10)])
    partition = TopicPartition(topic, 0)
    strict = make_consumer(group_id=None, auto_offset_reset="none")
    strict.assign([partition])
    strict.seek(partition, 1000)
    with pytest.raises(OffsetOutOfRangeError):
        until(lambda: False, lambda: strict.poll(50), "the error")
    lenient = make_consumer(group_id=None)
    lenient.assign([partition])
    lenient.seek(partition, 1000)
    seen = []
    until(lambda: len(seen) == 10, lambda: seen.extend(poll(lenient)), "all records again")
    assert [record.offset for record in seen] == list(range(10))


class TestTransactions:
    def test_committed_is_read_and_aborted_is_not(
        self, make_producer, make_consumer, new_topic, until, unique
    ):
        topic = new_topic(partitions=2)
        producer = make_producer(transactional_id=unique("tx"))
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send(topic, b"%d" % number, partition=partition)
            producer.flush(30)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        consumer = make_consumer(topic, group_id=None, isolation_level="read_committed")
        seen = []
        until(lambda: len(seen) >= 6, lambda: seen.extend(poll(consumer)), "the committed records")
        for partition in (0, 1):
            mine = [(r.offset, r.value) for r in seen if r.partition == partition]
            assert mine == [(0, b"0"), (4, b"2"), (8, b"4")]

    def test_offsets_go_with_the_transaction(self, make_producer, make_consumer, new_topic, client, unique):
        topic, group = new_topic(), unique("group")
        partition = TopicPartition(topic, 0)
        producer = make_producer(transactional_id=unique("tx"))
        producer.init_transactions()
        for offset, commit in ((5, True), (9, False)):
            producer.begin_transaction()
            producer.send(topic, b"%d" % offset, partition=0)
            producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset, "", -1)}, group)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        assert client.list_group_offsets(group)[group][partition].offset == 5

    def test_a_newer_producer_fences_the_older(self, make_producer, new_topic, read_all, unique):
        topic, name = new_topic(), unique("tx")
        old, new = make_producer(transactional_id=name), make_producer(transactional_id=name)
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old").get(30)
        new.init_transactions()
        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
        new.begin_transaction()
        new.send(topic, b"new").get(30)
        new.commit_transaction()
        assert [s.sample.value for s in read_all(topic, "read_committed")] == [b"new"]


class TestAdmin:
    def test_topics(self, client, unique):
        name = unique("topic")
        client.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": "99999999"}}})
        with pytest.raises(TopicAlreadyExistsError):
            client.create_topics({name: {"num_partitions": 2}})
        client.wait_for_topics([name])
        [topic] = client.describe_topics([name])
        assert len(topic["partitions"]) == 2
        [by_id] = client.describe_topics([uuid.UUID(topic["topic_id"])])
        assert by_id["name"] == name
        client.create_partitions({name: 4})
        with pytest.raises(InvalidPartitionsError):
            client.create_partitions({name: 3})
        assert name in client.list_topics()
        client.delete_topics([name])
        with pytest.raises(UnknownTopicOrPartitionError):
            client.delete_topics([name])

    def test_configuration(self, client, new_topic, until):
        topic = new_topic()

        def describe():
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            return client.describe_configs([resource], config_filter="all")["topic"][topic]

        assert describe()["max.message.bytes"]["value"] == "1048588"
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "5000"})])
        until(lambda: describe()["max.message.bytes"]["value"] == "5000", what="the new value")
        client.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["max.message.bytes"])])
        until(lambda: describe()["max.message.bytes"]["value"] == "1048588", what="the default again")
        assert describe()["retention.ms"]["value"] == "-1"

    def test_records_are_deleted(self, client, new_topic, write_all, make_sample):
        topic = new_topic()
        write_all(topic, [make_sample(None, b"x")] * 10)
        partition = TopicPartition(topic, 0)
        assert client.delete_records({partition: 4})[partition]["low_watermark"] == 4
        assert client.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 4
        assert client.delete_records({partition: -1})[partition]["low_watermark"] == 10

    def test_groups(self, client, make_consumer, new_topic, write_all, make_sample, until, unique):
        topic, group = new_topic(), unique("group")
        write_all(topic, [make_sample(None, b"x")] * 10)
        consumer = make_consumer(topic, group_id=group, enable_auto_commit=False)
        until(consumer.assignment, lambda: consumer.poll(50), "the assignment")
        described = client.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert len(described["members"]) == 1
        assert client.delete_groups([group]) == {group: "NonEmptyGroupError"}
        consumer.close(autocommit=False)
        partition = TopicPartition(topic, 0)
        client.alter_group_offsets(group, {partition: OffsetAndMetadata(3, "", -1)})
        assert client.list_group_offsets(group)[group][partition].offset == 3
        client.reset_group_offsets(group, {partition: OffsetSpec.LATEST})
        assert client.list_group_offsets(group)[group][partition].offset == 10
        client.delete_group_offsets(group, [partition])
        assert partition not in client.list_group_offsets(group)[group]
        assert group in {listed["group_id"] for listed in client.list_groups()}
        assert client.delete_groups([group]) == {group: "OK"}
        assert client.delete_groups([group]) == {group: GroupIdNotFoundError.__name__}

    def test_the_cluster_is_described(self, client):
        cluster = client.describe_cluster()
        assert len(cluster["cluster_id"]) == 22
        assert len(cluster["brokers"]) == 1
