"""The STARE paper's tables: IV from packets through 85 switches, III from a process' memory."""

from __future__ import annotations

import sys

import pytest

from treecast.middleware.evaluation.figure import Options, Row
from treecast.middleware.evaluation.registry import figures
from treecast.middleware.evaluation.runner import run
from treecast.middleware.evaluation.stare.memory import KINDS
from treecast.middleware.evaluation.stare.table3 import SCENARIOS, finish, line, samples
from treecast.middleware.evaluation.stare.table4 import PAPER
from treecast.middleware.model.errors import TreecastError

TABLE_4 = figures()["stare-table4"]
TREE = 24  # links in the worst case, where the paper prints 26


def test_table_iv_is_the_papers_but_for_two_numbers() -> None:
    result = run(TABLE_4, Options(jobs=1), quiet=True)
    assert [check.statement for check in result.checks if not check.holds] == []
    found = {(row["approach"], row["case"]): (row["in-net"], row["out-net"]) for row in result.rows}
    for name, (best_in, best_out, worst_in, worst_out) in PAPER.items():
        if name == "Unicast":
            best_out = worst_out = 32
        assert found[name, "best"] == (best_in, best_out)
        assert found[name, "worst"] == (TREE if worst_in == 26 else worst_in, worst_out)


def test_a_table_iv_that_is_wrong_is_seen() -> None:
    rows: list[Row] = []
    for name, (best_in, best_out, worst_in, worst_out) in PAPER.items():
        for case, inside, outside in (("best", best_in, best_out), ("worst", worst_in, worst_out)):
            row = {"approach": name, "case": case, "in-net": inside, "paper in": inside, "out-net": outside}
            others = {"labels": 18.0, "least labels": 16, "most labels": 20, "header B": 50.0, "KB": 1.0}
            rows.append(
                {**row, **others, "paper out": outside, "receivers": 16, "others": 5 * (name == "Broadcast")}
            )
    failed = [check.statement for check in TABLE_4.finish(Options(), rows).checks if not check.holds]
    assert any("24 links" in one for one in failed)  # the rows that have the 26
    assert any("Unicast" in one for one in failed)
    assert any(one.startswith("worst: 16 to 24 labels") for one in failed)
    rows[-1]["receivers"] = 15
    assert any("one copy" in one.statement for one in TABLE_4.finish(Options(), rows).checks if not one.holds)


def test_the_line_through_points() -> None:
    assert line([(1, 3), (2, 5), (3, 7)]) == (2.0, 0.0, 1.0)
    rise, off, fit = line([(1, 3), (2, 5.2), (3, 6.9), (4, 9.1)])
    assert rise == pytest.approx(2.0, abs=0.05)
    assert off == pytest.approx(0.32, abs=0.05)  # 4.30 times the standard error of 0.075
    assert 0.99 < fit < 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="the resident set is read from /proc")
def test_memory_is_measured_in_a_process_of_its_own() -> None:
    found = samples("embedded", [200, 1200])
    assert [count for count, _ in found] == [200, 1200]
    assert 100 < (found[1][1] - found[0][1]) / 1000 < 10_000
    with pytest.raises(TreecastError, match="nonsense"):
        samples("nonsense", [1])


def test_every_scenario_of_table_iii_can_be_measured() -> None:
    assert {kind for kind, _ in SCENARIOS.values()} == set(KINDS)
    rows = [
        {"scenario": name, "rules": count, "bytes": 1_000_000 + count * (n + 1) * 100}
        for n, name in enumerate(SCENARIOS)
        for count in (1000, 2000, 3000)
    ]
    result = finish(Options(), rows)
    assert [row["bytes/rule"] for row in result.rows] == [100, 200, 300, 400]
    assert all(check.holds for check in result.checks)
    # makes the controller's share grow
    rows[6:9] = [{**row, "bytes": row["bytes"] * 10} for row in rows[6:9]]
    assert [check.holds for check in finish(Options(), rows).checks] == [True, True, False]
