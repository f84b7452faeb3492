"""The input of the Spark examples depends on a seed and is easy to find."""

from __future__ import annotations

from collections import Counter

from examples.mobility_tracking.city import City
from examples.spark.mobility.__main__ import judge, sightings
from examples.spark.telemetry.switches import ENOUGH, LIMIT_CELLS, LIMIT_US, WINDOW_S, Network


def test_telemetry_is_dull_but_for_what_was_made_to_go_wrong() -> None:
    network = Network(seed=2, seconds=120, rate=20, anomalies=4)
    reports = list(network.reports())
    assert reports == list(Network(seed=2, seconds=120, rate=20, anomalies=4).reports())
    of_interest = [one for one in reports if one["latency"] > LIMIT_US or one["depth"] > LIMIT_CELLS]
    assert len(of_interest) < len(reports) / 10
    windows = Counter((one["switch"], one["t"] // WINDOW_S * WINDOW_S) for one in of_interest)
    told = {window for window, count in windows.items() if count >= ENOUGH}
    for one in network.anomalies:
        mine = {(switch, begin) for switch, begin in told if switch == one.switch}
        assert any(begin < one.end and one.begin < begin + WINDOW_S for _, begin in mine)


def test_every_way_can_be_followed_in_the_sightings() -> None:
    cities = {"cloud 1": City(5, 8, 30), "cloud 2": City(6, 8, 30)}
    last: dict[tuple[str, str], tuple[str, float]] = {}
    rows = []
    for _, one in sorted(sightings(cities), key=lambda row: row[1]["time"]):
        who = (one["cloud"], one["address"])
        if who in last and last[who][0] != one["place"]:
            way = {"cloud": who[0], "address": who[1], "origin": last[who][0], "target": one["place"]}
            rows.append(way | {"speed": 1.0})
        last[who] = one["place"], one["time"]
    true, found, _ = judge(cities, rows)
    assert true.keys() == found.keys()
    assert true
