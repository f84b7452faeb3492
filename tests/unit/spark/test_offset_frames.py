"""ListOffsets as kafka-python reads and writes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from treecast.middleware.load.frames import LoadError
from treecast.spark_connectors.source.offset_frames import Found, offsets_request, parse_offsets
from treecast.spark_connectors.source.offsets import EARLIEST, LATEST, Partition

T0, T1, U0 = Partition("t", 0), Partition("t", 1), Partition("u", 0)
VERSION = 6


@pytest.mark.parametrize("committed", [False, True])
def test_a_request(committed: bool) -> None:
    times = {T0: EARLIEST, T1: LATEST, U0: 12345}
    frame = offsets_request(times, committed=committed)
    read: Any = ListOffsetsRequest.decode(frame, version=VERSION, header=True, framed=True)
    assert (read.replica_id, read.isolation_level) == (-1, int(committed))
    found = {
        Partition(topic.name, part.partition_index): part.timestamp
        for topic in read.topics
        for part in topic.partitions
    }
    assert found == times


def test_an_answer() -> None:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    row = topic.ListOffsetsPartitionResponse
    given = {T0: Found(0, 7), T1: Found(6, -1), U0: Found(0, 2**40)}
    topics = [
        topic(
            name=name,
            partitions=[
                row(
                    partition_index=part.number,
                    error_code=found.error,
                    timestamp=-1,
                    offset=found.offset,
                    leader_epoch=3,
                    version=VERSION,
                )
                for part, found in given.items()
                if part.topic == name
            ],
            version=VERSION,
        )
        for name in ("t", "u")
    ]
    response = ListOffsetsResponse(throttle_time_ms=0, topics=topics, version=VERSION)
    response.with_header(correlation_id=0)
    assert parse_offsets(bytes(response.encode(header=True, framed=False))) == given


@given(st.binary(max_size=60))
def test_garbage_is_no_answer(data: bytes) -> None:
    try:
        parse_offsets(data)
    except LoadError:
        pass
