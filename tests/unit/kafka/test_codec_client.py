"""The client's end of the Kafka codec: each end reads what the other one writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire.kafka_primitives import LocalCodecError, RemoteCodecError
from treecast.shims.kafka import codec, codec_fetch, schema
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.codec_client import (
    Asked,
    correlation_of,
    decode_fetch_response,
    decode_produce_response,
    decode_response,
    encode_fetch_request,
    encode_produce_request,
    encode_request,
    shared_version,
)

_INT64 = st.integers(-(2**63), 2**63 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_NAMES = st.text(max_size=20)
_IDS = st.binary(min_size=16, max_size=16)


def frame(data: object) -> memoryview:
    """Returns a framed message without its size, which is checked."""
    whole = b"".join(map(bytes, data)) if isinstance(data, list) else bytes(data)  # type: ignore[arg-type,call-overload]
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return memoryview(whole)[4:]


asked = st.builds(Asked, _NAMES, _IDS, _INT32, _INT64, _INT32, _INT32, _INT32, _INT64)


@given(st.lists(asked, max_size=6), st.integers(4, 17))
def test_the_face_reads_a_fetch(partitions: list[Asked], version: int) -> None:
    data = encode_fetch_request(7, version, "c", partitions, max_wait_ms=5, min_bytes=1, max_bytes=99)
    whole = frame(data)
    header = codec.decode_request_header(whole)
    assert (header.api_key, header.api_version, header.correlation_id) == (v.FETCH, version, 7)
    read = codec_fetch.decode_fetch_request(whole, header.body, version)
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.session_epoch) == (5, 1, 99, -1)
    found = [(one.partition, one.offset, one.max_bytes) for one in read.partitions]
    assert found == [(one.partition, one.offset, one.max_bytes) for one in partitions]
    for mine, theirs in zip(partitions, read.partitions, strict=True):
        name = (theirs.topic, theirs.topic_id)
        assert name == (("", mine.topic_id) if version >= codec_fetch.TOPIC_IDS else (mine.topic, b""))
        if version >= codec_fetch.FLEXIBLE:
            assert theirs.last_fetched_epoch == mine.last_epoch
        if version >= 9:
            assert theirs.current_leader_epoch == mine.leader_epoch


def test_a_session_names_what_changed_and_what_leaves() -> None:
    one, two = (Asked("t", b"1" * 16, number, 5, 9) for number in (0, 1))
    for version in range(7, 18):
        data = encode_fetch_request(
            1,
            version,
            "c",
            [one],
            max_wait_ms=5,
            min_bytes=1,
            max_bytes=99,
            session_id=3,
            session_epoch=4,
            forgotten=[two],
        )
        whole = frame(data)
        read = codec_fetch.decode_fetch_request(whole, codec.decode_request_header(whole).body, version)
        assert (read.session_id, read.session_epoch) == (3, 4)
        assert [found.partition for found in read.partitions] == [0]
        assert [number for _, number in read.forgotten] == [1]


results = st.builds(
    lambda topic, id, partition, code, high, stable, start, records, aborted: codec_fetch.FetchResult(
        topic, partition, code, high, stable, start, [records] if records else [], aborted, topic_id=id
    ),
    _NAMES,
    _IDS,
    _INT32,
    st.integers(-1, 120),
    _INT64,
    _INT64,
    _INT64,
    st.binary(max_size=5000),
    st.none() | st.lists(st.tuples(_INT64, _INT64), max_size=3),
)


@given(st.lists(results, max_size=5), st.integers(4, 17))
def test_a_fetch_is_read_as_the_face_answers_it(sent: list[codec_fetch.FetchResult], version: int) -> None:
    whole = frame(codec_fetch.encode_fetch_response(9, version, sent))
    assert correlation_of(whole) == 9
    code, session, read = decode_fetch_response(whole, version)
    assert session == 0
    assert code == 0
    assert len(read) == len(sent)
    for mine, theirs in zip(sent, read, strict=True):
        assert theirs.partition == mine.partition
        assert theirs.error_code == mine.error_code
        assert theirs.high_watermark == mine.high_watermark
        assert theirs.last_stable_offset == mine.last_stable_offset
        assert theirs.log_start_offset == (mine.log_start_offset if version >= 5 else -1)
        assert bytes(theirs.records or b"") == b"".join(map(bytes, mine.chunks))
        assert theirs.aborted == list(mine.aborted or [])
        assert theirs.diverging is None


def test_a_leader_says_where_logs_part_and_who_leads() -> None:
    """Kafka's own descriptor writes the tagged fields, which the face never sends."""
    row = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_start_offset": 0,
        "diverging_epoch": {"epoch": 4, "end_offset": 17},
        "current_leader": {"leader_id": 2, "leader_epoch": 6},
        "aborted_transactions": None,
        "records": None,
    }
    values = {"responses": [{"topic": "t", "partitions": [row]}]}
    whole = frame(schema.encode_response(v.FETCH, 12, 1, values))
    _, _, (found,) = decode_fetch_response(whole, 12)
    assert (found.partition, found.diverging, found.leader) == (3, (4, 17), (2, 6))


