"""confluent-kafka (librdkafka), unmodified."""

from __future__ import annotations

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

pytestmark = pytest.mark.clients


def produce(producer, topic, values, partition=0, **more):
    """Sends `values`; returns the delivered messages in the order of delivery."""
    delivered = []

    def on_delivery(error, message):
        assert error is None, error
        delivered.append(message)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery, **more)
    assert producer.flush(30) == 0
    return delivered


@pytest.fixture
def make_consumer(kafka):
    consumers = []

    def make(group, **settings):
        base = {"bootstrap.servers": kafka, "group.id": group, "auto.offset.reset": "earliest"}
        consumers.append(
            Consumer(base | {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200} | settings)
        )
        return consumers[-1]

    yield make
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(kafka, new_topic, read_all, acks):
    topic = new_topic()
    produce(Producer({"bootstrap.servers": kafka, "acks": acks}), topic, [b"%d" % i for i in range(500)])
    assert [stored.sample.value for stored in read_all(topic)] == [b"%d" % i for i in range(500)]


def test_every_compression_is_stored_as_it_was_sent(
    kafka, new_topic, read_all, stored_codecs, samples, make_sample, compression
):
    topic = new_topic()
    samples = [*samples, make_sample(b"k", b"v", (("null", None),))]
    producer = Producer({"bootstrap.servers": kafka, "compression.type": compression, "linger.ms": 50})
    for sample in samples:
        producer.produce(topic, sample.value, sample.key, 0, headers=list(sample.headers))
    assert producer.flush(30) == 0
    assert [stored.sample for stored in read_all(topic)] == samples
    # librdkafka sends a batch uncompressed if compression gains nothing.
    assert stored_codecs(topic, 0) - {"none"} == {compression} - {"none"}


def test_idempotent_producer_keeps_order_without_repeats(kafka, new_topic, read_all):
    topic = new_topic(partitions=3)
    settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 7}
    producer = Producer({"bootstrap.servers": kafka} | settings)
    for number in range(3000):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(30) == 0
    stored = read_all(topic)
    for partition in range(3):
        mine = [(s.offset, int(s.sample.value)) for s in stored if s.partition == partition]
        assert mine == [(i, i * 3 + partition) for i in range(1000)]


def test_message_sizes_up_to_the_limit_and_beyond(kafka, new_topic, read_all):
    topic = new_topic(config={"max.message.bytes": "1048588"})
    producer = Producer({"bootstrap.servers": kafka, "message.max.bytes": 5_000_000})
    large = b"x" * 1_048_000
    produce(producer, topic, [large])
    refused = []
    producer.produce(topic, b"y" * 1_048_600, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(30) == 0
    assert [error.code() for error in refused] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert [stored.sample.value for stored in read_all(topic)] == [large]


def test_two_members_share_and_one_takes_over(kafka, new_topic, make_consumer, until, unique):
    topic, group = new_topic(partitions=4), unique("group")
    first, second = make_consumer(group), make_consumer(group)
    first.subscribe([topic])
    second.subscribe([topic])
    seen = []

    def poll():
        for consumer in (first, second):
            seen.extend(consumer.consume(100, 0.05))

    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, poll, "two partitions each")
    owned = {p.partition for c in (first, second) for p in c.assignment()}
    assert owned == {0, 1, 2, 3}
    producer = Producer({"bootstrap.servers": kafka})
    for partition in range(4):
        produce(producer, topic, [b"%d" % i for i in range(100)], partition)
    until(lambda: len(seen) >= 400, poll, "400 records")
    assert len({(m.partition(), m.offset()) for m in seen}) == 400
    for consumer in (first, second):
        consumer.commit(asynchronous=False)
    first.unsubscribe()
    until(lambda: len(second.assignment()) == 4, lambda: seen.extend(second.consume(100, 0.05)), "take-over")
    produce(producer, topic, [b"after"], 0)
    until(lambda: len(seen) >= 401, lambda: seen.extend(second.consume(100, 0.05)), "the last record")
    assert len(seen) == 401
    assert seen[-1].value() == b"after"


def test_cooperative_members(kafka, new_topic, make_consumer, until, unique):
    topic, group = new_topic(partitions=4), unique("group")
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    first, second = make_consumer(group, **settings), make_consumer(group, **settings)
    first.subscribe([topic])
    until(lambda: len(first.assignment()) == 4, lambda: first.poll(0.05), "all four")
    second.subscribe([topic])

    def poll():
        first.poll(0.05)
        second.poll(0.05)

    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, poll, "two each")


