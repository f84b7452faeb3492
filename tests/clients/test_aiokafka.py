"""aiokafka, unmodified."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, ProducerFenced

pytestmark = pytest.mark.clients

PATIENCE_S = 45


@pytest.fixture
async def running(kafka):
    """Returns `await running(AIOKafkaProducer, ...)`: a started client that is stopped at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(kind, *arguments, **settings):
            client = kind(*arguments, bootstrap_servers=kafka, **settings)
            await client.start()
            stack.push_async_callback(client.stop if hasattr(client, "stop") else client.close)
            return client

        yield start


@pytest.fixture
async def client(kafka):
    admin_client = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin_client.start()
    yield admin_client
    await admin_client.close()


async def take(consumer, count):
    """Returns the next `count` records."""
    found = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                found.extend(batch)
    return found


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - aiokafka tells of no event
            await asyncio.sleep(0.02)


async def test_every_compression_goes_in_and_out(
    running, new_topic, stored_codecs, samples, make_sample, compression
):
    topic = new_topic()
    kind = None if compression == "none" else compression
    producer = await running(AIOKafkaProducer, compression_type=kind, linger_ms=50)
    futures = [
        await producer.send(topic, s.value, key=s.key, headers=list(s.headers), partition=0) for s in samples
    ]
    assert [(await future).offset for future in futures] == list(range(len(samples)))
    consumer = await running(AIOKafkaConsumer, topic, auto_offset_reset="earliest")
    read = [make_sample(r.key, r.value, tuple(r.headers)) for r in await take(consumer, len(samples))]
    assert read == list(samples)
    assert stored_codecs(topic, 0) == {compression}


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_kind_of_acknowledgement(running, new_topic, read_all, acks):
    topic = new_topic()
    producer = await running(AIOKafkaProducer, acks=acks)
    for number in range(200):
        await producer.send(topic, b"%d" % number)
    await producer.flush()
    assert [stored.sample.value for stored in read_all(topic)] == [b"%d" % i for i in range(200)]


async def test_idempotent_producer(running, new_topic, read_all):
    topic = new_topic()
    producer = await running(AIOKafkaProducer, enable_idempotence=True, max_batch_size=200)
    for number in range(500):
        await producer.send(topic, b"%d" % number)
    await producer.flush()
    stored = [(s.offset, s.sample.value) for s in read_all(topic)]
    assert stored == [(i, b"%d" % i) for i in range(500)]


async def test_a_message_beyond_the_limit(running, new_topic):
    topic = new_topic(config={"max.message.bytes": "10000"})
    producer = await running(AIOKafkaProducer)
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(topic, b"x" * 20_000)
    await producer.send_and_wait(topic, b"x" * 9_000)


async def test_two_members_share_and_one_takes_over(running, kafka, new_topic, unique):
    topic, group = new_topic(partitions=4), unique("group")
    settings = {
        "group_id": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
        "enable_auto_commit": False,
    }
    first = AIOKafkaConsumer(topic, bootstrap_servers=kafka, **settings)
    await first.start()
    second = await running(AIOKafkaConsumer, topic, **settings)
    await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert {p.partition for c in (first, second) for p in c.assignment()} == {0, 1, 2, 3}
    producer = await running(AIOKafkaProducer)
    for number in range(400):
        await producer.send(topic, b"%d" % number, partition=number % 4)
    await producer.flush()
    halves = await asyncio.gather(take(first, 200), take(second, 200))
    seen = {(r.partition, r.offset) for half in halves for r in half}
    assert seen == {(p, o) for p in range(4) for o in range(100)}
    await asyncio.gather(first.commit(), second.commit())
    await first.stop()
    await until(lambda: len(second.assignment()) == 4)
    await producer.send_and_wait(topic, b"after", partition=1)
    assert [r.value for r in await take(second, 1)] == [b"after"]


