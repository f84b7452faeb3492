"""The load on servers in a row, and its parts, against a stand-in that speaks AMQP."""

import socket
import struct

import pytest
from bench.chain import amqp, load, loops, paced, rate
from bench.chain import amqp_frames as frames
from bench.chain.committed import committed
from bench.chain.ends import Sink, Source
from bench.chain.kafka import make_stamper
from bench.chain.load import Order, open_route, prepare
from bench.chain.paced import PacedRate, program
from bench.chain.rate import FixedRate
from bench.chain.stamp import MARK, SMALLEST, STAMP, Arrivals, payload
from bench.core.chain import Route
from tests.unit.bench.amqp_broker import AmqpBroker

from treecast.middleware.load.frames import LoadError, produce_request
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import (
    ABORT,
    COMMIT,
    build_batch,
    check_batches,
    control_marker,
    read_header,
    read_records,
)


def route(broker):
    return Route("amqp", broker.address, broker.address, "bench", "bench")


@pytest.fixture
def start_broker():
    started = []

    def start(**options):
        started.append(AmqpBroker(**options))
        return started[-1]

    yield start
    for broker in started:
        broker.close()


# -- stamps --------------------------------------------------------------------------------------------------


def stamped(number, due, size=40):
    out = bytearray(payload(size))
    STAMP.pack_into(out, len(MARK), number, due)
    return bytes(out)


def test_a_payload_has_the_size_that_was_asked_for():
    assert [len(payload(size)) for size in (SMALLEST, 100, 1024)] == [SMALLEST, 100, 1024]
    assert payload(1024).count(MARK) == 1
    with pytest.raises(ValueError, match="at least"):
        payload(SMALLEST - 1)


def test_arrivals_are_found_in_whatever_carries_them():
    arrivals = Arrivals(3)
    assert arrivals.scan(b"frame" + stamped(2, 1000) + b"\0\xce" + stamped(0, 500), 1500) == 2
    assert list(arrivals.delays) == [1000, -1, 500]
    assert arrivals.arrived == 2


def test_what_comes_twice_or_was_never_sent_is_an_error():
    arrivals = Arrivals(2)
    arrivals.scan(stamped(1, 0), 10)
    with pytest.raises(LoadError, match="record 1 arrived twice"):
        arrivals.scan(stamped(1, 0), 20)
    with pytest.raises(LoadError, match="record 2 arrived, which was not sent"):
        arrivals.scan(stamped(2, 0), 20)


def test_a_stamped_batch_still_has_a_true_checksum():
    batch = build_batch([Record(None, payload(60), (), 1234)], compression=Compression.NONE)
    frame = produce_request("topic", 0, batch)
    slots = memoryview(bytearray(frame * 2))
    make_stamper(frame, batch)(slots[len(frame) :], 7, 99)
    assert bytes(slots[: len(frame)]) == frame
    start = len(frame) + frame.index(batch)
    written = slots[start : start + len(batch)]
    check_batches(written, 1 << 20)
    (record,) = read_records(written, 0, read_header(written, 0))
    assert STAMP.unpack_from(record.value, len(MARK)) == (7, 99)
    written[-1] ^= 1
    with pytest.raises(TreecastError) as caught:
        check_batches(written, 1 << 20)
    assert caught.value.fault is Fault.CORRUPT_BATCH


# -- AMQP frames ---------------------------------------------------------------------------------------------


def test_a_consumer_of_committed_records_gets_no_markers_and_nothing_aborted():
    records, first, other = [Record(None, b"x", (), 1)] * 5, ProducerIdentity(7, 0), ProducerIdentity(8, 0)

    def ended(kind, producer, offset):
        fields = {"coordinator_epoch": 0, "timestamp": 1, "base_offset": offset}
        return control_marker(kind, producer, **fields)

    def written(producer, offset, count):
        return build_batch(records[:count], base_offset=offset, producer=producer, transactional=True)

    batches = [written(first, 0, 5), written(other, 5, 2), ended(ABORT, first, 7), written(first, 8, 1)]
    data = b"head" + b"".join([*batches, ended(COMMIT, first, 9), ended(COMMIT, other, 10)])
    assert [count for _, _, count in committed(data, 4, len(data), [(7, 0)])] == [2, 1]
    assert [count for _, _, count in committed(data, 4, len(data))] == [5, 2, 1]
    torn = 4 + sum(map(len, batches)) - 1
    assert [count for _, _, count in committed(data, 4, torn, [(7, 0)])] == [2]