def test_a_static_member_returns_without_a_rebalance(kafka, new_topic, make_consumer, until, unique, admin):
    topic, group = new_topic(partitions=2), unique("group")
    first = make_consumer(group, **{"group.instance.id": "one"})
    other = make_consumer(group, **{"group.instance.id": "two"})
    for consumer in (first, other):
        consumer.subscribe([topic])

    def poll():
        for consumer in (first, other):
            consumer.poll(0.05)

    until(lambda: len(first.assignment()) == len(other.assignment()) == 1, poll, "one each")
    before = [p.partition for p in first.assignment()]
    kept = [p.partition for p in other.assignment()]
    first.close()
    again = make_consumer(group, **{"group.instance.id": "one"})
    again.subscribe([topic])
    until(again.assignment, lambda: (again.poll(0.05), other.poll(0.05)), "the assignment back")
    assert [p.partition for p in again.assignment()] == before
    assert [p.partition for p in other.assignment()] == kept
    description = admin.describe_consumer_groups([group])[group].result(30)
    assert {member.group_instance_id for member in description.members} == {"one", "two"}


def test_seek_by_time(new_topic, write_all, make_consumer, make_sample, unique):
    topic = new_topic()
    base = 1_700_000_000_000
    write_all(
        topic, [make_sample(None, b"%d" % i) for i in range(100)], 0, [base + i * 1000 for i in range(100)]
    )
    consumer = make_consumer(unique("group"))
    asked = [TopicPartition(topic, 0, base + 41_500)]
    assert [p.offset for p in consumer.offsets_for_times(asked, 30)] == [42]
    assert [p.offset for p in consumer.offsets_for_times([TopicPartition(topic, 0, 0)], 30)] == [0]
    late = consumer.offsets_for_times([TopicPartition(topic, 0, base + 10**9)], 30)
    assert [p.offset for p in late] == [-1]  # OFFSET_END
    consumer.assign([TopicPartition(topic, 0, 42)])
    assert consumer.consume(1, 30)[0].value() == b"42"
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, 100)


def test_a_fetch_in_the_middle_of_a_batch_starts_at_the_offset(new_topic, make_consumer, kafka, unique):
    topic = new_topic()
    settings = {"linger.ms": 200, "compression.type": "lz4"}
    produce(Producer({"bootstrap.servers": kafka} | settings), topic, [b"%d" % i for i in range(50)])
    consumer = make_consumer(unique("group"))
    consumer.assign([TopicPartition(topic, 0, 33)])
    assert [m.offset() for m in consumer.consume(17, 30)] == list(range(33, 50))


class TestTransactions:
    @pytest.fixture
    def transactional(self, kafka):
        producers = []

        def make(name, **settings):
            base = {"bootstrap.servers": kafka, "transactional.id": name, "transaction.timeout.ms": 60000}
            producers.append(Producer(base | settings))
            producers[-1].init_transactions(30)
            return producers[-1]

        yield make
        producers.clear()

    def test_committed_is_read_and_aborted_is_not(self, transactional, new_topic, read_all, unique):
        topic = new_topic(partitions=2)
        producer = transactional(unique("tx"))
        for number in range(6):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce(topic, b"%d" % number, partition=partition)
            assert producer.flush(30) == 0
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        for partition in (0, 1):
            committed = [s for s in read_all(topic, "read_committed") if s.partition == partition]
            assert [s.sample.value for s in committed] == [b"0", b"2", b"4"]
            everything = [s for s in read_all(topic) if s.partition == partition]
            assert [s.sample.value for s in everything] == [b"%d" % i for i in range(6)]
            assert [s.offset for s in everything] == [0, 2, 4, 6, 8, 10]  # markers take up offsets as well

    def test_an_open_transaction_holds_readers_back(self, transactional, new_topic, read_all, kafka, unique):
        topic = new_topic()
        producer = transactional(unique("tx"))
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        assert producer.flush(30) == 0
        produce(Producer({"bootstrap.servers": kafka}), topic, [b"plain"])
        assert [s.sample.value for s in read_all(topic)] == [b"open", b"plain"]
        assert read_all(topic, "read_committed") == []
        producer.commit_transaction(30)
        assert [s.sample.value for s in read_all(topic, "read_committed")] == [b"open", b"plain"]

    def test_a_newer_producer_fences_the_older(self, transactional, new_topic, read_all, unique):
        topic, name = new_topic(), unique("tx")
        old = transactional(name)
        old.begin_transaction()
        old.produce(topic, b"old", partition=0)
        assert old.flush(30) == 0
        new = transactional(name)
        with pytest.raises(KafkaException) as refused:
            old.commit_transaction(30)
        assert refused.value.args[0].code() == KafkaError._FENCED
        new.begin_transaction()
        new.produce(topic, b"new", partition=0)
        new.commit_transaction(30)
        assert [s.sample.value for s in read_all(topic, "read_committed")] == [b"new"]

    def test_consume_transform_produce(
        self, transactional, new_topic, read_all, make_consumer, kafka, unique
    ):
        source, target, group = new_topic(partitions=2), new_topic(), unique("group")
        feeder = Producer({"bootstrap.servers": kafka})
        for partition in (0, 1):
            produce(feeder, source, [b"%d" % i for i in range(50)], partition)
        settings = {"enable.auto.commit": False, "isolation.level": "read_committed"}
        consumer = make_consumer(group, **settings)
        consumer.subscribe([source])
        producer = transactional(unique("tx"))
        done = 0
        for attempt in range(1000):
            messages = [m for m in consumer.consume(20, 0.5) if m.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, b"%d:%s" % (message.partition(), message.value()))
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
            if attempt % 3 == 1:
                producer.abort_transaction(30)
                for p in consumer.committed(consumer.assignment(), 30):
                    consumer.seek(TopicPartition(p.topic, p.partition, max(p.offset, 0)))
                continue
            producer.commit_transaction(30)
            done += len(messages)
            if done >= 100:
                break
        values = [s.sample.value for s in read_all(target, "read_committed")]
        assert sorted(values) == sorted(b"%d:%d" % (p, i) for p in (0, 1) for i in range(50))
        committed = consumer.committed([TopicPartition(source, p) for p in (0, 1)], 30)
        assert [p.offset for p in committed] == [50, 50]


