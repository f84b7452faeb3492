"""Batches in the topic's compression: the same records, and not larger than the topic allows."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.broker.test_partition import NOW_MS, PRODUCER, Bench, batch_of, make
from tests.unit.refusals import refusal

from treecast.middleware.broker.batch_sizes import (
    grows_too_large,
    most_of,
    recompressed,
    stored_codec,
    surely_most_of,
)
from treecast.middleware.model.errors import Fault
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import build_batch, check_batches, read_records

__all__ = ["make"]

LARGE = 1 << 20
NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


def config(limit: int, compression: str) -> TopicConfig:
    return TopicConfig.of({"max.message.bytes": str(limit), "compression.type": compression})


@pytest.mark.parametrize("sent", list(Compression))
@pytest.mark.parametrize("stored", list(Compression))
def test_recompressed_batches_are_those_built_anew(sent: Compression, stored: Compression) -> None:
    """The plain reference reads the records and builds a batch of them."""
    rng = random.Random(sent * 10 + stored)
    for _ in range(20):
        records = [
            Record(rng.choice((None, b"k")), rng.randbytes(rng.randrange(300)), (("h", b"v"),), NOW_MS + n)
            for n in range(rng.randrange(1, 9))
        ]
        facts = {"producer": PRODUCER, "base_sequence": 3, "transactional": rng.random() < 0.5}
        data = memoryview(bytearray(build_batch(records, compression=sent, **facts)))
        headers = check_batches(data, LARGE)
        batches, (header,) = recompressed(data, headers, stored, LARGE)
        assert bytes(batches) == build_batch(records, compression=stored, **facts)
        for fact in ("first_keyless", "min_timestamp", "record_bytes"):
            assert getattr(header, fact) == getattr(headers[0], fact)


def test_only_batches_of_another_codec_are_changed() -> None:
    one, other = (batch_of(b"a" * 500, compression=codec) for codec in (Compression.GZIP, Compression.LZ4))
    data = memoryview(bytearray(one + other))
    batches, headers = recompressed(data, check_batches(data, LARGE), Compression.GZIP, LARGE)
    assert bytes(batches[: len(one)]) == one
    assert [header.compression for header in headers] == [Compression.GZIP] * 2
    assert read_records(batches, len(one), headers[1])[0].value == b"a" * 500


@pytest.mark.parametrize(
    ("stored", "sent"), [("uncompressed", Compression.GZIP), ("snappy", Compression.GZIP)]
)
async def test_a_batch_that_the_topics_compression_makes_too_large_is_refused(
    make: Callable[..., Bench], stored: str, sent: Compression
) -> None:
    """As Kafka's UnifiedLog does, which checks a batch's size before and after LogValidator."""
    bench = make(compression_type=stored, max_message_bytes="2000")
    for _ in range(2):
        with refusal(Fault.BATCH_TOO_LARGE):
            bench.append(b"a" * 50_000, compression=sent, producer=PRODUCER, base_sequence=0)
    assert bench.log.end_offset == 0
    assert bench.append(b"a" * 900, compression=sent, producer=PRODUCER, base_sequence=0).base_offset == 0


async def test_a_repeat_is_answered_although_the_limit_was_lowered(make: Callable[..., Bench]) -> None:
    bench = make(compression_type="uncompressed")
    again = {"compression": Compression.GZIP, "producer": PRODUCER, "base_sequence": 0}
    assert bench.append(b"a" * 50_000, **again).base_offset == 0
    bench.partition.reconfigure(config(2000, "uncompressed"))
    assert bench.append(b"a" * 50_000, **again).base_offset == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_surely_fits_is_taken_whatever_it_is(name: str) -> None:
    rng = random.Random(1)
    for limit in (2_000, 40_000, 1_048_588):
        topic = config(limit, name)
        size = surely_most_of(topic) - 100
        data = memoryview(bytearray(batch_of(rng.randbytes(size))))
        headers = check_batches(data, most_of(topic))
        assert not grows_too_large(headers[0], topic)
        codec = stored_codec(topic)
        assert codec is not None
        recompressed(data, headers, codec, most_of(topic))  # raises nothing


def test_what_may_not_fit_is_known_before_it_is_compressed() -> None:
    data = memoryview(bytearray(batch_of(b"a" * 5000, compression=Compression.ZSTD)))
    (header,) = check_batches(data, LARGE)
    assert grows_too_large(header, config(2000, "uncompressed"))
    assert grows_too_large(header, config(5000, "gzip"))
    assert not grows_too_large(header, config(2000, "zstd"))
    assert not grows_too_large(header, config(2000, "producer"))
    assert not grows_too_large(header, config(6000, "gzip"))
