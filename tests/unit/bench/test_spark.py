"""The plumbing of the comparison of Spark's connectors; no test starts Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import spark
from bench.core import versus
from bench.core.measure import Sample
from bench.core.report import summarise
from bench.peers.spark import combination, jars
from bench.workloads.spark import LATENCY, PARTS, READ, WRITE, SparkJob


@pytest.fixture
def made(tmp_path: Path) -> dict[str, combination.Combination]:
    jar = tmp_path / "connector.jar"
    jar.touch()
    found = spark.combinations(spark.NAMES, sys.executable, "never", tmp_path, [jar])
    return dict(zip(spark.NAMES, found, strict=True))


def test_each_combination_has_its_connector_and_its_jars(
    made: dict[str, combination.Combination], tmp_path: Path
) -> None:
    assert {name: one.connector for name, one in made.items()} == {
        "ours": "treecast",
        "connector": "kafka",
        "kafka": "kafka",
    }
    assert made["ours"].jars() == []
    assert made["connector"].jars() == made["kafka"].jars() == [tmp_path / "connector.jar"]
    settings = made["connector"].settings()
    assert settings["connector's jars"] == "connector.jar"
    assert settings["durability"] == "fsync = never"


def test_a_jar_that_is_not_there_is_a_reason_to_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combination, "missing_tools", list)
    (one,) = spark.combinations(["kafka"], sys.executable, "never", tmp_path, [tmp_path / "absent.jar"])
    assert one.missing() == f"there is no jar {tmp_path / 'absent.jar'}"


def test_an_unknown_combination_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="flink"):
        spark.combinations(["flink"], sys.executable, "never", tmp_path)


def test_the_version_is_read_from_the_pom() -> None:
    assert jars.JARS.version.startswith("4.")


def test_what_a_job_finds_becomes_metrics(
    made: dict[str, combination.Combination], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SparkJob(5000, 100, 4)
    asked: list[dict[str, Any]] = []
    filled: list[tuple[int, int]] = []

    def answer(script: str, *arguments: str) -> dict[str, float]:
        if script == "spark_parts.py":
            return {"fetch": 0.1, "decode": 0.2, "Arrow": 0.3, "encode": 0.4}
        asked.append(json.loads(Path(arguments[0]).read_text()))
        return {"read": 100.0, "write": 50.0, "latency": 7.0, "latency through": 9.0, "making": 2.0}

    monkeypatch.setattr(job, "_ask", answer)
    monkeypatch.setattr("bench.workloads.spark.fill", lambda address, rows, size: filled.append((rows, size)))
    ours = job.run(made["ours"], 1)
    theirs = job.run(made["connector"], 1)
    assert filled == [(4000, 100)] * 2, "whole batches in both partitions"
    assert [one["connector"] for one in asked] == ["treecast", "kafka"]
    assert (len(asked[0]["jars"]), len(asked[1]["jars"])) == (0, 1)
    assert ours[PARTS["encode"]] == 0.4
    assert PARTS["encode"] not in theirs, "what Python costs is ours"
    samples = [
        Sample(name, 1, job.name, metric, value)
        for name, values in ((spark.OURS, ours), (spark.SAME, theirs))
        for metric, value in values.items()
    ]
    ratios = versus.compare(summarise(samples, "", ""), spark.AGAINST)
    by_metric = {one.metric: one for one in ratios}
    for metric in (READ, WRITE, LATENCY):
        assert (by_metric[metric].theirs, by_metric[metric].reached) == (spark.SAME, True)


def test_turns_of_one_session_become_samples(made: dict[str, combination.Combination]) -> None:
    told: list[str] = []
    run = spark.micro(list(made.values()), 24, 2, sys.executable, told.append)
    phases = {"triggerExecution": 200.0, "addBatch": 90.0}
    for number in (0, 1, 2):
        for name, more in ((spark.OURS, 0.0), (spark.SAME, 50.0)):
            taken = {phase: value + more for phase, value in phases.items()}
            run.take({"name": name, "round": number, "sink": "noop", "phases": taken})
    run.take({"name": spark.SAME, "round": 2, "sink": "connector", "failed": "a worker did not start"})
    assert told[0].endswith("warming up")
    assert len(run.samples) == 8, "the first turns warm up"
    assert len(run.failures) == 1
    (whole,) = versus.compare(summarise(run.samples, "", ""), spark.AGAINST)
    assert (whole.metric, whole.value, whole.reached) == (LATENCY, 0.8, True)
    assert {one.metric.name for one in run.samples} == {LATENCY.name, f"{LATENCY.name}: addBatch"}


def test_what_python_costs_at_least_is_the_floor_of_both_of_ours(tmp_path: Path) -> None:
    (floor,) = spark.combinations(["floor"], sys.executable, "never", tmp_path)
    run = spark.micro([floor], 24, 1, sys.executable, lambda _: None)
    times = {spark.OURS: 110.0, spark.SMALL: 125.0, spark.SAME: 100.0, spark.FLOOR: 105.0}
    run._combinations = spark.combinations(
        ("ours", "small", "connector", "floor"), "python", "never", tmp_path
    )
    for name, taken in times.items():
        run.take({"name": name, "round": 1, "sink": "noop", "phases": {"triggerExecution": taken}})
    ratios = versus.compare(summarise(run.samples, "", ""), spark.AGAINST)
    assert {(one.ours, one.verdict) for one in ratios} == {
        (spark.OURS, "yes (floor)"),
        (spark.SMALL, "no"),
        (spark.FLOOR, ""),
    }
    assert (floor.is_floor, floor.jars(), floor.start(), floor.pids()) == (True, [], 0.0, [])


def test_the_floor_gives_rows_of_our_schema_and_takes_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from bench.floor import spark as bare

    monkeypatch.setattr(bare, "settle", lambda: None)  # it is meant for a worker's process
    source = bare.BareSource({"rows": "1000", "tasks": "2"})
    reader = source.streamReader(source.schema())
    parts = reader.partitions(reader.initialOffset(), {"rows": 1000})
    batches = [batch for part in parts for batch in reader.read(part)]
    assert [batch.num_rows for batch in batches] == [500, 500]
    assert batches[0].schema.names == source.schema().names
    left = iter(batches)
    source.streamWriter(source.schema(), overwrite=False).write(left)
    assert list(left) == []


def test_in_turns_the_order_alternates_and_each_comes_as_often() -> None:
    pytest.importorskip("pyspark")
    from bench.workloads import spark_turns

    found = list(spark_turns.turns(["a", "b"], 2))
    assert len(found) == 3 * 2 * 2
    for number, order in ((1, ["a", "b"]), (2, ["b", "a"])):
        for sink in spark_turns.SINKS:
            assert [case for at, case, into in found if (at, into) == (number, sink)] == order
