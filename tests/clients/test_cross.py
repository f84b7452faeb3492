"""Records of each client, in each compression, read equally by every other client."""

from __future__ import annotations

import base64
import subprocess

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

pytestmark = pytest.mark.clients

WRITERS = ("confluent-kafka", "kafka-python", "aiokafka", "java", "kcat")
READERS = ("confluent-kafka", "kafka-python", "aiokafka", "java", "kcat")


async def write(writer, kafka, topic, partition, compression, samples, java_client, kcat):
    """Writes samples with each client's own interface; partition = compression."""
    kind = None if compression == "none" else compression
    if writer == "confluent-kafka":
        settings = {"bootstrap.servers": kafka, "compression.type": compression, "linger.ms": 20}
        producer = Producer(settings)
        for sample in samples:
            producer.produce(topic, sample.value, sample.key, partition, headers=list(sample.headers))
        assert producer.flush(30) == 0
    elif writer == "kafka-python":
        producer = KafkaProducer(bootstrap_servers=kafka, compression_type=kind, linger_ms=20)
        for s in samples:
            producer.send(topic, s.value, key=s.key, headers=list(s.headers), partition=partition)
        producer.flush(30)
        producer.close()
    elif writer == "aiokafka":
        async with AIOKafkaProducer(bootstrap_servers=kafka, compression_type=kind, linger_ms=20) as producer:
            for s in samples:
                await producer.send(topic, s.value, key=s.key, headers=list(s.headers), partition=partition)
    elif writer == "java":
        java_client.write(topic, partition, compression, samples)
    else:
        # kcat's headers apply to a whole run, so each sample gets its own run.
        for sample in samples:
            command = [kcat, "-b", kafka, "-P", "-t", topic, "-p", str(partition), "-z", compression]
            command += ["-K", "\x1f", "-D", "\x1e", *(["-Z"] if sample.value is None else [])]
            for name, value in sample.headers:
                command += ["-H", f"{name}={value.decode()}"]
            text = (sample.key or b"") + b"\x1f" + (sample.value or b"")
            subprocess.run(command, input=text, check=True, timeout=60)  # noqa: ASYNC221 - nothing else runs


async def read(reader, kafka, topic, partitions, count, java_client, kcat, read_all, make_sample):
    """Returns [(partition, offset, sample)], sorted."""
    if reader == "confluent-kafka":
        return [(s.partition, s.offset, s.sample) for s in read_all(topic)]
    if reader == "java":
        return java_client.read(topic)
    if reader == "kcat":
        return _by_kcat(kcat, kafka, topic, make_sample)
    if reader == "kafka-python":
        consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=None, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        found = [next(consumer) for _ in range(count)]
        consumer.close()
    else:
        async with AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as aio:
            aio.assign([AioTopicPartition(topic, number) for number in range(partitions)])
            found = [await aio.getone() for _ in range(count)]
    return sorted((r.partition, r.offset, make_sample(r.key, r.value, tuple(r.headers))) for r in found)


def _by_kcat(kcat, kafka, topic, make_sample):
    """kcat prints bytes unchanged, with unit and record separators between them."""
    form = "%p\x1f%o\x1f%K\x1f%k\x1f%S\x1f%s\x1f%h\x1e"
    command = [kcat, "-b", kafka, "-C", "-t", topic, "-e", "-q", "-f", form]
    output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    found = []
    for line in output.split(b"\x1e")[:-1]:
        partition, offset, key_size, key, value_size, value, headers = line.split(b"\x1f")
        pairs = [pair.split(b"=", 1) for pair in headers.split(b",") if pair]
        found.append(
            (
                int(partition),
                int(offset),
                make_sample(
                    None if key_size == b"-1" else key,
                    None if value_size == b"-1" else value,
                    tuple((name.decode(), text) for name, text in pairs),
                ),
            )
        )
    return sorted(found)


@pytest.fixture(scope="module")
def plain_samples(make_sample):
    """Samples that all five clients can express: kcat mixes no null key with others, and prints headers as
    text."""
    return [
        make_sample(b"key", b"value"),
        make_sample("ключ".encode(), "значение".encode()),
        make_sample(b"tombstone", None),
        make_sample(b"headers", b"h", (("a", b"1"), ("b", base64.b64encode(b"x" * 50).rstrip(b"=")))),
        make_sample(b"long", b"the same words again and again, " * 2000),
    ]


@pytest.mark.parametrize("writer", WRITERS)
async def test_what_one_wrote_all_read(
    writer,
    kafka,
    new_topic,
    plain_samples,
    compressions,
    java_client,
    require_tool,
    read_all,
    make_sample,
):
    kcat = require_tool("kcat")
    topic = new_topic(partitions=len(compressions))
    for partition, compression in enumerate(compressions):
        await write(writer, kafka, topic, partition, compression, plain_samples, java_client, kcat)
    expected = [(p, o, s) for p in range(len(compressions)) for o, s in enumerate(plain_samples)]
    for reader in READERS:
        found = await read(
            reader,
            kafka,
            topic,
            len(compressions),
            len(expected),
            java_client,
            kcat,
            read_all,
            make_sample,
        )
        assert found == expected, f"{reader} reads {writer}"
