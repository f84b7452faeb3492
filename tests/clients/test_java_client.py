"""The Java client of Apache Kafka, unmodified, driven through java/Probe.java."""

from __future__ import annotations

import base64

import pytest

pytestmark = pytest.mark.clients


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_every_compression_goes_in_and_out(
    java_client, new_topic, samples, make_sample, stored_codecs, compressions
):
    topic = new_topic(partitions=len(compressions))
    samples = [*samples, make_sample(b"k", b"v", (("null", None),))]
    for partition, compression in enumerate(compressions):
        offsets = java_client.write(topic, partition, compression, samples)
        assert offsets == list(range(len(samples)))
        assert stored_codecs(topic, partition) == {compression}
    read = java_client.read(topic)
    expected = [(p, o, s) for p in range(len(compressions)) for o, s in enumerate(samples)]
    assert read == expected


def test_offsets_by_time(java_client, new_topic, write_all, make_sample):
    topic, base = new_topic(), 1_700_000_000_000
    write_all(topic, [make_sample(None, b"x")] * 10, 0, [base + i * 1000 for i in range(10)])
    assert java_client.ask(f"offsets {topic} {base + 3500}") == ["0", "10", "4"]


def test_two_members_share_and_one_takes_over(java_client, new_topic, unique):
    topic = new_topic(partitions=4)
    assert java_client.ask(f"share {topic} {unique('group')}") == ["2 2", "4 true"]


def test_consume_transform_produce(java_client, new_topic, write_all, make_sample, read_all, admin, unique):
    source, target, group = new_topic(partitions=2), new_topic(), unique("group")
    for partition in (0, 1):
        write_all(source, [make_sample(b"%d" % partition, b"%d" % i) for i in range(100)], partition)
    assert java_client.ask(f"transform {source} {target} {group} {unique('tx')} 200") == ["200"]
    read = [(s.sample.key, s.sample.value) for s in read_all(target, "read_committed")]
    assert sorted(read) == sorted((b"%d" % p, b"%d" % i) for p in (0, 1) for i in range(100))
    assert len(read_all(target)) > 200  # includes aborted records
    assert java_client.read(target, "read_committed") == [
        (s.partition, s.offset, s.sample) for s in read_all(target, "read_committed")
    ]


def test_commit_abort_and_fencing(java_client, new_topic, read_all, unique):
    topic, name = new_topic(), unique("tx")
    assert java_client.ask(f"begin {name} {topic} {coded(b'first')}") == []
    assert read_all(topic, "read_committed") == []
    assert java_client.ask(f"begin {name} {topic} {coded(b'second')}") == ["fenced"]
    java_client.ask(f"end {name} commit")
    java_client.ask(f"begin {name} {topic} {coded(b'third')}")
    java_client.ask(f"end {name} abort")
    assert [s.sample.value for s in read_all(topic, "read_committed")] == [b"second"]
    assert [s.sample.value for s in read_all(topic)] == [b"first", b"second", b"third"]
