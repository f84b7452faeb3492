"""The comparison of servers in a row: its peers, as far as tests can check them without starting them."""

import json
import os
import sys

import pytest
from bench import fabric
from bench.chain.load import Order, prepare
from bench.core import report, versus
from bench.core.chain import Route
from bench.core.measure import DELIVERY_P50, REACHED, START_UP, THROUGHPUT, Sample
from bench.core.process import keep_to_cores
from bench.core.versus import Versus
from bench.peers.floor_chain import FloorChain
from bench.peers.kafka.mirror import MirrorMaker, mirror_properties
from bench.peers.maven import Jars
from bench.peers.rabbitmq import Federation
from bench.peers.rabbitmq.federation import downstream_definitions
from bench.peers.treecast import TreecastPeer
from bench.workloads.chain import ChainLatency, ChainThroughput
from rich.console import Console

from treecast.middleware.evaluation import rabbitmq


def rows(metric, workload="load", **values):
    taken = [
        Sample(peer, number, workload, metric, value)
        for peer, found in values.items()
        for number, value in enumerate(found)
    ]
    return report.summarise(taken, "", "")


@pytest.mark.parametrize(
    ("metric", "asked", "ours", "theirs", "reached"),
    [
        (THROUGHPUT, 2.0, 200, 100, True),
        (THROUGHPUT, 2.0, 199, 100, False),
        (DELIVERY_P50, 0.5, 1.0, 2.0, True),
        (DELIVERY_P50, 0.5, 1.1, 2.0, False),
        (DELIVERY_P50, 2.0, 2.0, 1.0, True),
        (DELIVERY_P50, None, 9.0, 1.0, None),
    ],
)
def test_ratios_are_held_against_what_is_asked_of_the_pair(metric, asked, ours, theirs, reached):
    found = rows(metric, two=[ours], one=[theirs])
    (ratio,) = versus.compare(found, [Versus("two", "one", {metric: asked})])
    assert (ratio.value, ratio.reached) == (ours / theirs, reached)


@pytest.mark.parametrize(("floor", "verdict", "share"), [(1.8, "no", 0.6), (2.7, "yes (floor)", 0.9)])
def test_a_ratio_counts_at_ninety_per_cent_of_the_floor(floor, verdict, share):
    found = rows(DELIVERY_P50, two=[3.0], one=[1.0], floor=[floor])
    (ratio,) = versus.compare(found, [Versus("two", "one", {DELIVERY_P50: 2.0}, "floor")])
    assert (ratio.verdict, round(ratio.share_of_floor, 6)) == (verdict, share)
    (bare,) = versus.compare(found, [Versus("two", "one", {DELIVERY_P50: 2.0}, "absent")])
    assert (bare.verdict, bare.share_of_floor) == ("no", None)


def test_no_ratio_counts_where_the_rounds_of_its_floor_lie_far_apart():
    found = rows(DELIVERY_P50, two=[1.0, 1.1], one=[1.0], floor=[0.1, 0.3])
    (ratio,) = versus.compare(found, [Versus("two", "one", {DELIVERY_P50: 2.0}, "floor")])
    assert (ratio.verdict, ratio.reached) == ("unsteady", None)


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_bare_loops_carry_every_record_once(hosts, tmp_path):
    floor = FloorChain(hosts, name="floor", parent=tmp_path)
    floor.start()
    try:
        for size in (100, 1024):
            run = prepare(Order(floor.route, 300, size, 1000))()
            assert run["records"] == 300  # a record that came twice, or not at all, fails the run
        assert len(floor.hosts()) == hosts
        keep_to_cores(floor.hosts())
        cores = sorted(os.sched_getaffinity(0))
        kept = [os.sched_getaffinity(pid) for host in floor.hosts() for pid in host]
        assert kept == [{cores[number % len(cores)]} for number in range(hosts)]
    finally:
        floor.stop()
    assert list(tmp_path.iterdir()) == []


def test_pairs_without_both_sides_are_left_out():
    found = rows(THROUGHPUT, two=[3.0], zero=[0.0])
    against = [Versus("two", who, {THROUGHPUT: 2.0}) for who in ("absent", "zero")]
    assert versus.compare(found, against) == []
    assert versus.compare(found, [Versus("two", "two", {})]) == []


def test_ratios_stand_in_every_form_of_the_report():
    found = rows(THROUGHPUT, two=[300, 500], one=[100])
    ratios = versus.compare(found, [Versus("two", "one", {THROUGHPUT: 2.0})])
    assert "| load | throughput | two | one | 4x | ≥ 2x | yes |" in versus.as_markdown(ratios)
    assert json.loads(json.dumps(versus.as_json(ratios)))[0]["reached"] is True
    console = Console(record=True, width=150)
    console.print(versus.as_table(ratios))
    assert "4x" in console.export_text()
    plain = report.as_markdown(found, ["two", "one"], ratios=False)
    assert plain.splitlines()[0] == "| workload | metric | two | one |"
    assert "| 400 (300-500) | 100 |" in plain


def test_many_names_are_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    from bench.core import plot

    names = [*fabric.OURS, fabric.RABBITMQ, fabric.MIRROR, fabric.FLOOR_ONE, fabric.FLOOR_TWO]
    found = rows(THROUGHPUT, **{name: [1e3, 2e3] for name in names})
    target = tmp_path / "p.svg"
    plot.draw(found, names, target, "title", fabric.PANELS, fabric.OURS)
    drawn = target.read_text()
    colours = plot._colours(names, fabric.OURS)
    assert len(set(colours.values())) == len(names)
    assert all(colour in drawn for colour in colours.values())
    plot.draw([], names, tmp_path / "none.svg", "title")
    assert not (tmp_path / "none.svg").exists()


