import json

import pytest
from bench.core import report, versus
from bench.core.measure import ACK_P50, ACK_P99, LAG_P99, SERVER_CPU, THROUGHPUT, Sample
from rich.console import Console


def samples(metric, **values):
    names = {"ours": "Treecast", "theirs": "Apache Kafka", "floor": "floor"}
    return [
        Sample(names[who], number, "load", metric, value)
        for who, found in values.items()
        for number, value in enumerate(found, 1)
    ]


def row(metric, **values):
    (only,) = report.summarise(samples(metric, **values), "Treecast", "Apache Kafka")
    return only


def test_median_spread_and_ratio():
    found = row(THROUGHPUT, ours=[300, 100, 200], theirs=[50, 100])
    assert found.peers["Treecast"] == report.Spread(200, 100, 300, 3, steady=False)
    assert found.peers["Apache Kafka"].median == 75
    assert found.ratio == pytest.approx(200 / 75)
    assert (found.reached, found.verdict) == (True, "yes")
    assert found.share_of_floor is None


@pytest.mark.parametrize(
    ("metric", "ours", "theirs", "floor", "verdict", "share"),
    [
        (THROUGHPUT, 199, 100, 400, "no", 199 / 400),
        (THROUGHPUT, 200, 100, 400, "yes", 0.5),
        (THROUGHPUT, 150, 100, 160, "yes (floor)", 150 / 160),
        (THROUGHPUT, 143, 100, 160, "no", 143 / 160),
        (THROUGHPUT, 180, 100, 160, "no", 180 / 160),  # a floor that is beaten so clearly is no floor
        (SERVER_CPU, 50, 100, 10, "yes", 0.2),
        (SERVER_CPU, 51, 100, 10, "no", 10 / 51),
        (SERVER_CPU, 80, 100, 75, "yes (floor)", 75 / 80),
    ],
)
def test_a_ratio_counts_at_its_value_or_at_nine_tenths_of_the_floor(
    metric, ours, theirs, floor, verdict, share
):
    found = row(metric, ours=[ours], theirs=[theirs], floor=[floor])
    assert found.verdict == verdict
    assert found.share_of_floor == pytest.approx(share)


def test_no_verdict_where_the_rounds_of_the_bare_loop_lie_far_apart():
    steady = row(THROUGHPUT, ours=[300], theirs=[100], floor=[400, 800])
    unsteady = row(THROUGHPUT, ours=[300], theirs=[100], floor=[400, 801])
    assert (steady.verdict, steady.reached) == ("yes", True)
    assert (unsteady.verdict, unsteady.reached) == ("unsteady", None)
    assert row(ACK_P50, ours=[3], theirs=[1], floor=[400, 801]).verdict == ""  # no requirement


@pytest.mark.parametrize(
    ("many", "left_out"), [(1, 0), (5, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (25, 7)]
)
def test_how_sure_a_median_is_hangs_on_all_rounds_where_they_are_few(many, left_out):
    """The bounds agree with the tables of the sign test."""
    values = [float(number) for number in range(many)]
    assert report.sure(values[::-1]) == (values[left_out], values[many - 1 - left_out])


def test_one_bad_round_of_many_says_nothing_of_the_machine():
    assert row(THROUGHPUT, ours=[300], theirs=[100], floor=[*[500] * 8, 100]).verdict == "yes"
    assert row(THROUGHPUT, ours=[300], theirs=[100], floor=[*[500] * 7, 100, 100]).verdict == "unsteady"
    assert row(THROUGHPUT, ours=[300], theirs=[100], floor=[*[500] * 4, 100]).verdict == "unsteady"


@pytest.mark.parametrize(
    ("lag_of_ours", "lag_of_theirs", "verdict"),
    [
        ([1, 2, 3], [9], "yes"),
        ([1, 2.1, 3], [9], "unsteady"),
        ([0.1], [11], "unsteady"),
    ],
)
def test_no_verdict_on_a_p99_that_is_mostly_the_generators_own_lag(lag_of_ours, lag_of_theirs, verdict):
    taken = samples(ACK_P99, ours=[3, 4, 5], theirs=[20, 21])
    taken += samples(LAG_P99, ours=lag_of_ours, theirs=lag_of_theirs)
    found, lag = report.summarise(taken, "Treecast", "Apache Kafka")
    assert (found.verdict, found.reached) == (verdict, True if verdict == "yes" else None)
    assert (lag.verdict, lag.late) == ("", frozenset())
    pair = versus.Versus("Treecast", "Apache Kafka", {ACK_P99: 0.5})
    assert [ratio.verdict for ratio in versus.compare([found, lag], [pair])] == [verdict]


def test_nothing_is_claimed_without_both_sides_or_a_target():
    assert row(THROUGHPUT, theirs=[1.0]).verdict == ""
    assert row(THROUGHPUT, ours=[1.0], floor=[1.0]).reached is None
    assert row(ACK_P50, ours=[1.0], theirs=[2.0]).verdict == ""
    assert row(SERVER_CPU, ours=[1.0], theirs=[0.0]).ratio is None


def test_workloads_stay_together_in_order_of_appearance():
    mixed = [
        Sample("Treecast", 1, "server", THROUGHPUT, 1),
        Sample("Treecast", 1, "load", THROUGHPUT, 1),
        Sample("Treecast", 1, "server", SERVER_CPU, 1),
    ]
    rows = report.summarise(mixed, "Treecast", "Apache Kafka")
    assert [(row.workload, row.metric) for row in rows] == [
        ("server", THROUGHPUT),
        ("server", SERVER_CPU),
        ("load", THROUGHPUT),
    ]


def test_every_form_of_the_report_carries_the_numbers(tmp_path):
    taken = samples(THROUGHPUT, ours=[3e6, 4e6], theirs=[1e6], floor=[5e6])
    rows = report.summarise(taken, "Treecast", "Apache Kafka")
    names = ["Treecast", "Apache Kafka", "floor"]
    report.write_json(tmp_path / "sub" / "r.json", report.as_json(rows, taken, {"rounds": 2}))
    document = json.loads((tmp_path / "sub" / "r.json").read_text())
    (summary,) = document["summary"]
    assert summary["ratio"] == 3.5
    assert summary["peers"]["Treecast"] == {"median": 3.5e6, "low": 3e6, "high": 4e6, "rounds": 2}
    assert (document["rounds"], len(document["samples"])) == (2, 4)
    assert "| 3.5M (3M-4M) | 1M | 5M | 3.5x | ≥ 2x | yes | 70% |" in report.as_markdown(rows, names)
    console = Console(record=True, width=150)
    console.print(report.as_table(rows, names))
    assert "3.5M 3M-4M" in console.export_text()


@pytest.mark.parametrize(
    ("value", "text"), [(0.012345, "0.01235"), (12.3, "12.3"), (65432.1, "65,432"), (1234567, "1.235M")]
)
def test_numbers_are_short(value, text):
    assert report.number(value) == text


def test_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    from bench.core import plot

    taken = samples(THROUGHPUT, ours=[3e6, 4e6], theirs=[1e4], floor=[5e6])
    taken += samples(SERVER_CPU, ours=[1.0], theirs=[2.0])
    rows = report.summarise(taken, "Treecast", "Apache Kafka")
    plot.draw(rows, ["Treecast", "Apache Kafka", "floor"], tmp_path / "p.svg", "title")
    drawn = (tmp_path / "p.svg").read_text()
    assert drawn.count("<svg ") == 1