async def test_seek_by_time(running, new_topic, write_all, make_sample):
    topic = new_topic()
    base = 1_700_000_000_000
    write_all(
        topic, [make_sample(None, b"%d" % i) for i in range(100)], 0, [base + i * 1000 for i in range(100)]
    )
    consumer = await running(AIOKafkaConsumer, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    found = (await consumer.offsets_for_times({partition: base + 41_500}))[partition]
    assert (found.offset, found.timestamp) == (42, base + 42_000)
    consumer.seek(partition, 42)
    assert (await take(consumer, 58))[0].value == b"42"
    assert await consumer.beginning_offsets([partition]) == {partition: 0}
    assert await consumer.end_offsets([partition]) == {partition: 100}


async def test_committed_is_read_and_aborted_is_not(running, new_topic, unique):
    topic = new_topic()
    producer = await running(AIOKafkaProducer, transactional_id=unique("tx"))
    for number in range(6):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"%d" % number, partition=0)
        if number % 2:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    consumer = await running(
        AIOKafkaConsumer, topic, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    assert [(r.offset, r.value) for r in await take(consumer, 3)] == [(0, b"0"), (4, b"2"), (8, b"4")]


async def test_consume_transform_produce(running, new_topic, write_all, make_sample, read_all, unique):
    source, target, group = new_topic(), new_topic(), unique("group")
    write_all(source, [make_sample(None, b"%d" % i) for i in range(60)])
    partition = TopicPartition(source, 0)
    consumer = await running(
        AIOKafkaConsumer,
        source,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = await running(AIOKafkaProducer, transactional_id=unique("tx"))
    async with asyncio.timeout(PATIENCE_S):
        for attempt in range(1000):
            records = (await consumer.getmany(partition, timeout_ms=200, max_records=7)).get(partition, [])
            if not records:
                continue
            await producer.begin_transaction()
            for record in records:
                await producer.send(target, b"t" + record.value)
            end = records[-1].offset + 1
            await producer.send_offsets_to_transaction({partition: end}, group)
            if attempt % 3 == 1:
                await producer.abort_transaction()
                await consumer.seek_to_committed()
                continue
            await producer.commit_transaction()
            if end == 60:
                break
    values = [s.sample.value for s in read_all(target, "read_committed")]
    assert values == [b"t%d" % i for i in range(60)]
    assert await consumer.committed(partition) == 60


async def test_a_newer_producer_fences_the_older(running, kafka, new_topic, unique):
    topic, name = new_topic(), unique("tx")
    old = await running(AIOKafkaProducer, transactional_id=name)
    await old.begin_transaction()
    await old.send_and_wait(topic, b"old", partition=0)
    await running(AIOKafkaProducer, transactional_id=name)
    with pytest.raises(ProducerFenced):
        await old.commit_transaction()


async def test_admin(client, running, unique):
    name = unique("topic")
    answer = await client.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "-1"})])
    assert [topic[1] for topic in answer.topic_errors] == [0]
    assert name in await client.list_topics()
    await client.create_partitions({name: NewPartitions(3)})
    async with asyncio.timeout(PATIENCE_S):
        while len((await client.describe_topics([name]))[0]["partitions"]) != 3:
            pass
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    [configs] = await client.describe_configs([resource])
    values = {entry[0]: entry[1] for entry in configs.resources[0][4]}
    assert values["retention.ms"] == "-1"
    producer = await running(AIOKafkaProducer)
    for number in range(10):
        await producer.send_and_wait(name, b"%d" % number, partition=0)
    partition = TopicPartition(name, 0)
    assert await client.delete_records({partition: RecordsToDelete(before_offset=6)}) == {partition: 6}
    group = unique("group")
    consumer = await running(AIOKafkaConsumer, name, group_id=group, auto_offset_reset="earliest")
    assert len(await take(consumer, 4)) == 4
    await consumer.commit()
    assert (await client.list_consumer_group_offsets(group))[partition].offset == 10
    assert group in {listed[0] for listed in await client.list_consumer_groups()}
    [described_group] = await client.describe_consumer_groups([group])
    assert described_group.groups[0][3] == "consumer"
    await consumer.stop()  # otherwise its next metadata request would recreate the topic
    await client.delete_topics([name])
    assert name not in await client.list_topics()
