"""Bursts without a site: the cases, and both ends' records of a batch."""

from __future__ import annotations

import argparse
import socket
from collections import Counter

import pytest
from tests.fault.hosts import burst_batches, burst_kafka
from tests.fault.hosts.burst import add_arguments, cases, chosen, label
from tests.fault.hosts.ledger import Lane, Ledger, differences
from tests.fault.hosts.result import Bursts
from tests.fault.hosts.site import zoned, zones_of

from treecast.middleware.dataplane.lab.description import parse

pytestmark = pytest.mark.fault


def given(*words: str) -> Bursts:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return chosen(parser.parse_args(words))


def names(bursts: Bursts) -> list[list[str]]:
    return [[case.name for case in group] for group in cases(bursts)]


def test_all_choices_are_combined() -> None:
    bursts = given("--receivers", "2,8", "--mb", "100", "--partitions", "1,8", "--kind", "both")
    found = [name for group in names(bursts) for name in group]
    assert len(found) == len(set(found)) == 12  # MQTT has no partitions
    assert "8 hosts, 100 MB, kafka, standing, 8 partitions" in found
    assert "2 hosts, 100 MB, mqtt, fresh" in found


def test_a_case_has_others_beside_it() -> None:
    options = ("--receivers", "8", "--start", "fresh")
    assert names(given(*options, "--compare")) == [
        [
            "1 host by unicast, 100 MB, kafka, fresh",
            "8 hosts by unicast, 100 MB, kafka, fresh",
            "8 hosts, 100 MB, kafka, fresh",
        ]
    ]
    assert names(given(*options, "--slow", "0.1")) == [
        ["8 hosts, 100 MB, kafka, fresh", "8 hosts, 100 MB, kafka, fresh, one at 0.1"]
    ]


def test_hosts_are_spread_over_zones() -> None:
    bursts = given("--receivers", "11", "--zones", "3", "--carrier", "relay", "--start", "fresh")
    assert names(bursts) == [["11 hosts in 3 zones by relay, 100 MB, kafka, fresh"]]
    zones = zones_of([f"h{number}" for number in range(1, 13)], 3)
    assert Counter(zones.values()) == {"zone1": 4, "zone2": 4, "zone3": 4}
    found = parse(zoned(zones), "the site")
    assert [link.between for link in found.links[:3]] == [
        (zone, "core") for zone in ("zone1", "zone2", "zone3")
    ]


def test_a_kept_run_is_known_by_all_that_was_asked_for() -> None:
    assert label(given("--receivers", "2")) != label(given("--receivers", "2,8")) == label(Bursts())
    assert "/" not in label(Bursts())


def test_both_ends_note_the_same_of_a_batch() -> None:
    sent, read = burst_kafka.Ledger(), burst_kafka.Ledger()
    encoder = burst_batches.Encoder("t", 3, 100)
    with socket.create_server(("127.0.0.1", 0)) as server:
        fetching = burst_kafka.Fetching(server.getsockname(), "t", 0, read)
        for first in (0, 3, 6):
            data, crc = encoder.data(first)
            sent.lane(burst_batches.PRODUCER, "t-0").note_run(first, first, 3, crc)
            assert fetching.note(first, memoryview(data)) == 3
        assert differences(sent, read, "h2") == []
        assert read.count == 9
        fetching.note(6, memoryview(data))
        assert "do not follow" in differences(sent, read, "h2")[0]
        damaged = data[:-5] + b"?" + data[-4:]
        fetching.note(9, memoryview(damaged))
        assert "damaged" in differences(sent, read, "h2")[0]
        fetching.close()


def test_a_batch_that_is_left_out_is_missed() -> None:
    sent, read = Lane(), Lane()
    for first in (0, 3, 6):
        sent.note_run(first, first, 3, first)
        if first != 3:
            read.note_run(first, first, 3, first)
    found = differences(Ledger({"1/t-0": sent}), Ledger({"1/t-0": read}), "h2")
    assert found == ["h2 1/t-0: 1 records do not follow, first 3 from 6 at 6 after 2 at 2"]
