"""The generator's own frames, compared with kafka-python's schema-driven codec."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse
from kafka.protocol.consumer import FetchRequest as KafkaFetchRequest
from kafka.protocol.consumer import FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from treecast.middleware.load import frames
from treecast.middleware.load.payload import make_batch


def decode_request(request_class, version, frame):
    """Decodes the request in `frame`; its length, header and last byte must all be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return request_class.decode(bytes(frame), version=version, header=True, framed=True)


def encode(response, correlation=7):
    response.with_header(correlation_id=correlation)
    return bytes(response.encode(header=True, framed=True))


def test_produce_request_is_what_kafka_python_reads():
    batch = make_batch(3, 20, 1000).data
    request = decode_request(ProduceRequest, 9, frames.produce_request("t-1", 4, batch, acks=-1))
    assert request.acks == -1
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, bytes(partition.records)) == ("t-1", 4, batch)


def test_fetch_request_moves_only_its_offset():
    request = frames.FetchRequest("topic", 2, 1 << 20, 1, 500)
    for offset in (0, 12345678901):
        found = decode_request(KafkaFetchRequest, 12, request.at(offset))
        (topic,) = found.topics
        (partition,) = topic.partitions
        assert (topic.topic, partition.partition, partition.fetch_offset) == ("topic", 2, offset)
        assert (found.min_bytes, found.max_wait_ms, found.max_bytes) == (1, 500, 1 << 20)
        assert (found.session_id, found.session_epoch, found.isolation_level) == (0, -1, 0)


def test_requests_around_a_run_are_what_kafka_python_reads():
    created = decode_request(
        CreateTopicsRequest, 2, frames.create_topic_request("a", 3, {"retention.ms": "5"})
    )
    (topic,) = created.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("a", 3, 1)
    assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "5")]
    asked = decode_request(MetadataRequest, 4, frames.metadata_request(["a", "b"]))
    assert [topic.name for topic in asked.topics] == ["a", "b"]
    assert not asked.allow_auto_topic_creation
    listed = decode_request(ListOffsetsRequest, 1, frames.list_offsets_request("a", 1, frames.EARLIEST))
    (topic,) = listed.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.timestamp) == ("a", 1, -2)


@given(st.integers(0, 2**62), st.integers(-1, 127), st.text("abc.-_", min_size=1, max_size=100))
def test_produce_error_stands_where_kafka_puts_it(base_offset, error, topic):
    response_topic = ProduceResponse.TopicProduceResponse
    partition = response_topic.PartitionProduceResponse(
        index=3, error_code=error, base_offset=base_offset, version=9
    )
    response = ProduceResponse(
        responses=[response_topic(name=topic, partition_responses=[partition], version=9)], version=9
    )
    frame = encode(response)
    found = struct.unpack_from(">hq", frame, frames.produce_error_position(topic))
    assert found == (error, base_offset)


def test_floor_answers_produce_as_kafka_does():
    frame = frames.produce_response("topic", 5, 99)
    response = ProduceResponse.decode(frame, version=9, header=True, framed=True)
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code, partition.base_offset) == ("topic", 5, 0, 99)


def fetch_frame(records, error=0, topic="topic"):
    response_topic = FetchResponse.FetchableTopicResponse
    partition = response_topic.PartitionData(
        partition_index=1, error_code=error, high_watermark=1234, records=records, version=12
    )
    return encode(
        FetchResponse(responses=[response_topic(topic=topic, partitions=[partition], version=12)], version=12)
    )


@given(st.binary(max_size=300), st.text("xyz", min_size=1, max_size=249))
def test_fetch_head_is_read_as_kafka_python_writes_it(records, topic):
    frame = fetch_frame(records, topic=topic)
    answer = frames.parse_fetch_head(frame)
    assert (answer.error, answer.high_watermark, answer.records_size) == (0, 1234, len(records))
    assert frame[answer.records_at : answer.records_at + answer.records_size] == records


def test_fetch_head_carries_the_error_of_the_partition():
    assert frames.parse_fetch_head(fetch_frame(b"", error=1)).error == 1


def test_floor_answers_fetch_as_kafka_does():
    batch = make_batch(2, 10, 1000).data
    frame = frames.fetch_response_head("topic", 1, 2, len(batch)) + batch + frames.FETCH_TAIL
    response = FetchResponse.decode(frame, version=12, header=True, framed=True)
    (partition,) = response.responses[0].partitions
    assert (partition.high_watermark, bytes(partition.records)) == (2, batch)


def test_metadata_is_read_as_kafka_python_writes_it():
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=9, rack=None, version=4)
    topic_class = MetadataResponse.MetadataResponseTopic
    parts = [
        topic_class.MetadataResponsePartition(
            error_code=0, partition_index=n, leader_id=leader, replica_nodes=[1], isr_nodes=[1], version=4
        )
        for n, leader in ((0, 1), (1, -1))
    ]
    topic = topic_class(error_code=0, name="t", is_internal=False, partitions=parts, version=4)
    response = MetadataResponse(
        throttle_time_ms=0, brokers=[broker], cluster_id="cluster", controller_id=1, topics=[topic], version=4
    )
    view = frames.parse_metadata(encode(response)[4:])
    assert view == frames.ClusterView({1: ("h", 9)}, {"t": (0, {0: 1, 1: -1})}, "cluster")


def test_other_answers_are_read_as_kafka_python_writes_them():
    keys = ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=12, version=0)
    response = ApiVersionsResponse(error_code=0, api_keys=[keys], version=0)
    assert frames.parse_api_versions(encode(response)[4:]) == {3: (0, 12)}
    made = CreateTopicsResponse.CreatableTopicResult(
        name="t", error_code=36, error_message="is there", version=2
    )
    response = CreateTopicsResponse(throttle_time_ms=0, topics=[made], version=2)
    assert frames.parse_create_topics(encode(response)[4:]) == (36, "is there")
    topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
    part = topic_class.ListOffsetsPartitionResponse(
        partition_index=0, error_code=0, timestamp=-1, offset=77, version=1
    )
    response = ListOffsetsResponse(topics=[topic_class(name="t", partitions=[part], version=1)], version=1)
    assert frames.parse_list_offsets(encode(response)[4:]) == 77
    part.error_code = 6
    with pytest.raises(frames.LoadError) as refused:
        frames.parse_list_offsets(encode(response)[4:])
    assert refused.value.code == 6


def test_next_offset_stops_before_a_torn_batch():
    batches = []
    for base, count in ((10, 3), (13, 1), (14, 7)):
        data = bytearray(make_batch(count, 30, 1000).data)
        struct.pack_into(">q", data, 0, base)
        batches.append(bytes(data))
    whole = b"".join(batches)
    assert frames.next_offset(whole, 0, len(whole)) == (21, 3)
    assert frames.next_offset(b"head" + whole, 4, len(whole)) == (21, 3)
    assert frames.next_offset(whole, 0, len(whole) - 1) == (14, 2)
    assert frames.next_offset(whole, 0, len(batches[0]) - 1) == (-1, 0)
    assert frames.next_offset(whole, 0, 5) == (-1, 0)
