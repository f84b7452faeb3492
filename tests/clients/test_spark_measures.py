"""Tables by minute and by window with a real Spark: what was sent, what changes, what is wrong; and the same
whether intervals came in time, late, twice, or from a host whose clock is wrong."""

from __future__ import annotations

import importlib.util
import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.clients.test_spark_pipeline import ROOT, run

ROW = dict[str, Any]
STEP, COUNT = 600, 12
LENGTH = 3 * STEP
START = 1_790_000_000 // 7200 * 7200
ZONES = {"a": "east", "b": "east", "c": "west", "d": "west"}


@pytest.fixture(scope="module")
def found(
    require_tool: Callable[[str], str],
    require: Callable[[bool, str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    require_tool("java")
    require(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")
    folder = tmp_path_factory.mktemp("measures")
    said = run(folder, str(ROOT / "tests/clients/spark/measures.py"), str(folder))
    (line,) = [line for line in said.splitlines() if line.startswith("FOUND ")]
    results: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return results


def sent(host: str, seq: int) -> tuple[list[str], int]:
    """The plain reference: receivers and packets of an interval."""
    others = [one for one in ZONES if one != host]
    if host == "a":
        return others, 10 * seq
    return (others[:1] if seq <= COUNT // 2 else others[-1:]), 10


def in_window(start: int) -> list[tuple[str, list[str], int]]:
    """Returns (host, receivers, packets) of the intervals in a window."""
    seqs = [seq for seq in range(1, COUNT + 1) if start <= START + (seq - 1) * STEP < start + LENGTH]
    return [(host, *sent(host, seq)) for seq in seqs for host in ZONES]


def of(rows: list[ROW], **wanted: Any) -> list[ROW]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def minutes_of(rows: list[ROW]) -> list[tuple[int, str, int]]:
    return sorted((row["slot"], row["host"], row["intervals"]) for row in rows)


WINDOWS = [START + number * STEP for number in range(-2, COUNT)]


def test_a_late_hour_a_doubled_one_and_a_wrong_clock_change_no_table(found: dict[str, Any]) -> None:
    sound, odd = dict(found["sound"]), dict(found["odd"])
    rows, heard = odd.pop("silver_host_minutes"), sound.pop("silver_host_minutes")
    assert minutes_of(rows) == minutes_of(heard)
    assert sound == odd
    assert all(sound[table] for table in sound if table != "gold_missing")
    # and what was odd is written beside each minute
    assert {row["clock_s"] for row in of(rows, host="b")} == {-599.75}
    assert max(row["late_s"] for row in of(rows, host="c")) > 3600
    assert {row["host"] for row in rows if row["repeated"]} == {"d"}
    assert sum(row["repeated"] for row in rows) == 6


def test_tables_do_not_depend_on_how_much_is_computed_at_once(found: dict[str, Any]) -> None:
    assert found["in_parts"] == found["sound"]


def test_a_host_is_missing_until_its_hour_comes(found: dict[str, Any]) -> None:
    """`c` was silent from its fourth interval to its ninth: in four windows of three intervals."""
    early = found["early"]["gold_missing"]
    assert early == [{"host": "c", "window": START + number * STEP} for number in (3, 4, 5, 6)]
    assert found["odd"]["gold_missing"] == []


def test_traffic_is_what_each_receiver_got(found: dict[str, Any]) -> None:
    rows = found["odd"]["gold_traffic"]
    for window in WINDOWS:
        packets, zones = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for host, receivers, count in in_window(window):
            for receiver in receivers:
                packets[host, receiver] += count
                zones[ZONES[host], ZONES[receiver]] += count
        by_host = {
            (row["source"], row["target"]): row["packets"] for row in of(rows, window=window, by="host")
        }
        by_zone = {
            (row["source"], row["target"]): row["packets"] for row in of(rows, window=window, by="zone")
        }
        assert (by_host, by_zone) == (dict(packets), dict(zones))
    topics = {row["source"] for row in of(rows, by="topic")}
    assert topics == {"orders", "noise", "left"}  # two partitions are one topic


def test_talkers_are_hosts_by_bytes_and_streams_by_records(found: dict[str, Any]) -> None:
    for window in WINDOWS:
        size = Counter[str]()
        for host, _, count in in_window(window):
            size[host] += 100 * count
        rows = of(found["odd"]["gold_talkers"], window=window, kind="host")
        ordered = sorted(rows, key=lambda row: row["place"])
        expected = sorted(size.items(), key=lambda item: (-item[1], item[0]))
        assert [(row["name"], row["count"]) for row in ordered] == expected
        assert sum(row["share"] for row in ordered) == pytest.approx(1.0)


def test_churn_is_against_the_window_before(found: dict[str, Any]) -> None:
    rows = found["odd"]["silver_churn"]
    for window in WINDOWS:
        now, before = (
            {r for h, rs, _ in in_window(at) if h == "c" for r in rs} for at in (window, window - LENGTH)
        )
        (row,) = of(rows, window=window, publisher="c")
        if not before:
            assert (row["joined"], row["jaccard"], row["half_life_s"]) == (None, None, None)
            continue
        assert (row["joined"], row["left"]) == (len(now - before), len(before - now))
        assert row["jaccard"] == len(now & before) / len(now | before)
        kept = len(now & before) / len(before)
        half = None if kept == 1 else 0.0 if kept == 0 else -LENGTH * math.log(2) / math.log(kept)
        assert row["half_life_s"] == half
    assert {row["jaccard"] for row in of(rows, publisher="c")} == {None, 0.0, 0.5, 1.0}


def test_unread_streams_and_hosts_that_fall_behind_are_named(found: dict[str, Any]) -> None:
    unread = found["odd"]["gold_unread"]
    assert {(row["publisher"], row["stream"]) for row in unread} == {("b", "noise")}
    behind = found["odd"]["gold_behind"]
    assert {row["host"] for row in behind} == {"d"}
    assert {row["share"] for row in behind} == {0.5}
    assert {row["seconds"] for row in behind} == {float(LENGTH)}  # it gets half of what is sent


def test_filters_that_would_save_where_messages_come_from_are_named(found: dict[str, Any]) -> None:
    for window in WINDOWS:
        count = len(
            {seq for seq in range(1, COUNT + 1) if window <= START + (seq - 1) * STEP < window + LENGTH}
        )
        saving, other = sorted(of(found["odd"]["gold_filters"], window=window), key=lambda row: row["place"])
        assert (saving["origin"], saving["host"], saving["filter"]) == ("a", "c", "a > 3")
        assert (saving["saved_bytes"], saving["share"], saving["messages"]) == (700 * count, 0.7, 10 * count)
        assert (other["origin"], other["saved_bytes"]) == ("b", 0)  # somebody at c wants all of b's
        assert saving["cpu_us"] == other["cpu_us"] == 50 * count


def test_a_client_that_moved_and_streams_that_were_repaired_are_named(found: dict[str, Any]) -> None:
    moves = found["odd"]["gold_moves"]
    assert {(row["client"], row["source"], row["target"]) for row in moves} == {("sensor", "c", "d")}
    assert len(moves) == LENGTH // STEP  # in each window with the sixth interval
    repairs = of(found["odd"]["gold_repairs"], stream="left-0")
    assert len(repairs) == len(WINDOWS)
    assert {(row["share"], row["bytes"] / row["packets"]) for row in repairs} == {(0.2, 100.0)}


def test_links_carry_one_copy_and_growth_is_said_in_words(found: dict[str, Any]) -> None:
    for window in WINDOWS:
        packets = Counter[str]()
        for host, receivers, count in in_window(window):
            packets[f"{host}-s{'abcd'.index(host)}"] += count
            for receiver in receivers:
                packets[f"s{'abcd'.index(receiver)}-{receiver}"] += count
        rows = of(found["odd"]["gold_links"], window=window, network="ring")
        carried = {row["link"]: row["packets"] for row in rows if row["link"] in packets}
        assert carried == dict(packets)
        assert len(rows) > len(carried)  # the others are between switches
    (line,) = [row for row in found["odd"]["gold_forecast"] if row["link"] == "a-s0"]
    # 3,300 bytes a window more each time: 10 more packets of 110 bytes in each of three intervals
    growth = 8 * 3300 / LENGTH / 1000 * 3600 / STEP
    assert line["growth_per_hour"] == pytest.approx(growth)
    assert line["hours"] == pytest.approx((0.65 - line["share"]) / growth)
    assert line["text"] == "link a-s0 reaches 65% in 6 h at this growth"
    assert line["text"] in found["said"]
    assert not [text for text in found["said"] if text.startswith("link b-s1 ")]  # it does not grow


def test_clusters_weigh_the_hosts_by_what_they_got(found: dict[str, Any]) -> None:
    rows = of(found["odd"]["silver_clusters"], network="ring", window=START)
    got = Counter[str]()
    for _, receivers, count in in_window(START):
        got.update(dict.fromkeys(receivers, count))
    assert {row["host"]: row["weight"] for row in rows} == dict(got)
    assert all(row["hub"].startswith("s") for row in rows)


def test_the_report_is_of_the_last_window_that_is_over(found: dict[str, Any]) -> None:
    assert found["report"]["window"] == START + (COUNT - 4) * STEP
    assert found["report"]["talkers"][0]["kind"] == "host"
