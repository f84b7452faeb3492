"""Reproduced figures: rows depend on the seed alone, not on processes; results as table, JSON and
pictures."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from treecast.middleware.evaluation.figure import (
    Check,
    Figure,
    Options,
    Plot,
    Result,
    Row,
    Task,
    averages,
    rng_of,
    value,
)
from treecast.middleware.evaluation.journal import JournalError
from treecast.middleware.evaluation.population import SCENARIOS, moved, notifications, scenario
from treecast.middleware.evaluation.registry import figures
from treecast.middleware.evaluation.report import as_json, write
from treecast.middleware.evaluation.runner import run
from treecast.middleware.evaluation.thesis import chapter5, chapter6_churn, elmo, learned
from treecast.middleware.evaluation.topologies import (
    TABLE_6_1,
    available,
    counts_note,
    load,
    named,
    scale_free,
)
from treecast.middleware.routing.network import RoutingError, build
from treecast.middleware.routing.virtual.reference import ORDERS
from treecast.middleware.routing.virtual.stacks import request

FIGURES = figures()
ON_NETWORKS = (
    "thesis-fig6.9",
    "thesis-fig6.14",
    "thesis-fig6.15",
    "thesis-encoders",
    "thesis-labels",
    "thesis-printed",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of 12 nodes in REPETITA's format: a ring with some chords."""
    path: Path = tmp_path_factory.mktemp("networks")
    edges = [(n, (n + 1) % 12) for n in range(12)] + [(0, 6), (3, 9), (2, 5)]
    lines = ["NODES 12", "label x y", *(f"n{n} {n % 4} {n // 4}" for n in range(12)), ""]
    lines += [f"EDGES {2 * len(edges)}", "label src dest weight bw delay"]
    for number, (a, b) in enumerate(edges):
        lines += [f"e{2 * number} {a} {b} 1 1 1", f"e{2 * number + 1} {b} {a} 1 1 1"]
    (path / "Mini.graph").write_text("\n".join(lines))
    return path


def options(folder: Path, jobs: int = 1) -> Options:
    return Options(seed=5, runs=1, jobs=jobs, rules=6, topologies=("Mini",), topology_dir=folder)


@pytest.mark.parametrize("name", ON_NETWORKS)
def test_figures_on_networks(name: str, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run(FIGURES[name], options(folder), quiet=True)
    assert result.rows
    assert result.checks
    assert all(set(result.columns) <= set(row) for row in result.rows)
    files = write(result, tmp_path)
    assert json.loads((tmp_path / f"{name}.json").read_text()) == json.loads(json.dumps(as_json(result)))
    assert result.title in (tmp_path / f"{name}.txt").read_text()
    assert len([file for file in files if file.suffix == ".png"]) == len(result.plots)


def test_of_many_networks_the_mean_is_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chapter6_churn, "NETWORKS", ())
    result = run(FIGURES["thesis-fig6.14"], options(folder), quiet=True)
    assert result.table is not None
    assert [row["network"] for row in result.table.rows] == [chapter6_churn.MEAN] * 18 + ["Mini"] * 6
    assert all(set(result.table.columns) == set(row) for row in result.table.rows)
    means, own = (
        [row["labels"] for row in result.rows if row["network"] == name]
        for name in (chapter6_churn.MEAN, "Mini")
    )
    assert means == own
    assert len(result.checks) == 2 * len(chapter6_churn.checks_of(result.rows, ("Mini",)))
    assert "mean of the networks" in write(result, tmp_path)[1].read_text()


def test_the_number_of_processes_changes_nothing(folder: Path) -> None:
    one, two = (run(FIGURES["thesis-encoders"], options(folder, jobs), quiet=True) for jobs in (1, 2))
    assert as_json(one) == as_json(two)


def test_a_run_that_was_ended_goes_on(tmp_path: Path) -> None:
    done: list[Task] = []

    def work(options: Options, task: Task) -> list[Row]:
        done.append(task)
        return [{"point": task.point[0], "run": task.run, "drawn": rng_of(options, *task.point).random()}]

    def finish(options: Options, rows: list[Row]) -> Result:
        return Result("counted", "a title", ("point", "run", "drawn"), rows)

    points = [("a",), ("b",), ("c",)]
    figure = Figure("counted", "a title", 2, lambda options: points, work, finish)
    chosen, path = Options(seed=2), tmp_path / "rows.jsonl"
    whole = as_json(run(figure, chosen, quiet=True, rows_file=path))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:20])
    done.clear()
    assert as_json(run(figure, chosen, quiet=True, rows_file=path, resume=True)) == whole
    assert done == [Task(("b",), 0), Task(("b",), 1), Task(("c",), 0), Task(("c",), 1)]
    done.clear()
    assert as_json(run(figure, chosen, quiet=True, rows_file=path, resume=True)) == whole
    assert not done
    with pytest.raises(JournalError, match="another run"):
        run(figure, Options(seed=3), quiet=True, rows_file=path, resume=True)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("thesis-fig3.12", 0),
        ("thesis-fig3.15", 0),
        ("thesis-fig4.6", 0),
        ("thesis-fig5.11", 0),
        ("thesis-fig5.13", -1),
        ("thesis-p4", -1),
        ("thesis-elmo", 0),
    ],
)
def test_one_run_of_a_point_follows_from_the_seed(name: str, at: int) -> None:
    figure, chosen = FIGURES[name], Options(seed=3)
    point = figure.points(chosen)[at]
    rows = figure.work(chosen, Task(point, 0))
    assert rows
    assert rows == figure.work(chosen, Task(point, 0))
    assert rows != figure.work(Options(seed=4), Task(point, 0))


