"""The files of a comparison, with two peers and with several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench.core import outcome, report, versus
from bench.core.measure import THROUGHPUT, Sample
from bench.core.outcome import Outcome, Picture
from bench.core.peer import Peer
from bench.core.rounds import Rounds
from rich.console import Console


class Known(Peer):
    """A peer that was measured before."""

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> float:
        raise AssertionError("it was measured before")

    def stop(self) -> None: ...

    def pids(self) -> list[int]:
        return []

    def settings(self) -> Mapping[str, str]:
        return {"version": f"of {self.name}"}


PEERS = [Known("Treecast"), Known("Other")]


@pytest.fixture
def run() -> Rounds:
    made = Rounds(PEERS, [], 1, settle=0, progress=lambda line: None)
    values = {"Treecast": 3e6, "Other": 1e6}
    made.samples = [Sample(name, 1, "load", THROUGHPUT, value) for name, value in values.items()]
    made.failures.append("it broke")
    return made


@pytest.fixture(autouse=True)
def _no_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome.plot, "draw", lambda *_: None)


def published(one: Outcome, folder: Path) -> tuple[dict, str, str]:
    console = Console(record=True, width=150)
    outcome.publish(one, Picture("title"), folder, "bench-x", console, json=False)
    document = json.loads((folder / "bench-x.json").read_text())
    return document, (folder / "bench-x.md").read_text(), console.export_text()


def test_of_two_peers_the_rows_have_the_ratios(run: Rounds, tmp_path: Path) -> None:
    rows = report.summarise(run.samples, "Treecast", "Other")
    document, markdown, shown = published(Outcome(run, PEERS, rows, {"comparison": "x"}), tmp_path)
    assert (document["comparison"], document["failures"]) == ("x", ["it broke"])
    assert document["peers"]["Other"] == {"version": "of Other"}
    assert document["machine"]
    assert "ratios" not in document
    for text in (markdown, shown):
        assert "3x" in text
    assert "failed: it broke" in shown


def test_of_several_each_pair_has_its_own(run: Rounds, tmp_path: Path) -> None:
    rows = report.summarise(run.samples, "", "")
    ratios = versus.compare(rows, [versus.Versus("Treecast", "Other", {THROUGHPUT: 2.0})])
    one = Outcome(run, PEERS, rows, {}, ratios, ["Other did not keep up"])
    document, markdown, shown = published(one, tmp_path)
    assert [ratio["reached"] for ratio in document["ratios"]] == [True]
    assert document["notes"] == ["Other did not keep up"]
    for text in (markdown, shown):
        assert "3x" in text
        assert "Other did not keep up" in text


def test_two_builds_are_held_against_each_other(run: Rounds, tmp_path: Path) -> None:
    before = versus.earlier("Treecast")
    run.samples.append(Sample(before, 1, "load", THROUGHPUT, 2e6))
    rows = report.summarise(run.samples, "Treecast", "Other")
    builds = versus.builds(rows, {"Treecast": before, "Other": versus.earlier("Other")})
    one = Outcome(run, [*PEERS, Known(before)], rows, {"comparison": "x"}, builds=builds)
    document, markdown, shown = published(one, tmp_path)
    (only,) = document["builds"]
    assert (only["ours"], only["theirs"], only["value"], only["reached"]) == ("Treecast", before, 1.5, None)
    for text in (markdown, shown):
        assert "1.5x" in text
        assert before in text


def test_a_load_without_a_valid_round_gets_no_verdict(run: Rounds, tmp_path: Path) -> None:
    run.unproven.add("load")
    run.notes.append("void: round 1, load: the load average was 7.00")
    rows = report.summarise(run.samples, "Treecast", "Other")
    document, markdown, shown = published(Outcome(run, PEERS, rows, {"comparison": "x"}), tmp_path)
    (row,) = document["summary"]
    assert (row["void"], row["reached"]) == (True, None)
    assert document["void"] == run.notes
    for text in (markdown, shown):
        assert "| void |" in text or " void " in text
        assert run.notes[0] in text
    ratios = versus.compare(rows, [versus.Versus("Treecast", "Other", {THROUGHPUT: 2.0})])
    one = Outcome(run, PEERS, rows, {"comparison": "x"}, ratios)
    assert [(ratio.reached, ratio.verdict) for ratio in one.ratios or ()] == [(None, "void")]
