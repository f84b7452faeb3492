"""Fetch: kafka-python's schema codec as the reference in every version, both directions."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from treecast.shims.kafka.codec import (
    CodecError,
    FetchPartition,
    FetchResult,
    RemoteCodecError,
    decode_fetch_request,
    decode_request_header,
    encode_fetch_response,
)
from treecast.shims.kafka.codec_fetch import JOIN_BELOW, TOPIC_IDS

VERSIONS = range(4, 18)
EXAMPLES = 30  # of each version
TOPIC, FORGOTTEN = FetchRequest.FetchTopic, FetchRequest.ForgottenTopic
PART = TOPIC.FetchPartition
ANSWER = FetchResponse.FetchableTopicResponse
PART_ANSWER = ANSWER.PartitionData

Grouped = list[tuple[str, list[FetchPartition]]]
INT8, INT16, INT32, INT64 = (st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1) for n in (1, 2, 4, 8))
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
PARTS = st.builds(FetchPartition, st.just(""), INT32, INT64, INT32, INT32, INT32, INT64)
TOPICS = st.lists(st.tuples(NAMES, st.lists(PARTS, max_size=3)), max_size=3)
FORGET = st.lists(st.tuples(NAMES, st.lists(INT32, max_size=3)), max_size=2)
CHUNKS = st.lists(st.binary(max_size=50) | st.integers(JOIN_BELOW - 1, JOIN_BELOW + 1).map(bytes), max_size=3)
ABORTED = st.none() | st.lists(st.tuples(INT64, INT64), max_size=2)
RESULTS = st.lists(
    st.builds(FetchResult, NAMES, INT32, INT16, INT64, INT64, INT64, CHUNKS, ABORTED, INT32), max_size=5
)


def id_of(name: str) -> bytes:
    return uuid.uuid5(uuid.NAMESPACE_URL, name).bytes


def topic_of(name: str, version: int) -> dict[str, object]:
    """Names a topic as a message of `version` does."""
    return {"topic_id": uuid.UUID(bytes=id_of(name))} if version >= TOPIC_IDS else {"topic": name}


def by_id(results: list[FetchResult]) -> list[FetchResult]:
    """Returns the results as a handler makes them for a request with ids."""
    for result in results:
        result.topic_id = id_of(result.topic)
    return results


def request(
    version: int, fields: tuple[int, ...], topics: Grouped, forgotten: list[tuple[str, list[int]]], rack: str
) -> bytes:
    replica, max_wait, min_bytes, max_bytes, isolation, session, epoch = fields
    asked = [
        TOPIC(
            **topic_of(name, version),
            partitions=[
                PART(
                    partition=p.partition,
                    current_leader_epoch=p.current_leader_epoch,
                    fetch_offset=p.offset,
                    last_fetched_epoch=p.last_fetched_epoch if version >= 12 else -1,
                    log_start_offset=p.log_start_offset,
                    partition_max_bytes=p.max_bytes,
                    version=version,
                )
                for p in parts
            ],
            version=version,
        )
        for name, parts in topics
    ]
    message = FetchRequest(
        replica_id=replica if version < 15 else -1,
        max_wait_ms=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session,
        session_epoch=epoch,
        topics=asked,
        forgotten_topics_data=[
            FORGOTTEN(**topic_of(name, version), partitions=parts, version=version)
            for name, parts in forgotten
        ],
        rack_id=rack,
        version=version,
    )
    message.with_header(correlation_id=5, client_id="c")
    framed: bytes = message.encode(header=True, framed=True)
    return framed[4:]


def sent(part: FetchPartition, topic: str, version: int) -> tuple[object, ...]:
    """Returns the fields of `part` that a request of `version` carries, and defaults for the rest."""
    return (
        topic if version < TOPIC_IDS else "",
        id_of(topic) if version >= TOPIC_IDS else b"",
        part.partition,
        part.offset,
        part.max_bytes,
        part.current_leader_epoch if version >= 9 else -1,
        part.last_fetched_epoch if version >= 12 else -1,
        part.log_start_offset if version >= 5 else -1,
    )


def got(part: FetchPartition) -> tuple[object, ...]:
    return (
        *(part.topic, part.topic_id, part.partition, part.offset, part.max_bytes),
        *(part.current_leader_epoch, part.last_fetched_epoch, part.log_start_offset),
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(
    fields=st.tuples(INT32, INT32, INT32, INT32, INT8, INT32, INT32),
    topics=TOPICS,
    forgotten=FORGET,
    rack=NAMES,
)
def test_requests_of_kafka_python(
    version: int, fields: tuple[int, ...], topics: Grouped, forgotten: list[tuple[str, list[int]]], rack: str
) -> None:
    if version < 7:
        forgotten = []
    frame = memoryview(request(version, fields, topics, forgotten, rack))
    read = decode_fetch_request(frame, decode_request_header(frame).body, version)
    session = fields[5:] if version >= 7 else (0, -1)
    replica = fields[0] if version < 15 else -1
    assert (read.replica_id, read.max_wait_ms, read.min_bytes) == (replica, *fields[1:3])
    assert (read.max_bytes, read.isolation) == fields[3:5]
    assert (read.session_id, read.session_epoch) == session
    assert read.rack == (rack if version >= 11 else "")
    named = version < TOPIC_IDS
    assert read.forgotten == [(name if named else "", index) for name, parts in forgotten for index in parts]
    expected = [sent(part, name, version) for name, parts in topics for part in parts]
    assert [got(part) for part in read.partitions] == expected


def reference(version: int, results: list[FetchResult], error: int, session: int, throttle: int) -> bytes:
    """Encodes the same response by kafka-python; consecutive results of one topic are grouped."""
    topics: list[tuple[str, list[object]]] = []
    for result in results:
        aborted = result.aborted
        part = PART_ANSWER(
            partition_index=result.partition,
            error_code=result.error_code,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=None
            if aborted is None
            else [
                PART_ANSWER.AbortedTransaction(producer_id=producer, first_offset=first, version=version)
                for producer, first in aborted
            ],
            preferred_read_replica=result.preferred_read_replica if version >= 11 else -1,
            records=b"".join(bytes(chunk) for chunk in result.chunks),
            version=version,
        )
        if not topics or topics[-1][0] != result.topic:
            topics.append((result.topic, []))
        topics[-1][1].append(part)
    message = FetchResponse(
        throttle_time_ms=throttle,
        error_code=error,
        session_id=session if version >= 7 else 0,
        responses=[
            ANSWER(**topic_of(name, version), partitions=parts, version=version) for name, parts in topics
        ],
        version=version,
    )
    message.with_header(correlation_id=9)
    framed: bytes = message.encode(header=True, framed=True)
    return framed


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(results=RESULTS, error=INT16, session=INT32, throttle=INT32)
def test_responses_equal_those_of_kafka_python(
    version: int, results: list[FetchResult], error: int, session: int, throttle: int
) -> None:
    buffers = encode_fetch_response(9, version, by_id(results), error, session, throttle)
    assert all(buffers)
    assert b"".join(buffers) == reference(version, results, error, session, throttle)


@pytest.mark.parametrize("version", VERSIONS)
def test_large_records_are_passed_on_and_small_ones_joined(version: int) -> None:
    large, small = memoryview(bytearray(JOIN_BELOW)), memoryview(bytearray(JOIN_BELOW - 1))
    results = [
        FetchResult("t", 0, chunks=[small, large]),
        FetchResult("t", 1),
        FetchResult("u", 0, chunks=[small, small]),
        FetchResult("u", 1, chunks=[large]),
    ]
    buffers = encode_fetch_response(9, version, by_id(results))
    assert [buffer is large for buffer in buffers] == [False, True, False, True] + [False] * (version >= 12)
    assert b"".join(buffers) == reference(version, results, 0, 0, 0)


def test_golden_bytes() -> None:
    """Version 12 by hand, after FetchRequest.json and FetchResponse.json."""
    body = bytes.fromhex(
        "ffffffff 000001f4 00000001 00100000 01 00000000 ffffffff"  # up to the session epoch
        "02 02 74 02 00000003 00000005 0000000000000009 ffffffff ffffffffffffffff 00010000 00 00"
        "01 02 72 00"  # nothing forgotten, rack "r"
    )
    read = decode_fetch_request(memoryview(body), 0, 12)
    assert (read.replica_id, read.max_wait_ms, read.min_bytes, read.max_bytes) == (-1, 500, 1, 1 << 20)
    assert (read.isolation, read.session_id, read.session_epoch, read.rack) == (1, 0, -1, "r")
    (part,) = read.partitions
    assert got(part) == ("t", b"", 3, 9, 65_536, 5, -1, -1)
    answer = encode_fetch_response(5, 12, [FetchResult("t", 3, 0, 10, 10, 0, [b"abc"], [(1, 2)])])
    assert b"".join(answer).hex() == (
        "0000004e 00000005 00 00000000 0000 00000000 02 02 74 02 00000003 0000 000000000000000a"
        " 000000000000000a 0000000000000000 02 0000000000000001 0000000000000002 00 ffffffff"
        " 04 616263 00 00 00"
    ).replace(" ", "")


def test_a_filter_in_a_tagged_field() -> None:
    """Tag 29795 holds the filter; other tags are skipped, and a truncated text is refused."""
    frame = request(12, FIELDS, [("t", PARTITIONS)], [], "r")
    body = decode_request_header(memoryview(frame)).body
    text = "price > 5 and größe == 1".encode()
    tags = b"\x03" + b"\x01\x02xy" + b"\xe3\xe8\x01" + bytes([len(text)]) + text + b"\x07\x00"
    read = decode_fetch_request(memoryview(frame[:-1] + tags), body, 12)
    assert read.filter == text.decode()
    assert decode_fetch_request(memoryview(frame), body, 12).filter is None
    for length in range(1, len(tags)):
        with pytest.raises(RemoteCodecError):
            decode_fetch_request(memoryview(frame[:-1] + tags[:length]), body, 12)


PARTITIONS = [FetchPartition("", 1, 2, 3), FetchPartition("", 4, 5, 6, 7, 8, 9)]
FIELDS = (-1, 500, 1, 1000, 0, 77, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_cuts_and_trailing_bytes_are_refused(version: int) -> None:
    forgotten = [("u", [1, 2])] if version >= 7 else []
    frame = memoryview(request(version, FIELDS, [("topic", PARTITIONS), ("u", [])], forgotten, "rack"))
    body = decode_request_header(frame).body
    decode_fetch_request(frame, body, version)
    for length in range(body, len(frame)):
        with pytest.raises(RemoteCodecError):
            decode_fetch_request(frame[:length], body, version)
    with pytest.raises(RemoteCodecError, match="1 bytes are left"):
        decode_fetch_request(memoryview(bytes(frame) + b"\0"), body, version)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(data=st.binary(max_size=120))
def test_arbitrary_bytes_give_only_a_codec_error(version: int, data: bytes) -> None:
    try:
        read = decode_fetch_request(memoryview(data), 0, version)
    except CodecError:
        return
    assert len(read.partitions) * 16 + len(read.forgotten) * 4 <= len(data)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_one_wrong_byte_gives_only_a_codec_error(version: int, at: float, value: int) -> None:
    frame = bytearray(request(version, FIELDS, [("topic", PARTITIONS), ("u", [])], [], "rack"))
    frame[int(at * len(frame))] = value
    try:
        body = decode_request_header(memoryview(frame)).body
        read = decode_fetch_request(memoryview(frame), body, version)
    except CodecError:
        return
    assert len(read.partitions) * 16 <= len(frame)