def test_how_often_the_printed_algorithm_is_wrong_is_a_range(folder: Path) -> None:
    """The count of a single run would not be repeatable."""
    figure, chosen = FIGURES["thesis-printed"], options(folder)
    tasks = [Task(point, number) for number in range(3) for point in figure.points(chosen)]
    rows = [row for task in tasks for row in figure.work(chosen, task)]
    result = figure.finish(chosen, rows)
    assert [row["order"] for row in result.rows] == list(ORDERS)
    assert all(row["least"] <= row["wrong of 60"] <= row["most"] for row in result.rows)
    assert {row["mended"] for row in result.rows} == {0}
    rows[0]["mended"] = 1
    assert not figure.finish(chosen, rows).checks[1].holds


@pytest.mark.parametrize(("high", "holds"), [(6.0, True), (5.0, False)])
def test_loads_are_held_beside_the_thesis_as_a_ratio(high: float, holds: bool) -> None:
    figure = FIGURES["thesis-fig5.12"]
    rows = [
        {"subscribers %": d, "strategy": name, "rules/switch": limit, "header bytes": 60, "KB": load}
        for d, load in ((30, 2.5), (70, high))
        for name in chapter5.COMPARED
        for limit in chapter5.LIMITS
    ]
    _, ratio, absolute = figure.finish(Options(), rows).checks
    assert ratio.holds is holds
    assert not absolute.holds  # no notification of 50 bytes can load so few links with 50 KB
    assert "20 and" in absolute.seen


def test_modified_rules_as_a_whole() -> None:
    result = run(FIGURES["thesis-fig4.8"], Options(seed=1, runs=1), quiet=True)
    assert [check.holds for check in result.checks] == [True] * 3