def test_the_issue_s_demands_are_asked():
    asked = {(pair.ours, pair.theirs): pair.asked for pair in fabric.AGAINST}
    assert asked[fabric.TWO, fabric.ONE][DELIVERY_P50] == 2.0
    for ours, theirs in [(fabric.TWO_FSYNC, fabric.RABBITMQ), (fabric.TWO, fabric.MIRROR)]:
        assert asked[ours, theirs][THROUGHPUT] == 2.0
        assert asked[ours, theirs][DELIVERY_P50] == 0.5


def test_peers_have_the_names_that_are_compared():
    found = fabric.peers(fabric.PEERS, sys.executable, None)
    floors = [fabric.FLOOR_ONE, fabric.FLOOR_TWO]
    assert [peer.name for peer in found] == [*fabric.OURS, fabric.RABBITMQ, fabric.MIRROR, *floors]
    assert [peer.name for peer in found if peer.is_floor] == floors
    assert [peer.settings()["durability"] for peer in found[:3]] == [
        "fsync = never",
        "fsync = never",
        "fsync = batch",
    ]
    with pytest.raises(KeyError):
        fabric.peers(["pulsar"], sys.executable, None)


def test_who_does_not_keep_up_is_named():
    loads = fabric.workloads(10, (100,), (1000,))
    slow = fabric.overloaded(rows(REACHED, loads[-1].name, fast=[999], slow=[800, 900]), loads)
    assert slow == {("latency at 1,000/s, 100 B", "slow"): 850}
    assert fabric.overloaded(rows(START_UP, loads[-1].name, fast=[1]), loads) == {}


def test_a_ratio_with_an_overloaded_peer_counts_neither_way():
    found = rows(DELIVERY_P50, two=[1.0], one=[100.0])
    against = [Versus("two", "one", {DELIVERY_P50: 0.5})]
    for slow in ("one", "two"):
        (ratio,) = versus.compare(found, against, {("load", slow): 1.0})
        assert (ratio.value, ratio.reached, ratio.verdict) == (0.01, None, "overloaded")
    (ratio,) = versus.compare(found, against, {("another load", "one"): 1.0})
    assert ratio.reached is True


def test_workloads_have_names_of_their_own():
    names = [load.name for load in fabric.workloads(10, (100, 1024))]
    assert len(set(names)) == len(names) == 6


def test_a_route_survives_the_way_to_the_load_process():
    route = Route("amqp", ("127.0.0.1", 1), ("127.0.0.1", 2), "x", "q")
    assert Route.from_json(json.loads(json.dumps(route.as_json()))) == route


def test_a_run_is_as_long_as_asked_and_no_larger_than_a_disk_likes():
    load = ChainThroughput(1024, 10)
    assert load._records(1000) == 10_000
    assert load._records(1e9) * 1024 <= 512 << 20
    assert ChainLatency(1024, 5000, 10).name == "latency at 5,000/s, 1 KiB"


def test_what_is_missing_is_said_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(rabbitmq, "DEBIAN", tmp_path / "nothing")
    monkeypatch.setattr(Jars, "present", False)
    assert "apt-get install rabbitmq-server" in Federation().missing()
    assert MirrorMaker().missing() == "Apache Kafka needs java and mvn on the PATH"
    (tmp_path / "rabbitmq-server").touch()
    monkeypatch.setattr(rabbitmq, "DEBIAN", tmp_path / "rabbitmq-server")
    assert "epmd" in Federation().missing()
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert Federation().missing() == ""


def test_the_downstream_exchange_is_federated_and_its_queue_durable():
    found = downstream_definitions(5000)
    (queue,), (binding,) = found["queues"], found["bindings"]
    (upstream,), (policy,) = found["parameters"], found["policies"]
    assert queue["durable"]
    assert "x-queue-type" not in queue["arguments"]
    assert (binding["source"], binding["destination"]) == (found["exchanges"][0]["name"], queue["name"])
    assert upstream["value"]["uri"].endswith("@127.0.0.1:5000")
    assert upstream["value"]["ack-mode"] == "on-confirm"
    assert policy["definition"]["federation-upstream"] == upstream["name"]


def test_mirror_maker_copies_one_way_and_keeps_the_name():
    found = mirror_properties("h:1", "h:2")
    assert (found["a.bootstrap.servers"], found["b.bootstrap.servers"]) == ("h:1", "h:2")
    assert (found["a->b.enabled"], found["b->a.enabled"]) == ("true", "false")
    assert found["a->b.replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert found["a->b.producer.override.acks"] == "all"


def test_a_daemon_s_ready_line_is_read(tmp_path):
    peer = TreecastPeer(parent=tmp_path)
    assert peer.ready() == {}
    peer._folder = tmp_path
    log = tmp_path / "server.log"
    log.write_text("something = else\n")
    assert peer.ready() == {}
    log.write_text("warning\nready name=a kafka=127.0.0.1:1 control=127.0.0.1:2 fabric=127.0.0.1:3\nmore\n")
    assert peer.ready()["control"] == "127.0.0.1:2"
