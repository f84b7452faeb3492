"""Plans of epochs, findings about their data, and advice: all pure."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.network import build, with_hosts
from treecast.middleware.routing.virtual.candidates import PRESENT, Judged, Trial
from treecast.spark_connectors.pipeline import planning, quality
from treecast.spark_connectors.pipeline.advising import (
    LIVE,
    REPLAY,
    Bench,
    Problem,
    SentSet,
    advice_of,
    content_digest,
    network_of,
    weights_of,
)
from treecast.spark_connectors.pipeline.planning import Plan, Range, Settings, Topology
from treecast.spark_connectors.pipeline.quality import Boot, findings, missing

NETWORK = with_hosts(build(["s0", "s1", "s2"], [(0, 1), (1, 2)]))


def plan(epoch: int = 5) -> Plan:
    ranges = planning.ranges_of(topics.SENDS, [(1, 4, 9), (0, 2, 2)])
    places = (Topology("lab", 0, 3), Topology("other", 0, 4))
    return Plan(epoch, 1_000_000, 301_000_000, ranges, places, Settings(), "q", 2)


def topology(**changed: object) -> pb.NetworkTopology:
    ends = [node for pair in NETWORK.ends for node in pair]
    message = pb.NetworkTopology(
        v=1, network="lab", names=NETWORK.names, hosts=NETWORK.hosts, ends=ends, rule_limit=2, rule_version=7
    )
    message.version = topics.topology_version(message.names, message.hosts, message.ends, 2)
    for name, value in changed.items():
        setattr(message, name, value)
    return message


SETS = (
    SentSet("s0/0", ("s1/0", "s2/0"), 30, 10),
    SentSet("s1/0", ("s0/0", "elsewhere"), 6, 2),
    SentSet("elsewhere", ("s0/0",), 9, 3),
)


def test_a_plan_survives_its_file() -> None:
    one = plan()
    assert planning.decode(planning.encode(one)) == one
    assert one.ranges == (Range(topics.SENDS, 0, 2, 3), Range(topics.SENDS, 1, 4, 10))
    assert one.valid_until == 601_000_000
    with pytest.raises(ValueError, match="epoch"):
        planning.decode(b"{}")


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=20))
def test_epochs_rise_whatever_clocks_say(ends: list[int]) -> None:
    last, found = 0, []
    for end in ends:
        last = planning.epoch_after(last, end)
        found.append(last)
    assert found == sorted(set(found))


def test_every_third_interval_judges() -> None:
    assert [seq for seq in range(1, 10) if planning.held_out(seq)] == [2, 5, 8]


def test_weights_leave_out_what_labels_cannot_reach() -> None:
    at = {name: NETWORK.node(name) for name in ("s0/0", "s1/0", "s2/0")}
    first, second = (at["s0/0"], (at["s1/0"], at["s2/0"])), (at["s1/0"], (at["s0/0"],))
    assert weights_of(NETWORK, SETS, held_out=False) == {first: 20.0, second: 4.0}
    assert weights_of(NETWORK, SETS, held_out=True) == {first: 10.0, second: 2.0}


def test_a_bench_says_why_nothing_can_be_tried() -> None:
    value = topics.encode(topology())
    assert Bench(Problem("lab", value, SETS)).why_not == ""
    assert "nothing was sent" in Bench(Problem("lab", value, ())).why_not
    unjudged = (SentSet("s0/0", ("s1/0",), 5, 0),)
    assert "that judge" in Bench(Problem("lab", value, unjudged)).why_not
    with pytest.raises(ValueError, match="damaged"):
        network_of(pb.NetworkTopology(names=["a"], hosts=[9]))


def test_advice_carries_its_lineage_and_a_replay_has_the_same_digest() -> None:
    one = Problem("lab", topics.encode(topology()), SETS)
    bench = Bench(one)
    judged = [bench.run(trial) for trial in (Trial(PRESENT, 0.0, 0), Trial("broadcast", 0.0, 0))]
    live = advice_of(plan(), "p", one, judged, ["s2/0"], LIVE)
    again = advice_of(plan(), "p", one, list(reversed(judged)), ["s2/0"], REPLAY)
    assert live is not None
    assert again is not None
    assert live.labels_expected < live.labels_now
    assert (live.strategy, live.base_rule_version, live.topology_version) == (
        "broadcast",
        7,
        topology().version,
    )
    assert [(one.topic, one.partition, one.first, one.end) for one in live.input] == [
        (topics.SENDS, 0, 2, 3),
        (topics.SENDS, 1, 4, 10),
        (topics.TOPOLOGY, 0, 3, 4),
    ]
    assert (live.packets, list(live.hosts_missing), live.hosts_expected) == (45, ["s2/0"], 3)
    assert (live.source, again.source) == (LIVE, REPLAY)
    assert content_digest(live) == content_digest(again)
    other = advice_of(plan(6), "p", one, judged, ["s2/0"], LIVE)
    assert other is not None
    assert content_digest(other) != content_digest(live)


def test_without_a_possible_trial_there_is_no_advice() -> None:
    one = Problem("lab", topics.encode(topology()), SETS)
    failed = [Judged(Trial(PRESENT, 0.0, 0), 0.0, 0, 0, (), "unreachable")]
    assert advice_of(plan(), "p", one, failed, [], LIVE) is None


def boot(**changed: object) -> Boot:
    sound = {"host": "a", "boot": 1, "first": 3, "last": 7, "different": 5, "records": 5}
    return Boot(**{**sound, "ahead": 1.0, "behind": 2.0, "sampled": 1.0, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "check", "value"),
    [
        (boot(different=3, records=3), "intervals lost", 2.0),
        (boot(records=8), "intervals repeated", 3.0),
        (boot(ahead=600.0), "clock differs", 600.0),
        (boot(behind=3600.0), "late", -3600.0),
        (boot(sampled=0.25), "sampled", 0.25),
    ],
)
def test_every_check_names_its_host(one: Boot, check: str, value: float) -> None:
    (found,) = findings([one], [], [])
    assert (found.check, found.host, found.value) == (check, "a", value)


def test_sound_data_has_no_findings_and_others_are_counted() -> None:
    assert findings([boot(), boot(host="b", boot=2)], [], []) == []
    found = findings([], [("x", "bad"), ("x", "bad"), ("y", "bad")], missing(["a", "b"], ["b", "c"]))
    assert [(one.check, one.host, one.value) for one in found] == [
        ("host missing", "a", 1.0),
        ("impossible", "x", 2.0),
        ("impossible", "y", 1.0),
    ]
    assert quality.CLOCK_SECONDS == 60.0
