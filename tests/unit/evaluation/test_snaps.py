"""SNAPS' figures: groups as the paper draws them, counts by hand, and checks that can fail."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from tests.unit.routing.networks import random_network

from treecast.middleware.evaluation.figure import Options, Result, Task
from treecast.middleware.evaluation.report import write
from treecast.middleware.evaluation.runner import run
from treecast.middleware.evaluation.snaps import FIGURES, churn, fig5, fig6, fig7, fig10, printed
from treecast.middleware.evaluation.snaps.sharing import (
    CASES,
    SPREADS,
    Drawing,
    count,
    drawn,
    places,
    planner,
    zones,
)
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, RoutingError, build
from treecast.middleware.routing.replication.paths import Paths

LINE = build([f"n{i}" for i in range(30)], [(i, i + 1) for i in range(29)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks of 60 and 40 routers in REPETITA's format, with places and weights as of Rocketfuel."""
    path: Path = tmp_path_factory.mktemp("networks")
    for name, nodes in (("Cogentco", 60), ("rf1239_real_hard", 40)):
        (path / f"{name}.graph").write_text(repetita(random_network(1, nodes, 20)))
    return path


def repetita(network: Network) -> str:
    lines = [f"NODES {network.node_count}", "label x y", *(f"San+Jose,+CA{n} 0.0 0.0" for n in network.names)]
    lines += ["", f"EDGES {len(network.tails)}", "label src dest weight bw delay"]
    ends = zip(network.tails, network.heads, strict=True)
    return "\n".join([*lines, *(f"edge_{n} {a} {b} 3 9920000 1" for n, (a, b) in enumerate(ends))])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(churn, "CHANGES", 60)
    monkeypatch.setattr(fig10, "BACKGROUND", (20, 120))
    monkeypatch.setattr(fig10, "CAPACITY", 3e6)
    for module in (churn, fig5, fig6, fig7, printed):
        monkeypatch.setattr(module, "LEAVES", (4, 12) if module is fig6 else 12)
        monkeypatch.setattr(module, "GROUPS", (20, 80) if module is fig5 else 80)


def options(folder: Path) -> Options:
    return Options(seed=3, runs=2, jobs=1, topology_dir=folder)


IN_LABS = (
    "snaps-fig8",
    "snaps-fig9",
    "snaps-fig10",
)  # these start servers: tests/network has their short forms


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in IN_LABS])
def test_every_figure_runs_and_its_claims_of_us_hold(name: str, folder: Path, tmp_path: Path) -> None:
    result = run(FIGURES[name], options(folder), quiet=True)
    ours = [check for check in result.checks if check.statement.startswith(("ours", "mended"))]
    assert all(check.holds for check in ours), ours
    shown(result, tmp_path)


def shown(result: Result, folder: Path) -> None:
    """Checks that a result has all columns in all rows, and each picture in all forms."""
    pytest.importorskip("matplotlib")
    assert result.rows
    assert all(set(result.columns) <= set(row) for row in result.rows)
    written = Counter(file.suffix for file in write(result, folder))
    assert written[".png"] == written[".svg"] == written[".pdf"] == len(result.plots)


def test_a_tree_leaves_a_link_that_fills(folder: Path, tmp_path: Path) -> None:
    """Figure 10 with slower links: all that the paper says of it, and error bars of both runs."""
    result = run(FIGURES["snaps-fig10"], options(folder), quiet=True)
    assert all(check.holds for check in result.checks), result.checks
    alone, engineered = [row for row in result.rows if row["background Mbit/s"] == 120]
    assert alone["loss %"] > alone["± loss %"] > 0
    assert engineered["loss %"] == engineered["± loss %"] == 0
    assert [plot.error for plot in result.plots] == ["± loss %", "± median ms"]
    shown(result, tmp_path)


@pytest.mark.parametrize(("method", "loss", "failed"), [(0, 0.0, 0), (1, 0.1, 1)])
def test_the_checks_of_loss_fail_without_their_effect(method: int, loss: float, failed: int) -> None:
    """Figure 10: no loss without traffic engineering, or some with it, is a failed check."""
    columns = ("loss %", "median ms", "away", "back", "loss % after", "twice", "moves")
    rows = [
        {"background Mbit/s": background, "method": one, **dict.fromkeys(columns, 0.0), "places": ""}
        for background in (20, 120)
        for one in fig10.METHODS
    ]
    rows[2]["loss %"] = 7.0  # the last background, without traffic engineering
    assert [check.holds for check in fig10.checks(rows)][:2] == [True, True]
    rows[2 + method]["loss %"] = loss
    assert not fig10.checks(rows)[failed].holds


