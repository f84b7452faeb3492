"""SNAPS' figures with RabbitMQ servers: their scenarios, their lab, their statements, and their pictures."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

from treecast.agents.rabbitmq.session import Delivered
from treecast.middleware.evaluation.figure import Check, NotMeasured, Options, Row, Task
from treecast.middleware.evaluation.journal import Journal, JournalError
from treecast.middleware.evaluation.report import write
from treecast.middleware.evaluation.runner import run
from treecast.middleware.evaluation.snaps import FIGURES, fig8, fig9, trial
from treecast.middleware.evaluation.snaps.ends import STAMP, WARM, Subscriber
from treecast.middleware.evaluation.snaps.scenarios import MODES, Scenario, Trial, Wires
from treecast.middleware.evaluation.snaps.sites import CENTER, described
from treecast.middleware.routing.topologies import isp

QUICK = Options(quick=True, scenarios=("Scen-1", "Scen-6"))


def row(mode: str, scenario: str, **given: Any) -> Row:
    """A row in which all is as the paper says, but for what is given."""
    slow = {"classic": 3.0, "federated": 2.0, "treecast": 1.0}[mode]
    lost = 30.0 if mode == "federated" and scenario in fig9.SATURATED else 0.0
    found: Row = {"mode": mode, "scenario": scenario, "run": 0, "loss %": lost, "twice": 0}
    found |= {
        "links": 4,
        "scale": 20.0,
        "other links": 0.1,
        "CPU %": slow,
        "agents %": 0.1,
        "idle %": 0.1,
    }
    found |= {f"link {name}": 2.6 for name in ("least", "q1", "median", "q3", "most")}
    found |= dict.fromkeys(trial.QUANTILES, slow)
    found["latencies ms"] = [slow + share for share in range(101)]
    return found | given


def rows(**ours: Any) -> list[Row]:
    """Rows of two scenarios. `ours`: of agents."""
    names = ("Scen-1", "Scen-6")
    return [row(mode, name, **(ours if mode == "treecast" else {})) for mode in MODES for name in names]


def held(checks: list[Check]) -> dict[str, bool]:
    return {check.statement: check.holds for check in checks}


def test_the_papers_statements_hold_where_all_is_as_it_says() -> None:
    assert all(held(fig9.checks(rows())).values())
    assert len(fig9.checks(rows())) == 5
    assert all(held(fig8.checks(rows())).values())


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ({"link most": 3.0}, "equal"),
        ({"loss %": 0.1}, "lost"),
        ({"median ms": 2.0}, "latency"),
        ({"CPU %": 2.5}, "CPU"),
    ],
)
def test_each_statement_can_fail(ours: dict[str, float], word: str) -> None:
    failed = [statement for statement, holds in held(fig9.checks(rows(**ours))).items() if not holds]
    assert len(failed) == 1
    assert word in failed[0]


def test_federation_that_loses_nothing_is_said() -> None:
    found = [one | {"loss %": 0.0} for one in rows()]
    assert [c.statement for c in fig9.checks(found) if not c.holds] == [
        "federation loses messages in Scen-6 and Scen-7, which fill its links"
    ]


def test_scenarios_that_were_not_run_are_not_judged() -> None:
    only = [one for one in rows() if one["scenario"] == "Scen-1"]
    assert len(fig9.checks(only)) == 4


def test_table_1() -> None:
    found = {one.name: one for one in fig9.scenarios(Options())}
    assert len(found) == 7
    assert found["Scen-3"].publisher == "h2"
    assert found["Scen-3"].hosts == ("h2", "h1", "h3", "h5", "h7", "h10", "h8", "h4")
    assert (found["Scen-7"].size, found["Scen-7"].rate) == (12_000, 20.8e6)
    assert len(found["Scen-4"].subscribers) == 9
    assert [one.name for one in fig9.scenarios(QUICK)] == ["Scen-1", "Scen-6"]


@pytest.mark.parametrize("figure", [fig8, fig9])
def test_a_scenario_that_does_not_exist_is_refused(figure: Any) -> None:
    with pytest.raises(NotMeasured, match="expected"):
        run(figure.FIGURE, Options(scenarios=("Scen-8",)), quiet=True)


def test_the_lab_has_the_papers_links() -> None:
    found = described(isp(), Wires(5e6, 0.01))
    assert len(found.switches) == 16
    assert list(found.hosts) == [*(f"h{number}" for number in range(1, 11)), CENTER]
    network = [link for link in found.links if link.rate is not None]
    assert {link.rate for link in network} == {5_000_000}
    between = {link.between for link in network if link.impairment.delay}
    assert len(between) == 21
    assert all(name.startswith("r") for pair in between for name in pair)
    # Their ports are numbered in this order at switches, and the controller is told of the same links.
    assert [link.between for link in network] == [(isp().names[a], isp().names[b]) for a, b in isp().ends]


SCENARIO = Scenario("Scen-1", "h1", ("h2", "h3"), 1500, 2.6e6, 20.0)
TRIAL = Trial(isp(), Wires(100e6, 0.01), (SCENARIO,), "h2", 10.0)


def test_hosts_of_scenarios_are_started_once() -> None:
    assert TRIAL.hosts() == ["h1", "h2", "h3"]


def test_rates_of_links_are_at_the_papers_scale() -> None:
    sent = round(2.6e6 / 20 / 8 * 10)  # bytes in 10 s at a twentieth of the rate
    links = {("r1", "r2"): sent, ("r2", "h2"): sent * 2, ("h2", "r2"): sent // 10}
    found = trial.links_of(trial.Seen(10.0, 0.0, 0.0, links), SCENARIO)
    assert found["links"] == 2
    assert found["link least"] == pytest.approx(2.6)
    assert found["link most"] == pytest.approx(5.2)
    assert found["other links"] == pytest.approx(0.26)


def deliveries(*numbers: int) -> Delivered:
    data = b""
    for number in numbers:
        body = STAMP.pack(number, 0) + b"filler"
        data += (2).to_bytes(4, "big") + len(body).to_bytes(4, "big") + b"\0\0" + body
    return Delivered(1, 1, len(numbers), b"readings", b"", data, False, False, False)


def test_a_subscriber_tells_lost_doubled_and_early_messages_apart() -> None:
    one = Subscriber("h3")
    one.begin(100, 4)
    one.delivered(deliveries(100, 102, WARM))
    one.delivered(deliveries(102, 103, 3, 104))
    assert (one.came, one.twice, one.warmed, one.earlier) == (3, 1, 1, 2)
    assert [latency >= 0 for latency in one.latencies] == [True, False, True, True]
    assert trial.delivered([one], 4)["loss %"] == 25.0
    assert trial.delivered([one], 4)["twice"] == 1


def test_latencies_are_the_subscribers_together() -> None:
    subscribers = [Subscriber("h2"), Subscriber("h3")]
    for number, one in enumerate(subscribers):
        one.latencies = array("q", [(number + 1) * 1_000_000, (number + 3) * 1_000_000])
    found = trial.delivered(subscribers, 2)
    assert (found["least ms"], found["median ms"], found["most ms"]) == (1.0, 3.0, 4.0)
    assert found["loss %"] == 0


@pytest.mark.parametrize("figure", [fig8, fig9])
def test_pictures_say_how_rates_are_scaled(figure: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = figure.finish(Options(scale=20.0), rows())
    written = write(result, tmp_path)
    pictures = [path for path in written if path.suffix == ".svg"]
    assert len(pictures) == len(result.plots)
    assert all("divided by 20" in plot.title for plot in result.plots)
    assert all(path.read_text().count("<path") > 5 for path in pictures)


def test_a_run_goes_on_only_with_its_own_options(tmp_path: Path) -> None:
    path, figure = tmp_path / "rows.jsonl", FIGURES["snaps-fig9"]
    journal = Journal(path, figure, QUICK)
    journal.begin(resume=False)
    journal.add(Task(("classic",), 0), [row("classic", "Scen-1")])
    journal.close()
    again = Journal(path, figure, QUICK)
    assert list(again.begin(resume=True)) == ['[["classic"], 0]']
    again.close()
    with pytest.raises(JournalError):
        Journal(path, figure, Options()).begin(resume=True)
