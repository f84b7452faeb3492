"""OffsetCommit and Heartbeat: the descriptors' codec as the reference in every version, both directions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import HeartbeatRequest, OffsetCommitRequest

from treecast.shims.kafka import versions as v
from treecast.shims.kafka.codec import CodecError, decode_request_header
from treecast.shims.kafka.codec_commit import (
    CommitRequest,
    decode_commit,
    decode_heartbeat,
    encode_commit_answer,
    encode_heartbeat_answer,
)
from treecast.shims.kafka.messages import MalformedMessage
from treecast.shims.kafka.schema import decode_request, encode_response

COMMITS = range(v.APIS[v.OFFSET_COMMIT].first, v.APIS[v.OFFSET_COMMIT].last + 1)
HEARTBEATS = range(v.APIS[v.HEARTBEAT].first, v.APIS[v.HEARTBEAT].last + 1)
EXAMPLES = 30  # of each version
TOPIC = OffsetCommitRequest.OffsetCommitRequestTopic
PART = TOPIC.OffsetCommitRequestPartition

INT16, INT32, INT64 = (st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1) for n in (2, 4, 8))
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
PARTS = st.lists(
    st.tuples(INT32, INT64, INT32, st.none() | NAMES | st.text("m", min_size=600, max_size=601)), max_size=3
)
TOPICS = st.lists(st.tuples(NAMES, PARTS), max_size=3)
MEMBER = st.tuples(NAMES, INT32, NAMES, st.none() | NAMES)

Part = tuple[int, int, int, str | None]
Topics = Sequence[tuple[str, Sequence[Part]]]
Member = tuple[str, int, str, str | None]


def framed(message: object) -> bytearray:
    message.with_header(correlation_id=5, client_id="c")  # type: ignore[attr-defined]
    return bytearray(message.encode(header=True, framed=True)[4:])  # type: ignore[attr-defined]


def commit(version: int, member: Member, topics: Topics) -> bytearray:
    group_id, generation, member_id, instance_id = member
    asked = [
        TOPIC(
            name=name,
            partitions=[
                PART(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                    version=version,
                )
                for index, offset, epoch, metadata in parts
            ],
            version=version,
        )
        for name, parts in topics
    ]
    return framed(
        OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id if version >= 7 else None,
            retention_time_ms=1234,
            topics=asked,
            version=version,
        )
    )


def heartbeat(version: int, member: Member) -> bytearray:
    group_id, generation, member_id, instance_id = member
    return framed(
        HeartbeatRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id if version >= 3 else None,
            version=version,
        )
    )


Rows = list[tuple[str, list[Part]]]


def rows(request: CommitRequest) -> Rows:
    found: Rows = []
    first = 0
    for topic, count in zip(request.topics, request.counts, strict=True):
        here = slice(first, first + count)
        parts = zip(
            request.partitions[here],
            request.offsets[here],
            request.leader_epochs[here],
            request.metadata[here],
            strict=True,
        )
        found.append((topic, [*parts]))
        first += count
    assert first == len(request.partitions) == len(request.metadata)
    return found


def fast_commit(frame: memoryview, body: int, version: int) -> tuple[Member, Rows] | None:
    """Returns what the hot path reads, or the reference where it leaves the request; None if it refuses."""
    try:
        read = decode_commit(frame, body, version)
    except CodecError:
        return None
    if read is None:
        assert not bytes(frame).isascii()
        return plain_commit(frame, body, version)
    return (read.group_id, read.generation, read.member_id, read.instance_id), rows(read)


def plain_commit(frame: memoryview, body: int, version: int) -> tuple[Member, Rows] | None:
    """Returns what the reference reads; None if it refuses."""
    try:
        read = decode_request(v.OFFSET_COMMIT, version, frame[body:])
    except MalformedMessage:
        return None
    found = [
        (
            topic.name,
            [
                (
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata or "",
                )
                for part in topic.partitions
            ],
        )
        for topic in read.topics
    ]
    return (
        read.group_id,
        read.generation_id_or_member_epoch,
        read.member_id,
        read.group_instance_id,
    ), found


def fast_heartbeat(frame: memoryview, body: int, version: int) -> Member | None:
    try:
        read = decode_heartbeat(frame, body, version)
    except CodecError:
        return None
    if read is None:
        assert not bytes(frame).isascii()
        return plain_heartbeat(frame, body, version)
    return read.group_id, read.generation, read.member_id, read.instance_id


def plain_heartbeat(frame: memoryview, body: int, version: int) -> Member | None:
    try:
        read = decode_request(v.HEARTBEAT, version, frame[body:])
    except MalformedMessage:
        return None
    return read.group_id, read.generation_id, read.member_id, read.group_instance_id


@pytest.mark.parametrize("version", COMMITS)
@settings(max_examples=EXAMPLES)
@given(member=MEMBER, topics=TOPICS)
def test_commits_of_kafka_python(version: int, member: Member, topics: Topics) -> None:
    frame = memoryview(commit(version, member, topics))
    header = decode_request_header(frame)
    assert "\ufffd" in str(topics) + str(member) or decode_commit(frame, header.body, version) is not None
    found = fast_commit(frame, header.body, version)
    assert found is not None
    assert found == plain_commit(frame, header.body, version)
    (group_id, generation, member_id, _), read = found
    assert (group_id, generation, member_id) == member[:3]
    assert [(name, [part[:2] for part in parts]) for name, parts in read] == [
        (name, [part[:2] for part in parts]) for name, parts in topics
    ]


@pytest.mark.parametrize("version", HEARTBEATS)
@settings(max_examples=EXAMPLES)
@given(member=MEMBER)
def test_heartbeats_of_kafka_python(version: int, member: Member) -> None:
    frame = memoryview(heartbeat(version, member))
    header = decode_request_header(frame)
    found = fast_heartbeat(frame, header.body, version)
    assert found == plain_heartbeat(frame, header.body, version)
    assert found == (*member[:3], member[3] if version >= 3 else None)


@pytest.mark.parametrize("version", COMMITS)
@settings(max_examples=EXAMPLES)
@given(member=MEMBER, topics=TOPICS, data=st.data())
def test_both_refuse_the_same_broken_commits(
    version: int, member: Member, topics: Topics, data: st.DataObject
) -> None:
    frame = commit(version, member, topics)
    body = decode_request_header(memoryview(frame)).body
    end = data.draw(st.integers(body, len(frame)))
    place = data.draw(st.integers(body, len(frame) - 1))
    broken = bytearray(frame)
    broken[place] = data.draw(st.integers(0, 255))
    for other in (frame[:end], broken, frame + b"trailing"):
        view = memoryview(other)
        assert fast_commit(view, body, version) == plain_commit(view, body, version)


@pytest.mark.parametrize("version", HEARTBEATS)
@settings(max_examples=EXAMPLES)
@given(body=st.binary(max_size=40))
def test_both_refuse_the_same_bytes_as_heartbeats(version: int, body: bytes) -> None:
    view = memoryview(body)
    assert fast_heartbeat(view, 0, version) == plain_heartbeat(view, 0, version)


@pytest.mark.parametrize("version", COMMITS)
@settings(max_examples=EXAMPLES)
@given(body=st.binary(max_size=60))
def test_both_refuse_the_same_bytes_as_commits(version: int, body: bytes) -> None:
    view = memoryview(body)
    assert fast_commit(view, 0, version) == plain_commit(view, 0, version)


@pytest.mark.parametrize("version", COMMITS)
@settings(max_examples=EXAMPLES)
@given(topics=TOPICS, correlation_id=INT32, data=st.data())
def test_answers_to_commits(version: int, topics: Topics, correlation_id: int, data: st.DataObject) -> None:
    request = CommitRequest("g", 1, "m", None)
    for name, parts in topics:
        request.topics.append(name)
        request.counts.append(len(parts))
        request.partitions += [index for index, *_ in parts]
    size = len(request.partitions)
    codes = data.draw(st.none() | st.lists(INT16, min_size=size, max_size=size))
    given_out = iter(codes or [0] * size)
    expected = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "error_code": next(given_out)} for index, *_ in parts],
        }
        for name, parts in topics
    ]
    answer = encode_commit_answer(correlation_id, version, request, codes)
    assert answer == encode_response(v.OFFSET_COMMIT, version, correlation_id, {"topics": expected})


@pytest.mark.parametrize("version", HEARTBEATS)
@settings(max_examples=EXAMPLES)
@given(correlation_id=INT32, code=INT16)
def test_answers_to_heartbeats(version: int, correlation_id: int, code: int) -> None:
    answer = encode_heartbeat_answer(correlation_id, version, code)
    assert answer == encode_response(v.HEARTBEAT, version, correlation_id, {"error_code": code})
