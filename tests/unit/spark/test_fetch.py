"""Fetch replies become columns: compared with plain reading, with gaps, transactions, cuts and nonsense."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as KafkaFetchRequest
from kafka.protocol.consumer import FetchResponse

from treecast.middleware.api.discovery import Address
from treecast.middleware.load.frames import LoadError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record, TimestampType
from treecast.middleware.wire.record_batch import (
    ABORT,
    COMMIT,
    build_batch,
    control_marker,
    patch_batch,
    read_header,
    read_records,
)
from treecast.spark_connectors.errors import ReadError
from treecast.spark_connectors.servers import one
from treecast.spark_connectors.source import fetch
from treecast.spark_connectors.source.arrow import ArrowMaker, schema_of
from treecast.spark_connectors.source.columns import Columns, add_records
from treecast.spark_connectors.source.fetch import Answer, Decoder, PartitionReader, fetch_request
from treecast.spark_connectors.source.offsets import Partition
from treecast.spark_connectors.source.packed import Packed, add_packed
from treecast.spark_connectors.source.planning import Range

P = Partition("t", 2)
bytes_or_null = st.none() | st.binary(max_size=200)
names = st.text(st.characters(codec="utf-8"), max_size=5)
records = st.lists(
    st.builds(
        Record,
        key=bytes_or_null,
        value=bytes_or_null,
        headers=st.lists(st.tuples(names, bytes_or_null), max_size=3).map(tuple),
        timestamp=st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=10,
)


def answer(data: bytes, aborted: list[tuple[int, int]] | None = None, error: int = 0) -> Answer:
    return Answer(reply(data, aborted, error))


def reply(
    data: bytes,
    aborted: list[tuple[int, int]] | None = None,
    error: int = 0,
    *,
    end: int = 10**6,
    stable: int = 10**6,
) -> bytes:
    """Returns a Fetch 12 reply by kafka-python."""
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData
    listed = [
        part.AbortedTransaction(producer_id=producer, first_offset=first, version=12)
        for producer, first in aborted or []
    ]
    row = part(
        partition_index=2,
        error_code=error,
        high_watermark=end,
        last_stable_offset=stable,
        log_start_offset=0,
        aborted_transactions=listed,
        preferred_read_replica=-1,
        records=data,
        version=12,
    )
    response = FetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[topic(topic="t", partitions=[row], version=12)],
        version=12,
    )
    response.with_header(correlation_id=0)
    return bytes(response.encode(header=True, framed=False))


def placed(batch: bytes, offset: int) -> bytes:
    data = bytearray(batch)
    patch_batch(memoryview(data), 0, offset, 0)
    return bytes(data)


def rows(columns: Columns) -> list[tuple[object, ...]]:
    headers = columns.headers if columns.with_headers else [None] * len(columns)
    return list(zip(columns.keys, columns.values, columns.offsets, columns.timestamps, headers, strict=True))


@settings(max_examples=60)
@given(records, st.sampled_from(Compression), st.booleans(), st.integers(0, 12), st.integers(0, 12))
def test_columns_hold_what_records_do(
    sent: list[Record], compression: Compression, by_log: bool, first: int, until: int
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if by_log else TimestampType.CREATE_TIME
    data = build_batch(sent, base_offset=100, compression=compression, timestamp_type=kind)
    plain = [
        (record.key, record.value, record.offset, record.timestamp, list(record.headers) or None)
        for record in read_records(data, 0, read_header(data, 0))
        if 100 + first <= record.offset < 100 + until
    ]
    decoder = Decoder(Range(P, 100 + first, 100 + until), committed=False, with_headers=True)
    (columns,) = decoder.decode(answer(data))
    assert rows(columns) == plain
    assert set(columns.timestamp_types) <= {int(by_log)}


def values(found: Iterable[Columns | Packed]) -> list[bytes | None]:
    (columns,) = found
    assert isinstance(columns, Columns)
    return columns.values


def batch(*found: bytes, offset: int, producer: int = -1) -> bytes:
    options = {} if producer < 0 else {"transactional": True, "producer": ProducerIdentity(producer, 0)}
    sent = [Record(None, value, (), 1) for value in found]
    return placed(build_batch(sent, base_sequence=-1 if producer < 0 else 0, **options), offset)


def marker(kind: int, producer: int, offset: int) -> bytes:
    return placed(
        control_marker(kind, ProducerIdentity(producer, 0), coordinator_epoch=0, timestamp=1), offset
    )


LOG = (
    batch(b"a", offset=0)
    + batch(b"x", offset=1, producer=7)
    + batch(b"b", offset=2, producer=8)
    + marker(ABORT, 7, 3)
    + batch(b"c", offset=4, producer=7)
    + marker(COMMIT, 7, 5)
    + marker(COMMIT, 8, 6)
    + batch(b"d", offset=9)
)


@settings(max_examples=60)
@given(st.lists(records, max_size=3), st.booleans(), st.booleans(), st.integers(0, 12), st.integers(0, 25))
def test_packed_columns_are_the_arrow_that_lists_make(
    sent: list[list[Record]], keys: bool, by_log: bool, first: int, until: int
) -> None:
    pytest.importorskip("pyspark")
    kind = TimestampType.LOG_APPEND_TIME if by_log else TimestampType.CREATE_TIME
    data, offset = b"", 100
    for found in sent:
        if not keys:
            found = [Record(None, record.value, record.headers, record.timestamp) for record in found]
        data += build_batch(found, base_offset=offset, timestamp_type=kind, compression=Compression.LZ4)
        offset += len(found) + 1  # a gap
    maker = ArrowMaker(schema_of(include_headers=False), *P)
    made = []
    for packed in (False, True):
        decoder = Decoder(Range(P, 100 + first, 100 + until), committed=False, packed=packed)
        (columns,) = decoder.decode(answer(data))
        made.append(maker.make(columns))
        made[-1].validate(full=True)
    assert made[0].equals(made[1])
    assert made[0].schema.equals(made[1].schema)


@given(st.binary(max_size=80), st.integers(1, 3), st.integers(-1, 3), st.integers(0, 10))
def test_packed_columns_refuse_what_lists_do(data: bytes, count: int, first: int, until: int) -> None:
    whole = build_batch([Record(None, b"a", (), 1)] * count)
    header = read_header(whole, 0)
    lists, packed = Columns(False), Packed()
    said = []
    for add in (partial(add_records, lists), partial(add_packed, packed)):
        try:
            add(header, data, first, until)
            said.append("")
        except ValueError as error:
            said.append(str(error))
    assert said[0] == said[1] or "more than 64 bits" in said[1]
    if not said[0]:
        assert len(lists) == len(packed)
        assert (lists.values.count(None), lists.keys.count(None)) == (packed.values.nulls, packed.keys.nulls)


def test_what_compression_had_made_small_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "COLUMNS_BYTES", 1000)
    sent = [build_batch([Record(None, b"x" * 600, (), 1)], base_offset=n) for n in range(5)]
    decoder = Decoder(Range(P, 0, 5), committed=False, packed=True)
    assert [len(columns) for columns in decoder.decode(answer(b"".join(sent)))] == [2, 2, 1]
    assert decoder.next == 5


def test_committed_readers_do_not_see_what_was_aborted() -> None:
    committed = Decoder(Range(P, 0, 20), committed=True, with_headers=False)
    assert values(committed.decode(answer(LOG, [(7, 1)]))) == [b"a", b"b", b"c", b"d"]
    assert committed.next == 10
    uncommitted = Decoder(Range(P, 0, 20), committed=False, with_headers=False)
    assert values(uncommitted.decode(answer(LOG))) == [b"a", b"x", b"b", b"c", b"d"]


def test_an_aborted_transaction_over_two_answers() -> None:
    decoder = Decoder(Range(P, 0, 20), committed=True, with_headers=False)
    first = batch(b"x", offset=1, producer=7)
    second = batch(b"y", offset=2, producer=7) + marker(ABORT, 7, 3) + batch(b"z", offset=4, producer=7)
    assert values(decoder.decode(answer(first, [(7, 1)]))) == []
    assert values(decoder.decode(answer(second, [(7, 1)]))) == [b"z"]


def test_a_batch_that_is_cut_waits_for_the_next_answer() -> None:
    decoder = Decoder(Range(P, 0, 20), committed=False, with_headers=False)
    whole = batch(b"a", offset=0) + batch(b"b", offset=1)
    assert values(decoder.decode(answer(whole[:-1]))) == [b"a"]
    assert decoder.next == 1


def test_gaps_of_compaction_are_gone_over() -> None:
    decoder = Decoder(Range(P, 3, 9), committed=False, with_headers=False)
    assert values(decoder.decode(answer(LOG))) == [b"c"]
    assert decoder.next == 9


def test_records_that_are_not_what_the_header_says() -> None:
    whole = bytearray(batch(b"abc", offset=0))
    whole[61] = 100
    decoder = Decoder(Range(P, 0, 9), committed=False, with_headers=False)
    with pytest.raises(ReadError, match="the batch at offset 0 cannot be read"):
        list(decoder.decode(answer(bytes(whole))))


@given(st.binary(max_size=80))
def test_garbage_is_an_error_of_the_load_or_no_records(data: bytes) -> None:
    header = read_header(batch(b"a", offset=0), 0)
    try:
        add_records(Columns(True), header, data, 0, 10)
    except ValueError:
        pass
    try:
        Answer(data)
    except LoadError:
        pass


def test_errors_are_told() -> None:
    assert answer(b"", error=1).error == 1


@pytest.mark.parametrize("text", [None, "price > 5"])
def test_requests_are_what_kafka_python_reads(text: str | None) -> None:
    frame = fetch_request(Range(P, 5, 9), 7, committed=True, text=text)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    read = KafkaFetchRequest.decode(frame, version=12, header=True, framed=True)
    assert read.isolation_level == 1
    (topic,) = read.topics
    (part,) = topic.partitions
    assert (topic.topic, part.partition, part.fetch_offset) == ("t", 2, 7)
    assert (text is None) or frame.endswith(text.encode())


class Told:
    """A link whose requests are answered by the next item of a script, the last one for ever."""

    def __init__(self, *script: bytes) -> None:
        self.connection: Any = self
        self.address = Address("h", 1)
        self.quiet = False  # it is not kept
        self.sent: list[bytes] = []
        self._script = list(script)

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def receive(self) -> bytes:
        return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    def close(self) -> None:
        pass


def reader(until: int, timeout: float, *script: bytes, committed: bool = False) -> PartitionReader:
    made = PartitionReader(
        Range(P, 0, until),
        one(Address("h", 1)),
        committed=committed,
        timeout=timeout,
        fail_on_data_loss=False,
    )
    made._link = Told(*script)  # type: ignore[assignment]
    return made


NO_TIME = -1.0  # a limit that is exceeded by the first answer without progress


@pytest.mark.parametrize(
    ("end", "stable", "why"),
    [
        (10, 10, "it ends at 10, and is to be read up to 100"),
        (50, 10, "a transaction is open since offset 10"),
    ],
)
def test_what_does_not_come_is_not_waited_for_without_limit(end: int, stable: int, why: str) -> None:
    """Each record moves the limit."""
    some = reply(batch(*[b"v"] * 10, offset=0), end=end, stable=stable)
    read = reader(100, NO_TIME, some, reply(b"", end=end, stable=stable), committed=True).read()
    assert len(next(read)) == 10
    limit = rf"t-2 at h:1: no progress at offset 10 for -1 s \(readTimeoutMs\): {why}"
    with pytest.raises(ReadError, match=limit):
        next(read)


def test_a_replica_that_is_behind_is_waited_for() -> None:
    first, rest = batch(b"a", offset=0), batch(b"b", offset=1)
    script = [reply(first, end=1), *[reply(b"", end=1)] * 5, reply(rest, end=2)]
    assert [columns.values for columns in reader(2, 60, *script).read()] == [[b"a"], [b"b"]]
