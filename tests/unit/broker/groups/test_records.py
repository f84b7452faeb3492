"""Stored groups are read back unchanged; the topics in consumers' subscriptions are found."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from treecast.middleware.broker.groups.records import (
    GroupRecord,
    MemberRecord,
    OffsetRecord,
    PendingRecord,
    decode_group,
    decode_offset,
    decode_pending,
    encode,
    offset_key,
    parse_offset_key,
    parse_pending_key,
    pending_key,
)
from treecast.middleware.broker.groups.subscription import all_subscribed, subscribed_topics
from treecast.middleware.model.identity import TopicPartition

TEXT = st.text(max_size=20)
LONG = st.integers(0, 2**62)
OFFSETS = st.builds(OffsetRecord, LONG, st.integers(-1, 2**31 - 1), TEXT, LONG, LONG)
MEMBERS = st.builds(
    MemberRecord,
    TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=3).map(tuple),
    st.binary(max_size=20),
)


@given(group_id=TEXT, topic=TEXT, partition=st.integers(0, 2**31 - 1))
@example("12:a:3:", "t", 1)
@example("", "a:b", 0)
def test_offset_keys(group_id: str, topic: str, partition: int) -> None:
    where = TopicPartition(topic, partition)
    assert parse_offset_key(offset_key(group_id, where)) == (group_id, where)


@given(group_id=TEXT, producer_id=st.integers(0, 2**63 - 1))
def test_pending_keys(group_id: str, producer_id: int) -> None:
    assert parse_pending_key(pending_key(group_id, producer_id)) == (group_id, producer_id)


@given(OFFSETS)
def test_offsets(record: OffsetRecord) -> None:
    assert decode_offset(encode(record)) == record


@given(st.builds(GroupRecord, LONG, TEXT, TEXT, TEXT, st.lists(MEMBERS, max_size=3).map(tuple)))
def test_groups(record: GroupRecord) -> None:
    assert decode_group(encode(record)) == record


@given(st.lists(st.tuples(TEXT, st.integers(0, 9), OFFSETS), max_size=3).map(tuple))
def test_pending(offsets: tuple[tuple[str, int, OffsetRecord], ...]) -> None:
    record = PendingRecord(3, 4, offsets)
    assert decode_pending(encode(record)) == record


def subscription(topics: list[str], version: int = 1, tail: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(t.encode())) + t.encode() for t in topics)
    return struct.pack(">hi", version, len(topics)) + names + tail


@given(st.lists(TEXT, max_size=5), st.integers(0, 3), st.binary(max_size=10))
def test_subscriptions(topics: list[str], version: int, tail: bytes) -> None:
    assert subscribed_topics(subscription(topics, version, tail)) == frozenset(topics)


def test_subscription_of_kafka_python() -> None:
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    metadata = ConsumerProtocolSubscription(topics=["one", "two"], user_data=b"data", version=1)
    assert subscribed_topics(metadata.encode()) == {"one", "two"}


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_no_subscription_or_a_small_one(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or len(topics) <= len(metadata)


@pytest.mark.parametrize("size", range(len(subscription(["topic"]))))
def test_a_truncated_subscription_is_not_read(size: int) -> None:
    assert subscribed_topics(subscription(["topic"])[:size]) is None


def test_all_members_together() -> None:
    one, two = subscription(["a", "b"]), subscription(["b", "c"])
    assert all_subscribed([one, two]) == {"a", "b", "c"}
    assert all_subscribed([one, b""]) is None
    assert all_subscribed([]) == frozenset()