def test_publish_is_what_the_specification_says():
    assert frames.publish("ex", b"hi") == bytes.fromhex(
        "01 0001 0000000b 003c0028 0000 026578 00 00 ce"
        "02 0001 0000000f 003c 0000 0000000000000002 1000 02 ce"
        "03 0001 00000002 6869 ce"
    )


def test_ack_covers_everything_before_it():
    assert frames.ack(258) == bytes.fromhex("01 0001 0000000d 003c0050 0000000000000102 01 ce")


def test_frames_are_found_however_they_are_cut():
    data = frames.publish("ex", b"hi") + frames.ack(1)
    whole = [(kind, data[start:end]) for kind, start, end in frames.walk(data, len(data))]
    assert [kind for kind, _ in whole] == [1, 2, 3, 1]
    for cut in range(len(data)):
        found = [(kind, data[start:end]) for kind, start, end in frames.walk(data, cut)]
        assert found == whole[: len(found)]
        assert len(found) < len(whole)


def test_a_frame_without_its_end_is_refused():
    data = bytearray(frames.ack(1))
    data[-1] = 0
    with pytest.raises(LoadError, match="does not end"):
        list(frames.walk(data, len(data)))


def test_a_refusal_is_told_in_the_server_s_words():
    text = b"NOT_FOUND - no exchange"
    fields = struct.pack(">HB", 404, len(text)) + text + b"\0\x3c\0\x28"
    closed = frames.TWO.pack(*frames.CHANNEL_CLOSE) + fields
    assert frames.refusal(closed, 0, len(closed)) == "404 NOT_FOUND - no exchange"


# -- the loops -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"multiple": True}, {"backwards": True}])
def test_all_that_is_published_is_confirmed_and_arrives(start_broker, options):
    broker = start_broker(**options)
    result = prepare(Order(route(broker), 5000, 100))()
    assert result["records"] == 5000
    assert result["acknowledged"] > 0
    assert result["seconds"] > 0
    assert broker.acknowledged == 5000
    assert {struct.unpack(">HHQHB", header)[2:] for header in broker.headers} == {(100, 1 << 12, 2)}


@pytest.fixture(params=[FixedRate, PacedRate], ids=["python", "native"])
def at_rate(request, monkeypatch):
    """Both loads at a rate; they must report the same."""
    if request.param is PacedRate and program() is None:
        pytest.skip("the native load generator needs rustc")
    monkeypatch.setattr(load, "at_rate", lambda: request.param)


@pytest.mark.usefixtures("at_rate")
@pytest.mark.parametrize("options", [{}, {"multiple": True}, {"backwards": True}])
def test_at_a_rate_every_record_is_accounted_for(start_broker, options):
    broker = start_broker(**options)
    result = prepare(Order(route(broker), 500, 100, rate=5000, warmup=0.2))()
    for name in ("lag", "produce", "end_to_end"):
        assert result[name]["count"] == 400
        assert result[name]["p50"] <= result[name]["p99"] <= result[name]["maximum"]
    assert result["end_to_end"]["p50"] > 0
    assert result["achieved"] <= 5000 * 1.001
    assert 0 < result["generator"] < 10
    assert broker.acknowledged == 500
    assert {struct.unpack(">HHQHB", header)[2:] for header in broker.headers} == {(100, 1 << 12, 2)}


@pytest.mark.usefixtures("at_rate")
def test_more_than_the_socket_takes_at_once_goes_by_and_by(start_broker):
    result = prepare(Order(route(start_broker()), 4000, 4096, rate=4_000_000, warmup=0))()
    assert result["end_to_end"]["count"] == result["produce"]["count"] == 4000


