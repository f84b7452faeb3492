"""The whole loop on real parts: a topic travels by labels through five switches, its daemon writes telemetry,
the pipeline on Spark advises, the tree manager writes switches, and stacks become shorter."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.network.conftest import StartLab
from tests.network.test_labels import (
    BATCH,
    PATIENCE,
    TOPIC,
    built,
    by_labels,
    consume,
    control,
    described,
    follow,
    line,
    produce,
    start_daemon,
)

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside

INTERVAL_MS = 400
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # short runs: half of the processor time
SPARK_SECONDS = 900.0  # until a test gives up; nothing is asserted about it


def intervals(made: Lab) -> list[pb.TelemetryInterval]:
    """Returns alpha's intervals, from the partitions that it leads."""

    def run() -> list[bytes]:
        import kafka

        consumer = kafka.KafkaConsumer(bootstrap_servers=f"{made.ipv4('alpha')}:9092", group_id=None)
        numbers = consumer.partitions_for_topic(topics.SENDS) or ()
        places = [kafka.TopicPartition(topics.SENDS, number) for number in numbers]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        found: list[bytes] = []
        end = time.monotonic() + PATIENCE
        while len(found) < sum(ends.values()) and time.monotonic() < end:
            found += [one.value for records in consumer.poll(500).values() for one in records]
        consumer.close()
        return found

    read = [topics.decode(pb.TelemetryInterval, value) for value in inside(made.namespace("alpha"), run)]
    return sorted((one for one in read if one.host == "alpha"), key=lambda one: one.seq)


def pipeline(made: Lab, folder: Path, *arguments: str) -> str:
    """Runs `treecast pipeline` at alpha; returns what it prints."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "pipeline", *arguments, "--data", str(folder)]
    process = made.start("alpha", *command, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=SPARK_SECONDS)
    assert process.returncode == 0, out.decode()
    return str(out.decode())


def wait_for_advice(process: subprocess.Popen[bytes], made: Lab, sent: int) -> tuple[str, int]:
    """Goes on producing until the manager has printed a line about advice; returns all that it printed."""
    assert process.stdout is not None
    said, end = b"", time.monotonic() + PATIENCE
    while b"advice epoch=" not in said and time.monotonic() < end:
        if select.select([process.stdout], [], [], 0)[0]:
            said += os.read(process.stdout.fileno(), 65536)
        produce(made, "alpha", BATCH, sent)
        sent += BATCH
    return said.decode(), sent


@pytest.mark.nightly  # tests/clients has the pipeline, and tests/unit/trees has who follows its advice
def test_what_is_sent_shapes_the_trees(
    lab: StartLab, tmp_path: Path, require: Callable[[object, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", JAVA)
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    require(importlib.util.find_spec("pyspark") and shutil.which("java"), "PySpark or Java is not installed")
    made = built(lab)
    file = tmp_path / "trees.toml"
    file.write_text(described(made, "hops", 1).replace("control", "# control"))
    first = made.start(
        "alpha", sys.executable, "-m", "treecast.middleware.control.trees", str(file), "--once"
    )
    assert line(first).startswith("ready ")
    first.wait(PATIENCE)
    telemetry = ("--telemetry", "plain", "--telemetry-interval-ms", str(INTERVAL_MS))
    start_daemon(made, tmp_path, "alpha", *telemetry)
    token = f"@{tmp_path / 'alpha' / 'join-token'}"
    joins = ("--join", f"{made.ipv4('alpha')}:7671", "--join-token", token)
    start_daemon(made, tmp_path, "beta", *joins, *telemetry)
    advice = f'[advice]\nkafka = "{made.ipv4("alpha")}:9092"\nnetwork = "lab"\nevery = 0.3\n'
    file.write_text(described(made, "hops", 1).replace("[switches]", f"{advice}[switches]"))
    trees = ("-m", "treecast.middleware.control.trees", str(file), "--token", token)
    manager = made.start("alpha", sys.executable, *trees)
    assert "trees=0" in line(manager)
    with control(made, "alpha") as client:
        client.create_topic(TOPIC, 1, leaders=["alpha"])
    follow(made)
    sent = 0
    end = time.monotonic() + PATIENCE
    while len([one for one in intervals(made) if one.sets]) < 4 and time.monotonic() < end:
        produce(made, "alpha", BATCH, sent)
        sent += BATCH
    seen = intervals(made)
    assert [one.seq for one in seen] == list(range(1, len(seen) + 1))
    assert {tuple(each.receivers) for one in seen for each in one.sets} == {("beta",)}
    assert all(each.hop_labels == 3 * each.packets for one in seen for each in one.sets)  # s1, s5, s4 or s2
    assert sum(one.packets for one in seen) > 0
    assert any(
        each.stream == f"{TOPIC}-0" and each.receiver == "beta" for one in seen for each in one.streams
    )
    folder = tmp_path / "pipeline"
    address = ("--kafka", f"{made.ipv4('alpha')}:9092", "--master", "local[1]")
    said = pipeline(made, folder, "run", "--rounds", "1", "--valid", "3600", *address)
    assert "labels per packet" in said
    applied, sent = wait_for_advice(manager, made, sent)
    assert "applied: it saves" in applied
    assert "trees=1" in applied
    pipeline(made, folder, "run", "--rounds", "1", "--only", "bronze", *address)
    found: dict[str, Any] = json.loads(pipeline(made, folder, "explain", "--tree", tree_of(made), "--json"))
    assert [one["decision"] for one in found["decisions"]] == ["applied"]
    assert found["advice"]["labels_expected"] < found["advice"]["labels_now"]
    by_now = by_labels(made)
    produce(made, "alpha", BATCH, sent)
    sent += BATCH
    assert by_labels(made) > by_now
    assert consume(made, "beta", sent) == list(range(sent))
    replayed = json.loads(pipeline(made, folder, "replay", "--master", "local[1]", "--json"))
    assert [one["live"] == one["replayed"] for one in replayed] == [True, True]  # trees, and filters


def tree_of(made: Lab) -> str:
    """Returns the id of the tree that the manager has written down as installed."""

    def run() -> list[bytes | None]:
        own = OwnTopics(f"{made.ipv4('alpha')}:9092")
        try:
            return [one.value for one in own.after(topics.APPLIED, 0)]
        finally:
            own.close()

    values = inside(made.namespace("alpha"), run)
    decided = [topics.decode(pb.AppliedAdvice, value) for value in values if value]
    assert [one.decision for one in decided] == ["applied"]
    return str(decided[0].trees[0].id)
