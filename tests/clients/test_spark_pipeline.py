"""The pipeline with a real Spark and a daemon: tables and advice are right although hosts are slow, repeat
themselves or have wrong clocks; an epoch is advised once although Spark repeats it; the demo's short form."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.daemon.process import DaemonProcess

ROOT = Path(__file__).resolve().parents[2]
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # half of the processor time
SMALL = ROOT / "tests/clients/spark/conf"  # Spark's settings for tables of some hundred rows
PATIENCE = 1800.0  # seconds until a test gives up; nothing is asserted about it


@pytest.fixture(scope="module")
def spark_there(require_tool: Callable[[str], str], require: Callable[[bool, str], None]) -> None:
    require_tool("java")
    require(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=ROOT,
        env=os.environ
        | {"JDK_JAVA_OPTIONS": JAVA, "SPARK_CONF_DIR": str(SMALL), "SPARK_LOCAL_IP": "127.0.0.1"}
        | {"TREECAST_RUNTIME_DIR": str(folder)},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def found(spark_there: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of `spark/pipeline.py`: one session for all tests, as a session takes long to start."""
    folder = tmp_path_factory.mktemp("pipeline")
    daemon = DaemonProcess(folder / "data", ["--admin", "off", "--control", "off"]).start()
    try:
        said = run(folder, str(ROOT / "tests/clients/spark/pipeline.py"), daemon.kafka, str(folder))
    finally:
        daemon.stop()
        print(daemon.clean_up(), file=sys.stderr)
    (line,) = [line for line in said.splitlines() if line.startswith("FOUND ")]
    results: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return results


def test_every_record_is_archived_and_every_interval_is_a_row_once(found: dict[str, Any]) -> None:
    intervals = 6 + 5 + 6 + 3  # of a, b, c and d
    assert found["first"]["bronze"] == intervals - 3 + 1 + 1 + 1  # one twice, one that is none, the topology
    assert found["second"]["bronze"] == 3
    assert found["rows"] == {
        "bronze": intervals + 3,
        "silver_intervals": intervals + 1,  # with the one that is none
        "silver_sends": 2 * intervals,
        "silver_streams": intervals,
    }


def test_what_is_wrong_with_the_data_is_named_with_its_host(found: dict[str, Any]) -> None:
    lasting = [
        ["clock differs", "c"],
        ["impossible", "eve"],
        ["intervals lost", "b"],
        ["intervals repeated", "a"],
    ]
    assert found["quality"] == sorted([["host missing", "d"], *lasting])
    assert found["quality later"] == lasting


def test_advice_names_the_slow_host_and_counts_it_when_it_has_come(found: dict[str, Any]) -> None:
    (first,) = found["advice"]
    assert (first["missing"], first["packets"]) == (["d"], 2 * 10 * (6 + 5 + 6))
    assert first["expected"] < first["now"]
    _, later = found["advice later"]
    assert (later["missing"], later["packets"]) == ([], 2 * 10 * (6 + 5 + 6 + 3))
    assert later["epoch"] > first["epoch"]


def test_a_repeated_batch_advises_nothing_new(found: dict[str, Any]) -> None:
    first, again = found["said"]  # Spark has run the batch again
    assert first == again
    assert f"epoch {found['advice'][0]['epoch']}  ring: " in first
    assert found["advice after a kill"] == found["advice"]


def test_frequencies_are_shares_of_a_publishers_packets(found: dict[str, Any]) -> None:
    sent = 2 * 10 * 6  # the repeated interval counts once
    first_epoch = found["shares"][:3]
    assert first_epoch == [["b", sent, sent, 1.0], ["c", sent, sent // 2, 0.5], ["d", sent, sent // 2, 0.5]]


def test_a_replay_of_the_archive_gives_the_same_advice(found: dict[str, Any]) -> None:
    assert found["replayed"] == [["ring", True], ["(filters)", True]] * 3


def test_an_epoch_says_which_filter_would_save_most_at_which_origin(found: dict[str, Any]) -> None:
    """The first of a repeated interval counts; `c` gets its own messages from nobody."""
    rows = [(row["filter"], row["origin"], row["host"], row["saved_bytes"]) for row in found["filters"]]
    assert rows == [("to == a", "c", "a", 90 * 6), ("to == b", "c", "b", 90 * 5)]
    assert [row["share"] for row in found["filters"]] == [0.9, 0.9]


def test_a_late_hour_and_a_doubled_one_count_for_no_advice(found: dict[str, Any]) -> None:
    before, after = found["advice later"][-1], found["advice after an odd hour"][-1]
    assert after["packets"] - before["packets"] == 2 * 10 * (1 + 3)  # one of d is in time, three of a are new
    assert after["missing"] == []
    assert ["too late", "d"] in found["quality of an odd hour"]
    assert ["intervals repeated", "a"] in found["quality of an odd hour"]


def test_an_operators_strategy_is_tried_alone(found: dict[str, Any]) -> None:
    assert found["strategies"] == ["present", "relation"]


def test_of_two_pipelines_one_wins_and_it_is_said(found: dict[str, Any]) -> None:
    first, second = found["two pipelines"]
    assert first.startswith(("applied: ", "kept: "))
    assert second.startswith("refused: it is from pipeline ")
    assert second.endswith("stop one of them")


@pytest.mark.nightly
def test_the_demo_ends_near_hindsight_after_each_shift(spark_there: None, tmp_path: Path) -> None:
    """The short form of `make demo-pipeline`: one micro-batch in each phase."""
    given = ["--rounds", "1", "--packets", "300", "--master", "local[1]", "--json", "--out", str(tmp_path)]
    results = json.loads(run(tmp_path, "-m", "examples.spark.pipeline", *given))
    assert [end["phase"] for end in results["ends"]] == ["uniform", "nearby", "distant"]
    for end in results["ends"]:
        assert end["pipeline"] <= 1.1 * end["hindsight"]
        assert end["pipeline"] <= end["adapt"] < end["none"]
    assert (results["lost"], results["differ"], results["epochs"]) == (0, 0, 3)
    assert results["writes"] > 0
    assert "applied" in results["explained"]
    assert Path(results["picture"]).exists()
