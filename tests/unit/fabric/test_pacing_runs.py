"""The short form of `pacing_runs`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.fabric import pacing_runs
from tests.unit.fabric.pacing_runs import main, run, table
from tests.unit.fabric.pacing_scenarios import SCENARIOS

SEEDS = 3


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pacing_holds_its_invariants_and_bounds(scenario: str, seed: int) -> None:
    assert not run(scenario, seed)["broken"]


def test_who_left_a_group_with_a_full_buffer_is_replayed_to() -> None:
    """With no room reported, such a host was sent nothing at all."""
    assert not run("loss_goes", 70)["broken"]


def test_runs_that_are_finished_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[int] = []

    def measured(seed: int) -> dict[str, float]:
        begun.append(seed)
        assert seed != 2, "the third run fails"
        return {"fairness": 0.9 if seed else 0.1, "times": 1.0, "copies": 1.0}

    monkeypatch.setitem(pacing_runs.SCENARIOS, "two_streams", measured)
    command = ["pacing_runs", "--only", "two_streams", "--keep", str(tmp_path / "runs"), "--json", "--seeds"]
    monkeypatch.setattr("sys.argv", [*command, "2"])
    assert main() == 1  # fairness of the first seed is below its bound
    monkeypatch.setattr("sys.argv", [*command, "3"])
    capsys.readouterr()
    assert main() == 1
    assert begun == [0, 1, 2]
    said = json.loads(capsys.readouterr().out)
    assert [one["seed"] for one in said["broken"]] == [0, 2]
    worst = {row["figure"]: (row["worst"], row["seed"]) for row in said["table"]}
    assert worst["fairness"] == (0.1, 0)
    monkeypatch.setattr("sys.argv", [*command, "5", "--seconds", "-1"])
    assert main() == 1
    assert json.loads(capsys.readouterr().out)["left"] == 2
    assert table([]) == []
