"""The Kafka peer, as far as tests can check it without Java."""

import re

import pytest
from bench.kafka import workloads
from bench.peers import maven
from bench.peers.kafka import KafkaBroker, jars, tools
from bench.workloads.java import parse_consumer, parse_producer


def test_the_version_stands_in_one_place():
    version = jars.kafka_version()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert jars.POM.read_text().count(version) == 1
    assert jars.JARS.folder.name == f"kafka-{version}"


def test_missing_programs_are_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(maven.Jars, "present", False)
    assert jars.missing_tools() == ["java", "mvn"]
    monkeypatch.setattr(maven.Jars, "present", True)
    assert jars.missing_tools() == ["java"]


def test_tools_run_by_script_name_or_class(monkeypatch):
    monkeypatch.setattr(tools, "class_path", lambda: "a.jar:b.jar")
    command = tools.tool_command("kafka-topics", ["--list"])
    assert command[-4:] == ["-cp", "a.jar:b.jar", "org.apache.kafka.tools.TopicCommand", "--list"]
    assert tools.tool_command("some.Class")[-1] == "some.Class"


def test_settings_are_those_of_a_distribution_plus_the_caller_s():
    settings = KafkaBroker(properties={"num.io.threads": "2"}).settings()
    assert settings["num.io.threads"] == "2"
    assert settings["num.network.threads"] == "3"
    assert "-Xms1G" in settings["jvm"]
    assert not any(key.startswith("log.flush") for key in settings)


PRODUCER = """\
25001 records sent, 4999.2 records/sec (0.48 MB/sec), 0.6 ms avg latency, 226.0 ms max latency.
1000000 records sent, 425531.9 records/sec (40.58 MB/sec), 15.32 ms avg latency, 226.00 ms max latency, \
4 ms 50th, 101 ms 95th, 163 ms 99th, 181 ms 99.9th.
"""


def test_producer_summary_is_read():
    assert parse_producer(PRODUCER) == {
        "records": 1_000_000,
        "rate": 425531.9,
        "p50": 4,
        "p99": 163,
        "p999": 181,
    }
    steady = (
        "25000 steady state records sent, 4974.1 records/sec (0.47 MB/sec), 3.63 ms avg latency, "
        "10.00 ms max latency, 4 ms 50th, 6 ms 95th, 7 ms 99th, 10 ms 99.9th.\n"
    )
    assert parse_producer(PRODUCER + steady)["p99"] == 7
    with pytest.raises(RuntimeError, match="no summary"):
        parse_producer(PRODUCER.splitlines()[0])


def test_consumer_result_is_read():
    output = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
        "2026-11-21 07:40:00:123, 2026-11-21 07:40:05:456, 95.3674, 17.88, 1000000, 187512.7, "
        "3456, 1877, 50.8084, 532765.0506\n"
    )
    assert parse_consumer(output) == (1_000_000, 532765.0506)
    with pytest.raises(RuntimeError, match="no result"):
        parse_consumer(output.splitlines()[0])


def test_workloads_have_names_of_their_own():
    full = [workload.name for workload in workloads(3_000_000, (100, 1024), False)]
    quick = [workload.name for workload in workloads(200_000, (100,), True)]
    assert len(set(full)) == len(full)
    assert len(quick) < len(full)
