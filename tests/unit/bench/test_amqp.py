"""The AMQP load against a stand-in and against the bare loop, and the reading of PerfTest's summary."""

from contextlib import closing

import pytest
from bench import amqp as comparison
from bench.core.measure import REACHED, Sample
from bench.core.report import summarise
from bench.peers.floor_amqp import FloorAmqp
from bench.workloads import amqp_load
from bench.workloads.amqp import AmqpLatency, AmqpThroughput, sustained_rate
from bench.workloads.perf_test import PerfTest, parse
from tests.unit.bench.amqp_broker import AmqpBroker

from treecast.middleware.load.frames import LoadError


def order(address, **further):
    return {
        "host": address[0],
        "port": address[1],
        "far": list(address),
        "exchange": "bench",
        "kind": "direct",
        "queues": ["bench-0"],
        "size": 100,
        "persistent": True,
        "prefetch": 100,
        "window": 50,
        "consumes": True,
        "check": True,
        "messages": 1000,
        **further,
    }


@pytest.fixture
def start_broker():
    started = []

    def start(**options):
        started.append(AmqpBroker(**options))
        return started[-1].address

    yield start
    for broker in started:
        broker.close()


@pytest.fixture(scope="module")
def floor(tmp_path_factory):
    peer = FloorAmqp(tmp_path_factory.mktemp("floor"))
    peer.start()
    yield peer.address
    peer.stop()


def run(address, **further):
    given = order(address, **further)
    with closing(amqp_load.Load(given)) as load:
        return load.latency() if "rate" in further else load.run()


@pytest.mark.parametrize("options", [{}, {"multiple": True}, {"backwards": True}])
def test_confirms_of_any_kind_are_counted(start_broker, options):
    found = run(start_broker(**options))
    assert found["records"] == 1000
    assert found["seconds"] > 0


def test_a_message_that_comes_twice_is_an_error(start_broker):
    with pytest.raises(LoadError, match="came, not 1000"):
        run(start_broker(copies=2))


def test_a_server_that_leaves_is_an_error(start_broker):
    with pytest.raises(LoadError, match="closed the connection"):
        run(start_broker(leaves_after=100))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("queues", [1, 4])
@pytest.mark.parametrize("size", [12, 5000])
def test_the_bare_loop_delivers_what_was_published(floor, persistent, queues, size):
    names = [f"bench-{number}" for number in range(queues)]
    assert run(floor, persistent=persistent, queues=names, size=size)["records"] == 1000


def test_bytes_that_are_counted_unread_are_as_many(floor):
    assert run(floor, check=False, persistent=False)["records"] == 1000


@pytest.mark.parametrize("persistent", [False, True])
def test_latencies_are_those_of_all_messages(floor, persistent):
    found = run(floor, rate=5000, check=False, persistent=persistent)
    assert found["records"] == 1000
    assert 0 < found["p50"] <= found["p99"]


def test_other_bytes_than_those_sent_are_an_error(floor):
    with closing(amqp_load.Load(order(floor))) as load:
        load.consumers[0]._body = b"y" * 100
        with pytest.raises(LoadError, match="not what was sent"):
            load.run()


def test_the_sustained_rate_is_the_last_step_of_the_ladder(monkeypatch):
    monkeypatch.setattr(AmqpLatency, "sustains", lambda self, peer: self.rate <= 3200)
    assert sustained_rate(object(), AmqpLatency(2000, 1.0)) == 3125


def test_what_did_not_keep_up_is_named():
    load = AmqpLatency(1000, 1.0)
    rows = summarise(
        [Sample("a", 1, load.name, REACHED, 990), Sample("b", 1, load.name, REACHED, 970)], "", ""
    )
    assert comparison.overloaded(rows, [load, AmqpThroughput(1, 5)]) == {(load.name, "b"): 970}


SUMMARY = """test stopped (Reached time limit)
id: test-1, sending rate avg: 14743 msg/s
id: test-1, receiving rate avg: 14,674 msg/s
id: test-1, consumer latency min/median/75th/95th/99th/max 943/30353/40328/55368/68124/85883 µs
id: test-1, confirm latency min/median/75th/95th/99th/max 6527/58101/66448/82136/121433/135627 µs
"""


def test_the_summary_of_perf_test_is_read():
    found = parse(SUMMARY)
    assert (found.rate, found.p50, found.p99) == (14674, 30.353, 68.124)
    assert parse(SUMMARY.replace("/max 943", " 943").replace("85883 µs", "85883 ms")).p50 == 30353


def test_a_summary_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="no summary"):
        parse("test stopped")


def test_a_given_class_path_takes_the_place_of_the_jars(require):
    require(not PerfTest(1, False, class_path="x").missing(), "needs java")
    assert PerfTest(1, True).arguments(("h", 1), "q")[-6:] == ["-f", "persistent", "-c", "1000", "-q", "1000"]
    assert PerfTest(1, False).arguments(("h", 1), "q")[-1] == "-a"
