"""The generators against a server that keeps all frames, and against one that replies with errors."""

import io
import json
import socket
import struct
import threading

import pytest
from rich.console import Console

from treecast.middleware.load import BenchOptions, LoadError, as_json, as_table, frames, run_bench
from treecast.middleware.load import __main__ as process
from treecast.middleware.load.connection import Connection, serves
from treecast.middleware.load.latency import LatencyRun
from treecast.middleware.load.payload import make_batch, records_in
from treecast.middleware.load.produce import Blaster
from treecast.middleware.model.records import Compression
from treecast.middleware.wire.record_batch import read_header, read_records


def options(peer, **changes):
    host, port = peer.address
    return BenchOptions(**{"host": host, "port": port, "records": 5000, "batch_bytes": 2048, **changes})


def test_records_in_a_batch_fill_it_and_no_more():
    for size in (1, 100, 1024, 20_000):
        count = records_in(16_384, size)
        assert len(make_batch(count, size, 0).data) <= 16_384 or count == 1
        assert len(make_batch(count + 1, size, 0).data) > 16_384


def test_make_batch_holds_what_it_says():
    batch = make_batch(7, 50, 1234, Compression.ZSTD)
    header = read_header(batch.data, 0)
    records = read_records(batch.data, 0, header)
    assert [len(record.value) for record in records] == [50] * 7
    assert {record.timestamp for record in records} == {1234}
    assert len({record.value for record in records}) == 7


@pytest.mark.parametrize("connections", [1, 3])
def test_produce_then_fetch_counts_every_record(floor, connections):
    given = options(floor, connections=connections, window=3)
    produced = run_bench("produce", given)
    assert produced.records >= 5000 - given.records_per_batch("produce")
    assert produced.records == produced.requests * given.records_per_batch("produce")
    for equal in (False, True):
        fetched = run_bench("fetch", options(floor, connections=connections, equal_batches=equal))
        assert (fetched.records, fetched.bytes) == (produced.records, produced.bytes)
        assert fetched.requests >= connections


@pytest.mark.parametrize("equal", [False, True])
def test_fetch_in_passes_reads_all_as_often(floor, equal):
    produced = run_bench("produce", options(floor, connections=2))
    fetched = run_bench("fetch", options(floor, connections=2, equal_batches=equal, passes=3))
    assert (fetched.records, fetched.bytes) == (3 * produced.records, 3 * produced.bytes)


def test_fetch_in_small_steps_reads_the_same(floor):
    produced = run_bench("produce", options(floor))
    for equal in (False, True):
        fetched = run_bench("fetch", options(floor, max_bytes=5000, equal_batches=equal))
        assert fetched.bytes == produced.bytes
        assert fetched.requests == -(-produced.requests // 2)  # two batches of 2 KiB fit into 5000 bytes


def test_fetch_refuses_a_topic_that_is_not_of_equal_batches(floor):
    run_bench("produce", options(floor, batch_bytes=4096))
    with pytest.raises(LoadError, match="in batches of"):
        run_bench("fetch", options(floor, equal_batches=True))


def test_fetch_of_an_empty_topic_says_what_to_do(floor):
    with pytest.raises(LoadError, match="fill it first"):
        run_bench("fetch", options(floor))


def test_latency_counts_every_request_from_its_intended_time(floor):
    given = options(floor, records=400, rate=20_000, batch_records=2, consume=False, warmup=0.25)
    result = run_bench("latency", given)
    assert (result.requests, result.records) == (200, 400)
    assert result.produce.count == result.lag.count == 150
    assert result.end_to_end is None
    assert 0 <= result.lag.p50 <= result.produce.p50
    assert result.produce.p50 <= result.produce.p99 <= result.produce.maximum
    with Connection(given.host, given.port) as connection:
        assert connection.offset(given.topic, 0) == 400


def test_result_is_shown_and_written(floor):
    for kind, given in (
        ("produce", options(floor)),
        ("fetch", options(floor)),
        ("latency", options(floor, topic="other", records=100, rate=10_000, consume=False)),
    ):
        result = run_bench(kind, given)
        text = io.StringIO()
        Console(file=text, width=120).print(as_table(kind, given, result))
        assert ("p99.9" if kind == "latency" else f"{result.records:,}") in text.getvalue()
        document = json.loads(json.dumps(as_json(kind, given, result)))
        assert document["kind"] == kind
        assert document["result"]["records"] == result.records


def test_load_process_waits_for_its_go(floor, monkeypatch, capsys):
    host, port = floor.address
    order = {"kind": "produce", "options": {"host": host, "port": port, "records": 1000}}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(order) + "\ngo\n"))
    assert process.main() == 0
    ready, result = capsys.readouterr().out.splitlines()
    assert ready == "ready"
    records, requests = (json.loads(result)["result"][key] for key in ("records", "requests"))
    assert (records, requests) == (1036, 7)  # 148 records of 100 B fit into 16 KiB