class TestAdmin:
    def test_topics_are_created_described_grown_and_deleted(self, admin, unique, until):
        name = unique("topic")
        admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "123456"})])[name].result(30)
        with pytest.raises(KafkaException) as twice:
            admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
        assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        described = admin.describe_topics(TopicCollection([name]))[name].result(30)
        assert [p.id for p in described.partitions] == [0, 1]
        assert described.topic_id is not None
        admin.create_partitions([NewPartitions(name, 5)])[name].result(30)
        until(lambda: len(admin.list_topics(name, 30).topics[name].partitions) == 5, what="five partitions")
        with pytest.raises(KafkaException) as fewer:
            admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
        assert fewer.value.args[0].code() == KafkaError.INVALID_PARTITIONS
        admin.delete_topics([name])[name].result(30)
        until(lambda: name not in admin.list_topics(timeout=30).topics, what="the topic to go")
        with pytest.raises(KafkaException) as gone:
            admin.delete_topics([name])[name].result(30)
        assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    @pytest.mark.parametrize("name", ["white space", ".", "..", "x" * 250])
    def test_impossible_names_are_refused(self, admin, name):
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION

    def test_validate_only_creates_nothing(self, admin, unique):
        name = unique("topic")
        admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)[name].result(30)
        assert name not in admin.list_topics(timeout=30).topics

    def test_configuration_is_described_and_altered(self, admin, new_topic, until):
        topic = new_topic(config={"retention.ms": "1000000"})

        def describe():
            resource = ConfigResource(ResourceType.TOPIC, topic)
            return admin.describe_configs([resource])[resource].result(30)

        assert describe()["retention.ms"].value == "1000000"
        assert not describe()["retention.ms"].is_default
        assert describe()["segment.bytes"].is_default
        changes = [
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("max.message.bytes", "4096", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        admin.incremental_alter_configs([resource])[resource].result(30)
        until(lambda: describe()["max.message.bytes"].value == "4096", what="the new value")
        assert describe()["retention.ms"].value == "604800000"
        assert set(describe()["cleanup.policy"].value.split(",")) == {"compact", "delete"}
        wrong = ConfigEntry("max.message.bytes", "many", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[wrong])
        with pytest.raises(KafkaException) as refused:
            admin.incremental_alter_configs([resource])[resource].result(30)
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG

    def test_a_lowered_limit_is_enforced(self, admin, kafka, new_topic):
        topic = new_topic(config={"max.message.bytes": "2000"})
        refused = []
        producer = Producer({"bootstrap.servers": kafka})
        producer.produce(topic, b"x" * 3000, on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(30) == 0
        assert refused[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

    def test_records_are_deleted_up_to_an_offset(self, admin, kafka, new_topic, read_all):
        topic = new_topic()
        produce(Producer({"bootstrap.servers": kafka}), topic, [b"%d" % i for i in range(20)])
        asked = TopicPartition(topic, 0, 12)
        assert admin.delete_records([asked])[asked].result(30).low_watermark == 12
        assert [s.offset for s in read_all(topic)] == list(range(12, 20))
        spec = {TopicPartition(topic, 0): OffsetSpec.earliest()}
        assert next(iter(admin.list_offsets(spec).values())).result(30).offset == 12
        beyond = TopicPartition(topic, 0, 100)
        with pytest.raises(KafkaException) as refused:
            admin.delete_records([beyond])[beyond].result(30)
        assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE

    def test_offsets_by_specification(self, admin, new_topic, write_all, make_sample):
        topic = new_topic()
        stamps = [1_700_000_000_000, 1_700_000_009_000, 1_700_000_005_000]
        write_all(topic, [make_sample(None, b"x")] * 3, 0, stamps)
        found = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()):
            answer = admin.list_offsets({TopicPartition(topic, 0): spec})
            found.append(next(iter(answer.values())).result(30).offset)
        assert found == [0, 3, 1]

    def test_groups_are_listed_described_altered_and_deleted(
        self, admin, kafka, new_topic, make_consumer, until, unique
    ):
        topic, group = new_topic(partitions=2), unique("group")
        produce(Producer({"bootstrap.servers": kafka}), topic, [b"x"] * 10)
        consumer = make_consumer(group, **{"client.id": "me"})
        consumer.subscribe([topic])
        until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(0.05), "the assignment")
        description = admin.describe_consumer_groups([group])[group].result(30)
        assert description.state.name == "STABLE"
        assert [member.client_id for member in description.members] == ["me"]
        assert len(description.members[0].assignment.topic_partitions) == 2
        listing = admin.list_consumer_groups().result()
        assert group in {found.group_id for found in listing.valid}
        with pytest.raises(KafkaException) as busy:
            admin.delete_consumer_groups([group])[group].result(30)
        assert busy.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        consumer.close()
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
        admin.alter_consumer_group_offsets([asked])[group].result(30)
        committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        assert (topic, 0, 7) in [(p.topic, p.partition, p.offset) for p in committed.topic_partitions]
        admin.delete_consumer_groups([group])[group].result(30)
        assert group not in {found.group_id for found in admin.list_consumer_groups().result().valid}
        with pytest.raises(KafkaException) as gone:
            admin.delete_consumer_groups([group])[group].result(30)
        assert gone.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND

    def test_the_cluster_is_described(self, admin):
        description = admin.describe_cluster().result(30)
        assert len(description.cluster_id) == 22
        assert len(description.nodes) == 1
        assert description.controller.id == description.nodes[0].id


def test_a_missing_topic_is_made_on_first_use(kafka, unique, read_all):
    topic = unique("auto")
    produce(Producer({"bootstrap.servers": kafka}), topic, [b"first"])
    assert [s.sample.value for s in read_all(topic)] == [b"first"]


def test_a_keyless_record_is_refused_on_a_compacted_topic(kafka, new_topic):
    topic = new_topic(config={"cleanup.policy": "compact"})
    refused = []
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, b"no key", on_delivery=lambda error, _: refused.append(error))
    producer.produce(topic, b"v", b"k", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(30) == 0
    codes = [error and error.code() for error in refused]
    assert KafkaError.INVALID_RECORD in codes


def test_one_record_of_a_batch_is_blamed_and_not_all(kafka, new_topic):
    """With several errors, librdkafka tells invalid records from the others of their batch (KIP-467)."""
    topic = new_topic(config={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 10_000})
    failed = []
    for key in ("a", None, "c", None):
        producer.produce(
            topic,
            b"x",
            key=key,
            partition=0,
            on_delivery=lambda error, message: failed.append((message.key(), error and error.code())),
        )
    assert producer.flush(30) == 0
    beside = KafkaError._INVALID_DIFFERENT_RECORD
    assert [code for key, code in failed if key is None] == [KafkaError.INVALID_RECORD] * 2
    # Records that were not batched with invalid ones are stored.
    assert {code for key, code in failed if key is not None} <= {beside, None}


def test_a_replication_factor_of_three_is_a_wish(admin, unique):
    topic = unique("wish")
    admin.create_topics([NewTopic(topic, 1, replication_factor=3)])[topic].result(30)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    assert [len(partition.replicas) for partition in described.partitions] == [1]
    resource = ConfigResource(ResourceType.TOPIC, topic)
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["treecast.copies.wished"].value == "3"


def test_access_control_lists_are_answered(admin):
    """MirrorMaker 2 asks for them, and continues without them if there is no authorizer."""
    kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    one = AclBinding(kind, "t", pattern, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    assert admin.describe_acls(everything).result(30) == []  # librdkafka's way to say so
    for asked in (admin.delete_acls([everything])[everything], admin.create_acls([one])[one]):
        with pytest.raises(KafkaException) as refused:
            asked.result(30)
        assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED


def test_append_time_rules_where_the_topic_says_so(kafka, new_topic, read_all):
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    [message] = produce(Producer({"bootstrap.servers": kafka}), topic, [b"x"], timestamp=1_700_000_000_000)
    assert message.timestamp()[0] == 2  # TIMESTAMP_LOG_APPEND_TIME
    [stored] = read_all(topic)
    assert stored.timestamp == message.timestamp()[1] > 1_700_000_000_000