@pytest.mark.usefixtures("at_rate")
def test_a_server_that_leaves_ends_a_run(start_broker):
    run = prepare(Order(route(start_broker(leaves_after=50)), 200, 100, rate=5000))
    with pytest.raises((LoadError, OSError), match=r"closed the (sender|receiver)|reset|Broken pipe"):
        run()


@pytest.mark.usefixtures("at_rate")
def test_a_server_that_falls_silent_ends_a_run(start_broker, monkeypatch):
    for module in (loops, rate):
        monkeypatch.setattr(module, "SILENCE", 0.2)
    run = prepare(Order(route(start_broker(silent_after=50)), 200, 100, rate=5000))
    with pytest.raises(LoadError, match="of 200 sends are answered, 50 of 200 records have arrived"):
        run()


def test_more_than_was_sent_fails_a_run(start_broker):
    with pytest.raises(LoadError, match="more have arrived"):
        prepare(Order(route(start_broker(copies=2)), 200, 100))()


@pytest.mark.usefixtures("at_rate")
def test_what_comes_twice_fails_a_run(start_broker):
    with pytest.raises(LoadError, match="arrived twice"):
        prepare(Order(route(start_broker(copies=2)), 200, 100, rate=5000))()


def test_without_a_compiler_the_load_is_python_s(monkeypatch, tmp_path):
    monkeypatch.setattr(paced, "_CACHE", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert (paced.at_rate(), paced.generator()) == (FixedRate, "Python")


def test_a_route_is_open_once_a_record_has_come(start_broker):
    assert open_route(route(start_broker()), 10) > 0


def test_confirms_count_in_any_order(start_broker):
    source = amqp.AmqpSource.blasting(route(start_broker()), 100)
    try:
        for tag, multiple, counted in [
            (3, False, 1),
            (1, False, 2),
            (2, True, 3),
            (2, False, 3),
            (4, True, 4),
        ]:
            source._confirm(tag, multiple)
            assert source.acknowledged == counted
    finally:
        source.close()


def test_a_server_that_refuses_is_quoted():
    near, far = socket.socketpair()
    client = amqp.Client.__new__(amqp.Client)
    client.socket, client._data = near, bytearray()
    with near, far:
        fields = struct.pack(">HB", 403, 7) + b"REFUSED" + bytes(4)
        far.sendall(frames.method(frames.CONNECTION_CLOSE, fields, 0))
        with pytest.raises(LoadError, match="403 REFUSED"):
            client.call(frames.method(frames.CHANNEL_OPEN, b"\0"), frames.CHANNEL_OPEN_OK)


class _Bytes(Source):
    """Every byte that comes back acknowledges a frame."""

    def _answers(self, buffer, filled):
        self.acknowledged += filled
        return filled


class _Nothing(Sink):
    def reply(self):
        raise NotImplementedError

    def _took(self, count, now):
        self.records += count
        return False

    def _answer(self):
        raise NotImplementedError


def test_silence_ends_a_run_and_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(loops, "SILENCE", 0.05)
    near, server = socket.socketpair()
    far, other = socket.socketpair()
    with near, server, far, other:
        server.sendall(b"\1\1\1")
        with pytest.raises(LoadError, match="3 of 10 sends are answered, 0 of 20 records have arrived"):
            loops.throughput(_Bytes(near, b"frame", 2, 4, None), _Nothing(far, None, 1 << 16), 10, 4)


def test_stamps_go_in_order_through_a_ring_that_is_smaller_than_the_run():
    near, server = socket.socketpair()
    with near, server:

        def stamp(slot, number, due):
            struct.pack_into("<QQ", slot, 0, number, due)

        source = _Bytes(near, bytes(16), 1, 4, stamp)
        assert source.send_stamped(11, lambda number: 100 * number) is False
        sent = server.recv(1 << 16)
        assert list(struct.iter_unpack("<QQ", sent)) == [(number, 100 * number) for number in range(11)]
