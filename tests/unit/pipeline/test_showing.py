"""A pipeline's folder: who holds it, its status, and the way from an installed tree back to records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.cli.app import app
from treecast.middleware.storage.whole_file import write_whole
from treecast.spark_connectors.pipeline import planning
from treecast.spark_connectors.pipeline import tables as t
from treecast.spark_connectors.pipeline.planning import Plan, Settings, Topology
from treecast.spark_connectors.pipeline.showing import NotFound, Shown

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

EPOCH = 1_700_000_000_000


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def candidate(strategy: str, labels: float, fault: str = "") -> dict[str, Any]:
    numbers = {"threshold": 0.0, "seed": 1, "rules": 6, "rule_writes": 6, "ms": 2.0}
    return {
        "network": "lab",
        "strategy": strategy,
        "labels": labels,
        "trees": [[0, 1]],
        "fault": fault,
        **numbers,
    }


@pytest.fixture
def tables(tmp_path: Path) -> t.Tables:
    """A folder with one finished epoch, one that was only planned, and what a manager has written."""
    made = t.Tables(tmp_path / "pipe")
    ranges = planning.ranges_of(topics.SENDS, [(0, 5, 9)])
    for epoch in (EPOCH, EPOCH + 1):
        one = Plan(epoch, 0, EPOCH * 1000, ranges, (Topology("lab", 0, 1),), Settings(), "q", epoch - EPOCH)
        write_whole(made.plans / f"{epoch}.json", planning.encode(one))
    advice = pb.TreeAdvice(
        v=1, network="lab", epoch=EPOCH, strategy="learned", labels_now=6, labels_expected=2
    )
    advice.input.add(topic=topics.SENDS, first=5, end=10)
    row = {"network": "lab", "value": topics.encode(advice), "digest": "d" * 32, "strategy": "learned"}
    row |= {"labels_now": 6.0, "labels_expected": 2.0, "rule_writes": 6, "packets": 300, "problem": ""}
    write(Path(made.of_epoch(t.ADVICE, EPOCH)) / "part-0.parquet", [row])
    found = [candidate("hops", 6.0), candidate("cycles", 0.0, "no cycle"), candidate("learned", 2.0)]
    write(Path(made.of_epoch(t.CANDIDATES, EPOCH)) / "part-0.parquet", found)
    missing = {"check": "host missing", "host": "h3", "value": 1.0, "text": "h3 has no interval"}
    write(Path(made.of_epoch(t.QUALITY, EPOCH)) / "part-0.parquet", [missing])
    applied(made)
    return made


def applied(made: t.Tables) -> None:
    """Writes the archive as Spark's file sink does: with a file of a failed batch that its log leaves out."""
    bronze = Path(made.path(t.BRONZE))
    folder = bronze / f"topic={topics.APPLIED}" / "date=2026-11-27" / "hour=9"
    for name, tree, epoch in (("kept", 41, EPOCH), ("failed", 99, EPOCH)):
        one = pb.AppliedAdvice(
            v=1, network="lab", epoch=epoch, decision="applied", reason="it saves", ts=EPOCH * 1000
        )
        one.trees.add(id=tree, edges=[0, 1])
        write(folder / f"{name}.parquet", [{"key": b"lab", "value": topics.encode(one)}])
    (bronze / "_spark_metadata").mkdir()
    entry = {"path": f"file://{folder}/kept.parquet", "action": "add"}
    (bronze / "_spark_metadata" / "0").write_text("v1\n" + json.dumps(entry))
    commits = Path(made.checkpoint(t.BRONZE)) / "commits"
    commits.mkdir(parents=True)
    for name in ("0", "1", "2", ".3.crc"):
        (commits / name).write_text("v1\n{}")


def test_only_one_process_holds_a_folder(tables: t.Tables) -> None:
    assert not tables.running
    tables.lock()
    assert tables.running
    other = t.Tables(tables.root)
    assert other.id == tables.id
    with pytest.raises(t.InUse, match=r"process \d+ runs a pipeline on .*: stop it, or give another --data"):
        other.lock()
    tables.release()
    other.lock()
    other.release()


def test_status_counts_what_sparks_logs_name(tables: t.Tables) -> None:
    status = Shown(tables).status()
    by_name = {one.query: one for one in status.queries}
    assert (by_name[t.BRONZE].batch, by_name[t.BRONZE].rows) == (2, 1)
    assert (by_name[t.SENDS].batch, by_name[t.SENDS].rows) == (-1, 0)
    assert by_name["advice"].rows == 1
    assert (status.running, status.epoch) == (False, EPOCH + 1)


def test_an_installed_tree_leads_back_to_its_records(tables: t.Tables) -> None:
    found = Shown(tables).explain(tree=41)
    assert found.plan.epoch == EPOCH
    assert found.advice is not None
    assert [(one.topic, one.first, one.end) for one in found.advice.input] == [(topics.SENDS, 5, 10)]
    assert [one["strategy"] for one in found.candidates] == ["learned", "hops", "cycles"]
    assert [one.decision for one in found.decisions] == ["applied"]
    assert [one["host"] for one in found.quality] == ["h3"]


def test_what_is_not_there_is_named(tables: t.Tables) -> None:
    shown = Shown(tables)
    with pytest.raises(NotFound, match="installed tree 99, as far as the archive tells"):
        shown.explain(tree=99)
    with pytest.raises(NotFound, match=f"epoch 7 is not planned here; there are 2, the last ones {EPOCH}"):
        shown.explain(7)
    with pytest.raises(NotFound, match="was planned, and has no advice"):
        shown.explain(EPOCH + 1)
    with pytest.raises(NotFound, match="no advice for network 'mars'"):
        shown.explain(EPOCH, "mars")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def test_the_commands_need_no_spark_to_look(tables: t.Tables) -> None:
    data = ["--data", str(tables.root)]
    shown = run("status", *data)
    assert shown.exit_code == 0
    assert f"epoch     {EPOCH + 1}" in shown.stdout
    found = run("explain", str(EPOCH), *data)
    assert "6.00 -> 2.00, held out" in found.stdout
    assert "applied at" in found.stdout
    as_json = json.loads(run("explain", str(EPOCH), "--json", *data).stdout)
    assert (as_json["advice"]["strategy"], as_json["digest"]) == ("learned", "d" * 32)
    assert as_json["plan"]["ranges"] == [{"topic": topics.SENDS, "partition": 0, "first": 5, "end": 10}]
    assert json.loads(run("status", "--json", *data).stdout)["epoch"] == EPOCH + 1


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    found = run("status", "--data", str(tmp_path))
    assert found.exit_code != 0
    assert "is no pipeline's folder" in str(found.exception)