def test_load_process_tells_what_went_wrong(monkeypatch, capsys):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        order = {"kind": "fetch", "options": {"port": unused.getsockname()[1]}}
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(order) + "\ngo\n"))
        assert process.main() == 1
    assert "refused" in json.loads(capsys.readouterr().out)["error"]


def test_unknown_compression_names_the_known():
    with pytest.raises(LoadError, match="zstd"):
        run_bench("latency", BenchOptions(compression="brotli", port=_closed_after_topic()))


# -- servers with their own replies


def _serve_once(answers, *, close=True):
    """Starts a server that sends `answers[n]` after the n-th frame of one connection; returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def run():
        connection, _ = listener.accept()
        with listener, connection, connection.makefile("rb") as stream:
            for answer in answers:
                head = stream.read(4)
                if len(head) < 4:
                    return
                stream.read(int.from_bytes(head, "big"))
                connection.sendall(answer)
            if not close:
                stream.read()

    threading.Thread(target=run, daemon=True).start()
    return port


def _closed_after_topic():
    created = struct.pack(">iii", 0, 0, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">hh", 0, -1)
    topic = struct.pack(">h", 0) + struct.pack(">h", 14) + b"treecast-bench" + b"\0" + struct.pack(">i", 1)
    topic += struct.pack(">hiiii", 0, 0, 1, 0, 0)
    metadata = struct.pack(">iiihii", 0, 0, 0, -1, 1, 1) + topic
    offset = struct.pack(">ii", 0, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iihqq", 1, 0, 0, -1, 0)
    framed = [struct.pack(">i", len(answer)) + answer for answer in (created, metadata, offset, offset)]
    return _serve_once(framed)


def _blaster(port, **changes):
    batch = make_batch(1, 10, 0)
    return Blaster("127.0.0.1", port, "t", batch.data, 1, **{"requests": 3, "window": 1, **changes})


def _produce_answer(error):
    answer = bytearray(frames.produce_response("t", 0, 0))
    struct.pack_into(">h", answer, frames.produce_error_position("t"), error)
    return bytes(answer)


def test_blaster_stops_at_the_first_error():
    port = _serve_once([_produce_answer(0), _produce_answer(10)], close=False)
    with pytest.raises(LoadError, match="error 10"):
        _blaster(port).run()


def test_blaster_says_when_the_server_goes_away():
    port = _serve_once([_produce_answer(0)])
    with pytest.raises((LoadError, ConnectionError)):
        _blaster(port).run()


def test_blaster_takes_answers_in_pieces():
    one = _produce_answer(0)
    port = _serve_once([one[:5], one[5:] + one[:20], one[20:] + one], close=False)
    assert _blaster(port, window=3).run().requests == 3


def test_acknowledgements_cannot_be_left_out():
    with pytest.raises(ValueError, match="acks"):
        _blaster(1, acks=0)


def test_latency_run_stops_at_an_error():
    port = _serve_once([_produce_answer(3)], close=False)
    batch = make_batch(1, 10, 0)
    run = LatencyRun(
        "127.0.0.1",
        port,
        "t",
        batch.data,
        1,
        rate=1000,
        requests=5,
        start_offset=0,
        consume=False,
    )
    with pytest.raises(LoadError, match="error 3"):
        run.run()


def test_a_server_that_says_nothing_useful_does_not_serve():
    assert not serves("127.0.0.1", _serve_once([]))
    assert not serves("127.0.0.1", _serve_once([struct.pack(">iih", 6, 0, 35)]))
