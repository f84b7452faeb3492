"""Produce: kafka-python's schema codec as the reference in every version, both directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from treecast.shims.kafka.codec import (
    CodecError,
    ProduceResult,
    RemoteCodecError,
    RequestHeader,
    decode_header_fields,
    decode_produce_fields,
    decode_produce_request,
    decode_request_header,
    encode_produce_response,
)
from treecast.shims.kafka.codec import ProduceRequest as ProduceRequest_

VERSIONS = range(3, 13)
EXAMPLES = 30  # of each version
TOPIC, ANSWER = ProduceRequest.TopicProduceData, ProduceResponse.TopicProduceResponse
PART, PART_ANSWER = TOPIC.PartitionProduceData, ANSWER.PartitionProduceResponse
BATCH_ERROR = PART_ANSWER.BatchIndexAndErrorMessage

Parts = list[tuple[int, bytes | None]]
INT16, INT32, INT64 = (st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1) for n in (2, 4, 8))
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
RECORDS = st.none() | st.binary(max_size=80) | st.binary(min_size=2000, max_size=2001)
TOPICS = st.lists(st.tuples(NAMES, st.lists(st.tuples(INT32, RECORDS), max_size=3)), max_size=3)
ERRORS = st.lists(st.tuples(INT32, NAMES), max_size=2).map(tuple)
RESULTS = st.lists(
    st.builds(
        ProduceResult, NAMES, INT32, INT16, INT64, INT64, INT64, st.none() | st.text(max_size=5), ERRORS
    ),
    max_size=5,
)


def request(
    version: int, transactional: str | None, acks: int, timeout: int, topics: list[tuple[str, Parts]]
) -> bytes:
    data = [
        TOPIC(
            name=name,
            partition_data=[PART(index=index, records=records, version=version) for index, records in parts],
            version=version,
        )
        for name, parts in topics
    ]
    message = ProduceRequest(
        transactional_id=transactional, acks=acks, timeout_ms=timeout, topic_data=data, version=version
    )
    message.with_header(correlation_id=5, client_id="c")
    framed: bytes = message.encode(header=True, framed=True)
    return framed[4:]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(transactional=st.none() | NAMES, acks=INT16, timeout=INT32, topics=TOPICS)
def test_requests_of_kafka_python(
    version: int, transactional: str | None, acks: int, timeout: int, topics: list[tuple[str, Parts]]
) -> None:
    frame = bytearray(request(version, transactional, acks, timeout, topics))
    header = decode_request_header(memoryview(frame))
    read = decode_produce_request(memoryview(frame), header.body, version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (transactional, acks, timeout)
    expected = [(name, index, records) for name, parts in topics for index, records in parts]
    assert [(p.topic, p.partition, p.records) for p in read.partitions] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_records_lie_in_the_frame(version: int) -> None:
    """Writing to the records writes to the frame: the broker patches offsets in place."""
    frame = bytearray(request(version, None, 1, 10, [("t", [(0, b"x" * 3000), (1, b"yy")])]))
    read = decode_produce_request(memoryview(frame), decode_request_header(memoryview(frame)).body, version)
    for part in read.partitions:
        assert part.records is not None
        part.records[:2] = b"!?"
    assert frame.count(b"!?") == 2


def reference(version: int, results: list[ProduceResult], throttle: int) -> bytes:
    """Encodes the same response by kafka-python; consecutive results of one topic are grouped."""
    topics: list[tuple[str, list[object]]] = []
    for result in results:
        part = PART_ANSWER(
            index=result.partition,
            error_code=result.error_code,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time,
            log_start_offset=result.log_start_offset,
            record_errors=[
                BATCH_ERROR(batch_index=index, batch_index_error_message=message, version=version)
                for index, message in (result.record_errors if version >= 8 else ())
            ],
            error_message=result.error_message,
            version=version,
        )
        if not topics or topics[-1][0] != result.topic:
            topics.append((result.topic, []))
        topics[-1][1].append(part)
    responses = [ANSWER(name=name, partition_responses=parts, version=version) for name, parts in topics]
    message = ProduceResponse(responses=responses, throttle_time_ms=throttle, version=version)
    message.with_header(correlation_id=9)
    framed: bytes = message.encode(header=True, framed=True)
    return framed


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(results=RESULTS, throttle=INT32)
def test_responses_equal_those_of_kafka_python(
    version: int, results: list[ProduceResult], throttle: int
) -> None:
    assert encode_produce_response(9, version, results, throttle) == reference(version, results, throttle)


def test_golden_bytes() -> None:
    """Version 3 and version 9 by hand, after ProduceRequest.json and ProduceResponse.json."""
    read = decode_produce_request(
        memoryview(bytes.fromhex("ffff ffff 000003e8 00000001 0001 74 00000001 00000002 00000003 616263")),
        0,
        3,
    )
    assert (read.transactional_id, read.acks, read.timeout_ms) == (None, -1, 1000)
    assert [(p.topic, p.partition, p.records) for p in read.partitions] == [("t", 2, b"abc")]
    compact = bytes.fromhex("03 7478 0001 00000000 02 02 74 02 00000002 04 616263 00 00 00")
    read = decode_produce_request(memoryview(compact), 0, 9)
    assert (read.transactional_id, read.acks) == ("tx", 1)
    assert [(p.topic, p.partition, p.records) for p in read.partitions] == [("t", 2, b"abc")]
    answer = encode_produce_response(5, 9, [ProduceResult("t", 2, 0, 7, -1, 1)])
    assert answer.hex() == (
        "00000030 00000005 00 02 02 74 02 00000002 0000 0000000000000007 ffffffffffffffff"
        " 0000000000000001 01 00 00 00 00000000 00"
    ).replace(" ", "")


@pytest.mark.parametrize("version", VERSIONS)
def test_cuts_and_trailing_bytes_are_refused(version: int) -> None:
    frame = memoryview(
        request(version, "tx", 1, 10, [("topic", [(0, b"abc"), (1, None)]), ("u", [(0, b"d")])])
    )
    body = decode_request_header(frame).body
    decode_produce_request(frame, body, version)
    for length in range(body, len(frame)):
        with pytest.raises(RemoteCodecError):
            decode_produce_request(frame[:length], body, version)
    with pytest.raises(RemoteCodecError, match="1 bytes are left"):
        decode_produce_request(memoryview(bytes(frame) + b"\0"), body, version)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(data=st.binary(max_size=120))
def test_arbitrary_bytes_give_only_a_codec_error(version: int, data: bytes) -> None:
    try:
        read = decode_produce_request(memoryview(data), 0, version)
    except CodecError:
        return
    assert sum(len(p.records or b"") for p in read.partitions) <= len(data)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=EXAMPLES)
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_one_wrong_byte_gives_only_a_codec_error(version: int, at: float, value: int) -> None:
    frame = bytearray(
        request(version, "tx", 1, 10, [("topic", [(0, b"abc"), (1, None)]), ("u", [(0, b"d")])])
    )
    frame[int(at * len(frame))] = value
    try:
        body = decode_request_header(memoryview(frame)).body
        read = decode_produce_request(memoryview(frame), body, version)
    except CodecError:
        return
    assert sum(len(p.records or b"") for p in read.partitions) <= len(frame)


def outcome(decode: Callable[[], object]) -> object:
    """What a decoder returns, as fields; or that it refuses."""
    try:
        found = decode()
    except RemoteCodecError:
        return "refused"
    if isinstance(found, ProduceRequest_):
        parts = [(part.topic, part.partition, part.records) for part in found.partitions]
        return found.transactional_id, found.acks, found.timeout_ms, parts
    assert isinstance(found, RequestHeader)
    return found.api_key, found.api_version, found.correlation_id, found.client_id, found.body


@pytest.mark.parametrize("version", [8, 9, 12])
@settings(max_examples=20 * EXAMPLES)
@given(
    parts=st.lists(st.tuples(INT32, st.none() | st.sampled_from([0, 1, 126, 127, 128, 20_000])), max_size=2),
    topic=NAMES | st.text("t", min_size=120, max_size=130),
    transactional=st.sampled_from([None, None, None, "x"]),
    wrong=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 255)),
    cut=st.sampled_from([0, 0, 0, 1, 2, 3]),
)
def test_the_fast_paths_read_what_the_reading_field_by_field_does(
    version: int,
    parts: list[tuple[int, int | None]],
    topic: str,
    transactional: str | None,
    wrong: tuple[int, int] | None,
    cut: int,
) -> None:
    records = [(index, None if size is None else bytes(size)) for index, size in parts]
    frame = bytearray(request(version, transactional, -1, 1000, [(topic, records)]))
    if wrong is not None and wrong[0] < len(frame):
        frame[wrong[0]] = wrong[1]
    view = memoryview(frame)[: len(frame) - cut]
    quick, plain = outcome(lambda: decode_request_header(view)), outcome(lambda: decode_header_fields(view))
    assert quick == plain
    if quick != "refused":
        body = decode_request_header(view).body
        expected = outcome(lambda: decode_produce_fields(view, body, version))
        assert outcome(lambda: decode_produce_request(view, body, version)) == expected
