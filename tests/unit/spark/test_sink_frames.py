"""The sink's requests as kafka-python reads them, replies as it writes them; a lane that loses its peer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from treecast.middleware.api.discovery import Address
from treecast.middleware.load.frames import ClusterView, LoadError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression
from treecast.shims.kafka import schema
from treecast.spark_connectors.errors import WriteError
from treecast.spark_connectors.links import LINKS
from treecast.spark_connectors.servers import Servers, one
from treecast.spark_connectors.sink import frames
from treecast.spark_connectors.sink.frames import Staged
from treecast.spark_connectors.sink.lane import Lane
from treecast.spark_connectors.sink.producing import Producer
from treecast.spark_connectors.source.offsets import Partition

T0, T1, U0 = Partition("t", 0), Partition("t", 1), Partition("u", 0)
NOBODY = Address("127.0.0.1", 1)
STAGED = Staged("q//3/a", 7, 2)


def decoded(cls: Any, frame: bytes, version: int) -> Any:
    return cls.decode(frame, version=version, header=True, framed=True)


def payload(response: Any) -> bytes:
    response.with_header(correlation_id=0)
    return bytes(response.encode(header=True, framed=False))


@pytest.mark.parametrize("transactional_id", [None, "q//3/a"])
def test_init(transactional_id: str | None) -> None:
    read = decoded(InitProducerIdRequest, frames.init_request(transactional_id, 500), 3)
    assert (read.transactional_id, read.transaction_timeout_ms, read.producer_id, read.producer_epoch) == (
        transactional_id,
        500,
        -1,
        -1,
    )
    answer = InitProducerIdResponse(
        throttle_time_ms=0, error_code=48, producer_id=5, producer_epoch=6, version=3
    )
    assert frames.parse_init(payload(answer)) == (48, ProducerIdentity(5, 6))


def test_add() -> None:
    frame = frames.add_request("q//3/a", ProducerIdentity(7, 2), [T0, U0, T1])
    read = decoded(AddPartitionsToTxnRequest, frame, 3)
    assert (read.v3_and_below_transactional_id, read.v3_and_below_producer_id) == ("q//3/a", 7)
    assert [(topic.name, list(topic.partitions)) for topic in read.v3_and_below_topics] == [
        ("t", [0, 1]),
        ("u", [0]),
    ]


def test_produce() -> None:
    frame = frames.produce_request("q//3/a", {T0: b"one", U0: b"two", T1: b"three"})
    read = decoded(ProduceRequest, frame, 9)
    found = {
        (topic.name, part.index): bytes(part.records)
        for topic in read.topic_data
        for part in topic.partition_data
    }
    assert found == {("t", 0): b"one", ("t", 1): b"three", ("u", 0): b"two"}
    assert (read.transactional_id, read.acks) == ("q//3/a", -1)


def test_end() -> None:
    read = decoded(EndTxnRequest, frames.end_request(STAGED, committed=False), 3)
    assert (read.transactional_id, read.producer_id, read.producer_epoch, read.committed) == (
        "q//3/a",
        7,
        2,
        False,
    )
    answer = payload(EndTxnResponse(throttle_time_ms=0, error_code=51, version=3))
    assert frames.parse_end(answer) == (51, "")


def test_the_end_of_a_batch_as_the_face_reads_it() -> None:
    frame = frames.end_parts_request("q", 3, [STAGED, Staged("q//3/b", 8, 0)], committed=True)
    other = decoded(EndTxnRequest, frame, 3)  # kafka-python skips unknown fields
    assert (other.transactional_id, other.committed) == ("q", True)
    body = memoryview(frame)[4 + 8 + 2 + len("treecast-spark") + 1 :]
    read = schema.decode_request(26, 3, body)
    assert read.treecast_batch == 3
    assert [(p.transactional_id, p.producer_id, p.producer_epoch) for p in read.treecast_parts] == [
        STAGED,
        ("q//3/b", 8, 0),
    ]
    assert read.treecast_content == ""
    frame = frames.end_parts_request("q", 3, [], committed=True, content="5 rows: ä 5")
    read = schema.decode_request(26, 3, memoryview(frame)[4 + 8 + 2 + len("treecast-spark") + 1 :])
    assert (read.treecast_batch, read.treecast_parts, read.treecast_content) == (3, [], "5 rows: ä 5")


def test_why_a_batch_is_refused_as_the_face_says_it() -> None:
    frame = bytes(schema.encode_response(26, 3, 0, {"error_code": 48, "treecast_why": "no repeat"}))
    assert frames.parse_end(frame[4:]) == (48, "no repeat")
    plain = bytes(schema.encode_response(26, 3, 0, {"error_code": 0}))
    assert plain[4:] == payload(EndTxnResponse(throttle_time_ms=0, error_code=0, version=3))


def test_what_was_appended_and_what_was_not() -> None:
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    same = {"base_offset": 1, "log_append_time_ms": -1, "log_start_offset": 0, "record_errors": []}
    rows = [
        part(index=n, error_code=error, error_message=said, version=9, **same)
        for n, error, said in ((0, 0, None), (1, 10, "too large"))
    ]
    answer = ProduceResponse(
        responses=[topic(name="t", partition_responses=rows, version=9)], throttle_time_ms=0, version=9
    )
    assert frames.parse_produce(payload(answer)) == {T0: (0, ""), T1: (10, "too large")}


def test_partitions_that_were_added() -> None:
    topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    part = topic.AddPartitionsToTxnPartitionResult
    rows = [part(partition_index=n, partition_error_code=n, version=3) for n in range(2)]
    answer = AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=[topic(name="t", results_by_partition=rows, version=3)],
        version=3,
    )
    assert frames.parse_add(payload(answer)) == {T0: 0, T1: 1}


@given(st.binary(max_size=60))
def test_garbage_is_no_answer(data: bytes) -> None:
    for parse in (frames.parse_init, frames.parse_add, frames.parse_produce, frames.parse_end):
        try:
            parse(data)
        except LoadError:
            pass


# --- lanes


class Peer:
    """Replies to each frame with the next item of `script`: a payload, or None to disconnect."""

    def __init__(self, script: list[bytes | None]) -> None:
        self.seen: list[bytes] = []
        self._script = script
        self._connection: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connection = connection
            with connection, connection.makefile("rb") as stream:
                while size := stream.read(4):
                    self.seen.append(stream.read(int.from_bytes(size, "big")))
                    answer = self._script.pop(0) if self._script else appended()
                    if answer is None:
                        break
                    connection.sendall(len(answer).to_bytes(4, "big") + answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._connection is not None:
            with contextlib.suppress(OSError):  # the connection may have ended
                self._connection.shutdown(socket.SHUT_RDWR)  # if a link is kept for the next task
        self._thread.join(10)


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made: list[Peer] = []
    yield made
    for peer in made:
        peer.close()


def appended(error: int = 0) -> bytes:
    head = b"\0" * 4 + b"\0" + b"\x02" + b"\x02t" + b"\x02"
    body = (0).to_bytes(4, "big") + error.to_bytes(2, "big") + b"\0" * 24 + b"\x01" + b"\0" + b"\0"
    return head + body + b"\0" + b"\0" * 4 + b"\0"


def frame_of(number: int) -> bytes:
    return frames.produce_request(None, {T0: b"%d" % number})


def test_what_was_not_answered_is_sent_again_in_order(peers: list[Peer]) -> None:
    peers.append(peer := Peer([appended(), appended(6), None, appended(46)]))
    lane = Lane(one(peer.address), 30)
    sent = [frame_of(number) for number in range(4)]
    for frame in sent:
        lane.send(frame)
    lane.settle()
    lane.close()
    order = [next(n for n in range(4) if sent[n][4:] == seen) for seen in peer.seen]
    assert order[-3:] == [1, 2, 3]
    assert order[:2] == [0, 1]


def test_what_stays_wrong_is_told(peers: list[Peer]) -> None:
    peers.append(peer := Peer([appended(10)]))
    lane = Lane(one(peer.address), 30)
    lane.send(frame_of(0))
    with pytest.raises(WriteError, match=r"t-0 at .*: a batch is larger than max\.message\.bytes"):
        lane.settle()
    lane.close()


def test_a_peer_that_stays_away_is_told() -> None:
    lane = Lane(one(NOBODY), 0.2)
    with pytest.raises(WriteError, match=r"127\.0\.0\.1:1 has not taken what is written for 0\.2 s"):
        lane.ask(frames.init_request(None, 1), lambda payload: frames.parse_end(payload)[0])


def test_another_server_is_asked_if_one_is_away_or_goes(peers: list[Peer]) -> None:
    """Of three, the first does not exist, and the second one closes the connection after its first answer."""
    done = frames.parse_end
    peers.extend((going := Peer([b"\0" * 9 + b"\0" * 3, None]), staying := Peer([b"\0" * 9 + b"\0" * 3])))
    lane = Lane(Servers((NOBODY, going.address, staying.address)), 30)
    for _ in range(2):
        assert lane.ask(frames.init_request(None, 1), lambda payload: done(payload)[0]) == 0
    lane.close()
    assert (len(going.seen), len(staying.seen)) == (2, 1)


def test_a_topic_that_an_answer_lacks_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    none, some = ClusterView({}, {}, "c"), ClusterView({0: ("h", 1)}, {"t": (0, {0: 0, 1: 0})}, "c")
    said = [none, none, some]
    producer = Producer(one(NOBODY), lease_ms=1, compression=Compression.NONE, timeout=30)
    link = SimpleNamespace(metadata=lambda _: said.pop(0) if len(said) > 1 else said[0])
    monkeypatch.setattr(LINKS, "lent_any", lambda *_: contextlib.nullcontext(link))
    assert producer.partitions("t") == 2
    said = [none]
    with pytest.raises(WriteError, match="there is no topic u at"):
        producer.partitions("u")