@given(st.binary(max_size=200), st.integers(4, 17))
def test_a_fetch_that_cannot_be_read_is_refused(data: bytes, version: int) -> None:
    try:
        decode_fetch_response(memoryview(b"\0\0\0\1" + data), version)
    except RemoteCodecError:
        return


@given(
    _NAMES,
    _INT32,
    st.binary(min_size=1, max_size=300),
    st.sampled_from([-1, 0, 1]),
    st.none() | _NAMES,
    st.integers(3, 12),
)
def test_the_face_reads_a_produce(
    topic: str, partition: int, records: bytes, acks: int, transaction: str | None, version: int
) -> None:
    pieces = encode_produce_request(
        1, version, "c", topic, partition, memoryview(records), acks, 1000, transaction
    )
    whole = frame(pieces)
    header = codec.decode_request_header(whole)
    read = codec.decode_produce_request(whole, header.body, version)
    (found,) = read.partitions
    assert (found.topic, found.partition, bytes(found.records or b"")) == (topic, partition, records)
    assert (read.acks, read.timeout_ms, read.transactional_id) == (acks, 1000, transaction)


@given(
    st.integers(-1, 120),
    _INT64,
    _INT64,
    _INT64,
    st.none() | _NAMES,
    st.lists(st.tuples(_INT32, _NAMES), max_size=3),
    st.integers(3, 12),
)
def test_a_produce_is_read_as_the_face_answers_it(
    code: int,
    base: int,
    time: int,
    start: int,
    message: str | None,
    records: list[tuple[int, str]],
    version: int,
) -> None:
    sent = codec.ProduceResult("t", 1, code, base, time, start, message, records)
    found = decode_produce_response(frame(codec.encode_produce_response(1, version, [sent])), version)
    assert (found.error_code, found.base_offset, found.log_append_time) == (code, base, time)
    assert found.log_start_offset == (start if version >= 5 else -1)
    if version >= 8:
        assert (found.message, list(found.record_errors)) == (message, records)


@pytest.mark.parametrize("version", range(v.APIS[v.HEARTBEAT].first, v.APIS[v.HEARTBEAT].last + 1))
def test_other_calls_go_by_their_descriptors(version: int) -> None:
    values = {"group_id": "g", "generation_id": 3, "member_id": "m"}
    whole = frame(encode_request(v.HEARTBEAT, version, 5, "c", values))
    header = codec.decode_request_header(whole)
    assert header.client_id == "c"
    read = schema.decode_request(v.HEARTBEAT, version, whole[header.body :])
    assert (read.group_id, read.generation_id, read.member_id) == ("g", 3, "m")
    answer = frame(schema.encode_response(v.HEARTBEAT, version, 5, {"error_code": 27}))
    assert decode_response(v.HEARTBEAT, version, answer).error_code == 27
    with pytest.raises(RemoteCodecError):
        decode_response(v.HEARTBEAT, version, answer[:5])


def test_the_highest_version_that_both_know_is_used() -> None:
    assert shared_version(v.FETCH, {v.FETCH: (4, 20)}) == v.APIS[v.FETCH].last
    assert shared_version(v.FETCH, {v.FETCH: (4, 11)}) == 11
    assert shared_version(v.PRODUCE, {v.PRODUCE: (0, 13)}, most=11) == 11
    for theirs in ({}, {v.FETCH: (19, 20)}, {v.FETCH: (0, 3)}):
        with pytest.raises(LocalCodecError):
            shared_version(v.FETCH, theirs)
