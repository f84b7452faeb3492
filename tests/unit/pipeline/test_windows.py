"""The tables of a window, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treecast.spark_connectors.pipeline import tables as t
from treecast.spark_connectors.pipeline.showing import NotFound
from treecast.spark_connectors.pipeline.windows import Windows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MINUTES = range(0, 600, 60)


def put(tables: t.Tables, table: str, window: int, rows: list[dict[str, Any]], by: str = "window") -> None:
    folder = Path(tables.path(table)) / f"{by}={window}"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")


@pytest.fixture
def tables(tmp_path: Path) -> t.Tables:
    made = t.Tables(tmp_path)
    for minute in MINUTES:
        put(made, t.MINUTES, minute, [{"host": "a"}], by="slot")
    for window in range(-240, 600, 60):
        talker = {"kind": "host", "place": 1, "name": f"w{window}", "count": 5, "share": 1.0}
        put(made, t.TALKERS, window, [talker])
    churn = {"receivers": 2, "joined": 1, "left": 1, "half_life_s": 300.0}
    rows = [
        churn | {"publisher": name, "jaccard": value} for name, value in [("a", 0.9), ("b", 0.1), ("c", 1.0)]
    ]
    put(made, t.CHURN, 240, [*rows, churn | {"publisher": "new", "jaccard": None}])
    behind = {"addressed": 9, "share": 0.5, "seconds": None}
    put(made, t.BEHIND, 240, [behind | {"host": "x", "waiting": 1}, behind | {"host": "y", "waiting": 7}])
    put(made, t.FORECAST, 240, [{"text": "link r4-r7 reaches 65% in 3 h at this growth"}, {"text": ""}])
    return made


def test_the_last_window_that_is_over_is_shown_with_what_matters_first(tables: t.Tables) -> None:
    found = Windows(tables).report()
    assert found.window == 240  # it ends as the last minute begins
    assert [row["publisher"] for row in found.tables[t.CHURN]] == ["b", "a"]
    assert [row["host"] for row in found.tables[t.BEHIND]] == ["y", "x"]
    lists = {title: rows for title, _, rows in found.lists()}
    assert lists["talkers"] == [("host", 1, "w240", 5, "100.0%")]
    assert lists["hosts that fall behind"][0] == ("y", 7, "50.0%", "none")
    assert lists["forecasts"] == [("link r4-r7 reaches 65% in 3 h at this growth",)]
    assert lists["links"] == []


def test_a_window_by_its_start(tables: t.Tables) -> None:
    assert Windows(tables).report(0).tables[t.TALKERS][0]["name"] == "w240"
    assert Windows(tables).report(60).tables[t.TALKERS][0]["name"] == "w60"
    with pytest.raises(NotFound, match="there is no window 61; there are -240 to 540"):
        Windows(tables).report(61)


def test_no_windows_yet(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there are no windows yet: `treecast pipeline run` or `measure`"):
        Windows(t.Tables(tmp_path)).report()


def test_old_minutes_and_windows_are_removed_and_nothing_else(tables: t.Tables) -> None:
    for minute in MINUTES:
        put(tables, t.HOST_MINUTES, minute, [{"host": "a"}], by="slot")
    put(tables, t.ADVICE, 1, [{"network": "n"}], by="epoch")
    assert tables.forget(900) == 0  # windows begin before their first minute
    assert tables.forget(240) == 2 * 5 + 9 + 3  # minutes of two tables, windows of four
    assert tables.parts(t.MINUTES, "slot") == [300, 360, 420, 480, 540]
    assert Windows(tables).known() == [300, 360, 420, 480, 540]
    assert Path(tables.of_epoch(t.ADVICE, 1)).exists()


def test_a_folder_without_minutes_keeps_its_windows(tmp_path: Path) -> None:
    made = t.Tables(tmp_path)
    put(made, t.TALKERS, 0, [{"kind": "host"}])
    assert made.forget(1) == 0
