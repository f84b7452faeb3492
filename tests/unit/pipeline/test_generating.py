"""Invented telemetry is sound, the same for a seed, and faulty where it says so; minutes of it are plain
sums.
"""

from __future__ import annotations

from collections import Counter

import pytest

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.spark_connectors.pipeline import rows
from treecast.spark_connectors.pipeline.generating import (
    Spec,
    fault_of,
    host_name,
    interval,
    receivers_of,
    records_of,
)
from treecast.spark_connectors.pipeline.measuring import MeasureSettings

SPEC = Spec(hosts=60, publishers=120, rows=60 * 4 * 40)


def records(host: int) -> list[tuple[int, int, int, pb.TelemetryInterval]]:
    return [
        (partition, offset, came, topics.decode(pb.TelemetryInterval, value))
        for seq in range(1, SPEC.intervals + 1)
        for partition, offset, came, value in records_of(SPEC, host, seq)
    ]


def test_rows_are_intervals_times_sets() -> None:
    assert (SPEC.sets, SPEC.intervals) == (4, 40)
    found = [one for *_, one in records(0)]
    assert sum(len(one.sets) for one in found) == SPEC.sets * SPEC.intervals
    assert Spec().intervals * Spec().sets * Spec().hosts == Spec().rows


def test_intervals_are_sound_and_the_same_for_a_seed() -> None:
    for host in range(SPEC.hosts):
        one = interval(SPEC, host, 7)
        assert rows.fault_of(one) == ""
        assert topics.encode(one) == topics.encode(interval(SPEC, host, 7))
        for each in one.sets:
            assert list(each.receivers) == sorted(set(each.receivers))
            assert host_name(host) not in each.receivers
    assert topics.encode(interval(SPEC, 1, 7)) != topics.encode(interval(Spec(60, 120, seed=2), 1, 7))


def test_some_receivers_change_from_hour_to_hour() -> None:
    wide = Spec(hosts=60, publishers=600)
    moved = [
        number for number in range(20) if receivers_of(wide, 3, number, 0) != receivers_of(wide, 3, number, 1)
    ]
    assert set(moved) <= {9, 19}
    assert moved


@pytest.mark.parametrize("host", [0, 17, 23, 31])
def test_a_host_has_the_faults_that_it_has(host: int) -> None:
    fault, found = fault_of(host), records(host)
    seqs = Counter(one.seq for *_, one in found)
    assert {seq for seq in range(1, 41) if not seqs[seq]} == ({20, 40} if fault.loses else set())
    assert {seq for seq, count in seqs.items() if count > 1} == ({30} if fault.repeats else set())
    ahead = {round((one.to_us - came) / 1e6) for _, _, came, one in found}
    assert ahead <= {fault.ahead, fault.ahead - 5, 0, -5}
    assert (600 in ahead) == (host == 17)


def test_an_offset_is_used_once() -> None:
    places = [(partition, offset) for host in range(SPEC.hosts) for partition, offset, *_ in records(host)]
    assert len(places) == len(set(places))


def test_a_minute_counts_a_share_of_sets_in_full() -> None:
    message = interval(SPEC, 0, 1)
    value = topics.encode(message)
    (first, *_) = rows.sends_of_slot(value, 60)
    slot, host, zone, carrier, name, receivers, packets, size, header, labels = first
    listed = message.sets[0]
    assert (slot, host, zone, carrier, receivers) == (60, "h00000", "z0", "labels", list(listed.receivers))
    assert (name, packets, size) == (rows.set_id(receivers), listed.packets, listed.bytes)
    assert (header, labels) == (listed.header_bytes, listed.hop_labels)
    message.sampled = 0.25
    (again, *_) = rows.sends_of_slot(topics.encode(message), 60)
    assert again[6:] == (4 * packets, 4 * size, 4 * header, 4 * labels)
    (stream, *_) = rows.streams_of_slot(value, 60)
    assert stream[:4] == (60, "h00000", "p0-0", listed.receivers[0])
    assert list(rows.sends_of_slot(b"\xff", 60)) == list(rows.streams_of_slot(b"\xff", 60)) == []


def test_a_minute_is_in_each_window_that_covers_it() -> None:
    one = MeasureSettings(length=300, step=60)
    assert one.windows_of([600]) == [360, 420, 480, 540, 600]
    assert [window for window in range(0, 1200, 60) if 600 in one.slots_of([window])] == one.windows_of([600])
    assert one.windows_of([600, 660]) == [360, 420, 480, 540, 600, 660]