def test_elmos_headers_are_counted_as_its_programs_read_them() -> None:
    """Groups in the publisher's rack, in its pod and in another pod: the parts of a header one by one."""
    network = elmo.clos()
    source, same, near, other = (
        network.names.index(f"host{name}") for name in ("0.0.0", "0.0.1", "0.1.0", "3.2.0")
    )
    rack = 1 + elmo.MACHINES + elmo.PLANES + 2
    pod = elmo.RACKS + elmo.SPINES + 2
    assert elmo.elmo_bytes(request(network, source, [same])) == -(-rack // 8)
    below = 1 + elmo.MACHINES + 1 + 7 + 1  # 96 racks have ids of 7 bits
    assert elmo.elmo_bytes(request(network, source, [same, near])) == -(-(rack + pod + below) // 8)
    shared = below + 7 + 1  # both racks have the same machine's bit
    far = elmo.PODS + 1 + elmo.RACKS + 1 + 4 + 1
    assert elmo.elmo_bytes(request(network, source, [near, other])) == -(-(rack + pod + far + shared) // 8)


def test_a_tenant_fills_a_pods_racks_first() -> None:
    network = elmo.clos()
    tenant = elmo._placed(network, 100, Random(3))
    places = [network.names[network.switch_of(host)] for host in tenant]
    assert len(set(tenant)) == 100
    assert [places.count(rack) for rack in dict.fromkeys(places)] == [*[elmo.PER_RACK] * 8, 4]
    assert len({rack.split(".")[0] for rack in places[:96]}) == 1
    assert len(elmo._placed(network, 10**6, Random(3))) == elmo.PODS * elmo.RACKS * elmo.PER_RACK


def test_what_is_learned_is_measured_on_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "SEEN", (4, 12))
    result = run(FIGURES["thesis-learned"], options(folder), quiet=True)
    assert [row["seen"] for row in result.rows] == [4, 12]
    for row in result.rows:
        saved = 100 * (1 - row["learned labels"] / row["strategy's labels"])
        assert row["saved %"] == pytest.approx(saved, abs=0.1)
        assert row["judged labels"] <= row["strategy's labels"] or row["judged saved %"] < 0


def test_pictures_of_all_kinds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [{"x": x, "y": y, "kind": f"k{x}", "n": 10.0**x, "m": 1} for x in range(3) for y in ("a", "b")]
    plots = tuple(
        Plot(x, y, "kind", kind=kind, stacked=stacked)
        for kind, x, y, stacked in (
            ("lines", "x", "n", ()),
            ("bars", "x", "n", ()),
            ("bars", "x", "n", ("n", "m")),
            ("dots", "y", "n", ("n", "m")),
            ("grid", "x", "y", ()),
            ("scatter", "m", "n", ("n",)),
        )
    )
    files = write(Result("all", "a title", ("x", "y"), rows, plots=plots), tmp_path)
    pictures = [file for file in files if file.suffix == ".png"]
    assert len(pictures) == len(plots)
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_all_figures_of_the_issue_are_there() -> None:
    wanted = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15", "4.5", "4.6", "4.7", "4.8"]
    wanted += ["5.11", "5.12", "5.13", "6.9", "6.14", "6.15"]
    assert {f"thesis-fig{number}" for number in wanted} <= set(FIGURES)
    assert all(name == figure.name for name, figure in FIGURES.items())


@pytest.mark.parametrize("name", SCENARIOS)
def test_clients_move_as_far_as_they_should(name: str, folder: Path) -> None:
    network = load("Mini", folder)
    before, after = scenario(network, name, 0.3, Random(2))
    assert len(before.subscribers) == len(after.subscribers) == 4
    assert all(len(subs) == 4 and publisher not in subs for publisher, subs in before.subscribers.items())
    assert all(0.01 <= share <= 1 for subs in before.subscribers.values() for share in subs.values())
    still = moved(before, after, 0.0, Random(1))
    assert still.subscribers.keys() == before.subscribers.keys()
    assert all(set(still.subscribers[p]) == set(before.subscribers[p]) for p in before.subscribers)
    gone = moved(before, after, 1.0, Random(1))
    assert gone.subscribers.keys() == after.subscribers.keys()
    for churn in (0.0, 0.5, 1.0):
        mixed = moved(before, after, churn, Random(3))
        assert len(mixed.subscribers) == 4
        assert all(publisher not in subs and subs for publisher, subs in mixed.subscribers.items())
        for asked in notifications(network, mixed, 5, Random(4)):
            assert asked.receivers
            assert not asked.receivers >> asked.start & 1


def test_topologies_by_name(folder: Path, tmp_path: Path) -> None:
    assert available(["Mini", "Nowhere"], folder) == ["Mini"]
    with pytest.raises(RoutingError, match="Nowhere"):
        load("Nowhere", folder)
    (tmp_path / "Bad.graph").write_text("NODES x")
    with pytest.raises(RoutingError, match="Bad"):
        load("Bad", tmp_path)
    assert counts_note("Mini", load("Mini", folder)) == ""
    assert named(("Mini", "Mini"), folder) == ("Mini",)
    with pytest.raises(RoutingError, match="none of the networks"):
        named(("all",), folder)
    (tmp_path / "Litnet.graph").write_text((folder / "Mini.graph").read_text())
    assert named(("all",), tmp_path) == ("Litnet",)
    assert len(TABLE_6_1) == 27


def test_which_networks_are_scale_free() -> None:
    star, ring = (
        build("abcdefgh", [(0, n) for n in range(1, 8)]),
        build("abcdefgh", [(n, (n + 1) % 8) for n in range(8)]),
    )
    middle = build("abcdefgh", [(n, n + 1) for n in range(6)] + [(3, 7)])
    assert scale_free({"star": star, "ring": ring, "middle": middle}) == {
        "star": True,
        "ring": False,
        "middle": False,
    }


def test_averages() -> None:
    rows = [{"a": 1, "b": 2.0}, {"a": 2, "b": 5.0}, {"a": 1, "b": 4.0}]
    assert averages(rows, ("a",), ("b",)) == [{"a": 1, "b": 3.0}, {"a": 2, "b": 5.0}]
    assert value(rows, "b", a=1) == 3.0
    assert value(rows, "b", a=9) == 0.0


def test_a_result_without_matplotlib_is_text_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = Result(
        "x", "a title", ("n",), [{"n": 1.5}], [Check("it is so", False, "1.5")], plots=(Plot("n", "n", "n"),)
    )
    assert [file.name for file in write(result, tmp_path)] == ["x.json", "x.txt"]
    assert "does not hold: it is so (1.5)" in (tmp_path / "x.txt").read_text()


def test_a_plot_leaves_out_rows_of_other_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [{"x": 1, "y": 2.0, "case": "a", "panel": "p"}, {"x": 1, "z": 3.0, "other": "b", "panel": "p"}]
    plots = (Plot("x", "y", "case", panel="panel"), Plot("x", "z", "other"))
    files = write(Result("two", "a title", ("x",), rows, plots=plots), tmp_path)
    assert len([file for file in files if file.suffix == ".svg"]) == 2
    assert all(file.stat().st_size for file in files)