def test_what_is_not_at_hand_is_left_out_and_said(folder: Path) -> None:
    assert fig7.networks(options(folder)) == ("Cogentco", "rf1239_real_hard")
    result = run(FIGURES["snaps-fig7"], options(folder), quiet=True)
    assert "not at hand: Tinet, VtlWavenet2008, Interoute, GtsCe, UsCarrier" in result.notes
    alone = Options(seed=3, runs=1, jobs=1, topologies=("Cogentco",), topology_dir=folder)
    assert not run(FIGURES["snaps-fig7"], alone, quiet=True).checks


def test_a_network_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoutingError, match="Cogentco"):
        run(FIGURES["snaps-fig5"], options(tmp_path), quiet=True)


@pytest.mark.parametrize("name", ["snaps-fig5", "snaps-fig7", "snaps-printed", "snaps-churn"])
def test_rows_follow_from_the_seed(name: str, folder: Path) -> None:
    figure = FIGURES[name]
    point = figure.points(options(folder))[-1]
    rows = figure.work(options(folder), Task(point, 0))
    assert rows == figure.work(options(folder), Task(point, 0))
    if name != "snaps-printed":
        assert rows != figure.work(Options(seed=4, topology_dir=folder), Task(point, 0))


def test_groups_have_their_size_and_no_node_twice() -> None:
    drawing = Drawing(Paths(LINE))
    for spread in SPREADS:
        for seed in range(40):
            root, leaves = drawing.group(spread, 12, Random(seed))
            assert leaves.bit_count() == 12
            assert not leaves >> root & 1
    assert drawing.group("local", 29, Random(1))[1].bit_count() == 29


def test_locality_draws_neighbours() -> None:
    """On a line the next member is one hop away with a share e^-2 of all weights, by far the largest."""
    drawing, steps = Drawing(Paths(LINE)), Counter[int]()
    for seed in range(2000):
        rng = Random(seed)
        root, leaves = drawing.group("local", 1, rng)
        steps[abs(root - members(leaves)[0])] += 1
    shares = [steps[d] / 2000 for d in (1, 2, 3)]
    assert shares[0] == pytest.approx(1 - 0.1353, abs=0.03)  # 1 - e^-2, except near the ends of the line
    assert shares[1] / shares[0] == pytest.approx(0.1353, abs=0.03)


def test_counts_by_hand() -> None:
    """A star with a root or a transit node in the middle: the paper counts neither root nor member there; the
    corrected count has both."""
    star = build("abcdef", [(0, n) for n in range(1, 6)])
    paths = Paths(star)
    groups = [(0, mask_of([1, 2, 3])), (4, mask_of([1, 2, 3])), (5, mask_of([1, 2, 3, 0]))]
    for method, alone, shared in (("paper", [0, 1, 2], [0, 1, 1]), ("mended", [1, 2, 3], [1, 1, 2])):
        found = list(count(paths, "direct", method, groups, [1, 2, 3]))
        assert [one.alone for one in found] == alone, method
        assert [one.shared for one in found] == shared, method
    (last,) = count(paths, "direct", "superset", [groups[2], groups[1]], [2])
    assert (last.shared, last.unwanted) == (1, 1)
    assert last.row == {
        "groups": 2,
        "segments alone": 1.0,
        "segments shared": 0.5,
        "ratio": 2.0,
        "unwanted": 0.5,
    }


@pytest.mark.parametrize(("strategy", "method"), CASES)
def test_sharing_never_needs_more_than_each_group_alone(strategy: str, method: str) -> None:
    paths = Paths(random_network(2, 40, 15))
    groups = drawn(paths, "local", 10, 60, Random(1))
    (found,) = count(paths, strategy, method, groups, [60])
    assert 0 < found.shared < found.alone
    assert (found.unwanted > 0) is (method == "superset")
    if method == "mended":
        plan = planner(paths, strategy)
        tops = [plan(root, leaves, 0).top for root, leaves in groups]
        assert found.alone == sum(places(top) for top in tops if top is not None)


def test_zones_hold_every_router_once() -> None:
    network = random_network(2, 60, 15)
    assert sorted(node for zone in zones(network) for node in zone) == list(range(60))
