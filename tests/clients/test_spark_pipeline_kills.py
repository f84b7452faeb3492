"""`treecast pipeline run` is killed, driver and JVM, at each step of a round: what it goes on to do is
exact.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clients.spark.pipeline import HOSTS, Telemetry, ring
from tests.clients.test_spark_pipeline import JAVA, PATIENCE, ROOT

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.daemon.process import DaemonProcess

# Files whose appearance is a step of a round, in the folder of a pipeline.
STEPS = (
    "checkpoints/bronze/offsets/*",
    "checkpoints/advice/offsets/*",
    "plans/*.json",
    "tables/gold_advice/*",
)
GIVEN = ("--master", "local[1]", "--parts", "1")
ATTEMPTS = 5  # a busy machine starts Spark's Python workers too slowly
QUERIES = ("--only", "bronze", "--only", "silver_sends", "--only", "advice")


def treecast(folder: Path, *command: str) -> subprocess.Popen[str]:
    """Starts the command in a process group of its own."""
    env = os.environ | {"JDK_JAVA_OPTIONS": JAVA, "TREECAST_RUNTIME_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "treecast.middleware.cli", "pipeline", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=env,
        start_new_session=True,
    )


def ended(folder: Path, *command: str) -> str:
    """Runs the command; what a busy machine has let fail is run again. Returns what it says."""
    for _ in range(ATTEMPTS):
        started = treecast(folder, *command)
        said, _ = started.communicate(timeout=PATIENCE)
        if started.returncode == 0:
            break
    assert started.returncode == 0, said[-3000:]
    return said


def kill_at(started: subprocess.Popen[str], folder: Path, step: str) -> bool:
    """Kills it, with its JVM, as soon as another file of a step appears. Returns whether it was killed."""
    before = set(folder.glob(step))
    while started.poll() is None and set(folder.glob(step)) <= before:
        time.sleep(0.02)
    killed = started.poll() is None
    if killed:
        os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    return killed


@pytest.mark.nightly
def test_kills_of_the_driver_leave_counts_exact_and_no_epoch_twice(
    require_tool: Callable[[str], str], require: Callable[[bool, str], None], tmp_path: Path
) -> None:
    require_tool("java")
    require(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")
    data = tmp_path / "pipe"
    daemon = DaemonProcess(tmp_path / "data", ["--admin", "off", "--control", "off"]).start()
    own = OwnTopics(daemon.kafka)
    try:
        own.ensure((topics.SENDS, topics.TOPOLOGY, topics.ADVICE, topics.APPLIED))
        telemetry = Telemetry(own)
        telemetry.describe(ring())
        run = ("run", "--data", str(data), "--kafka", daemon.kafka, "--rounds", "1", *GIVEN, *QUERIES)
        seq = killed = 0
        for step in STEPS:
            for _ in range(ATTEMPTS):
                for host in HOSTS:
                    for later in (1, 2, 3):
                        telemetry.write(host, seq + later)
                seq += 3
                if kill_at(treecast(tmp_path, *run), data, step):
                    killed += 1
                    break
        ended(tmp_path, *run)
        status = json.loads(ended(tmp_path, "status", "--data", str(data), "--json"))
        replayed = ended(tmp_path, "replay", "--data", str(data), *GIVEN)
        advice = [topics.decode(pb.TreeAdvice, one.value or b"") for one in own.after(topics.ADVICE, 0)]
    finally:
        own.close()
        daemon.stop()
        print(daemon.clean_up(), file=sys.stderr)
    assert killed == len(STEPS)
    rows: dict[str, Any] = {one["query"]: one["rows"] for one in status["queries"]}
    intervals = seq * len(HOSTS)
    assert rows["bronze"] == intervals + 1  # with the description
    assert rows["silver_sends"] == 2 * intervals
    epochs = [one.epoch for one in advice]
    assert epochs == sorted(set(epochs))
    assert epochs
    assert status["epoch"] == epochs[-1]
    assert advice[-1].packets == 2 * 10 * intervals
    assert " != " not in replayed
    assert f"treecast_pipeline_epoch {epochs[-1]}" in (data / "metrics.prom").read_text()
