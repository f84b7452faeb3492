"""The short form of `pacing_runs`; its checks find faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.fabric import pacing_runs
from tests.unit.fabric.invariants import BrokenError, CheckedStations
from tests.unit.fabric.links import Weather
from tests.unit.fabric.pacing_runs import main, run, table
from tests.unit.fabric.pacing_scenarios import SCENARIOS
from tests.unit.fabric.stations import SpinningError

from treecast.middleware.fabric.core import live
from treecast.middleware.fabric.core.live import Live
from treecast.middleware.fabric.core.peers import Peer
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.streams import Streams

SEEDS = 3


@pytest.mark.compiled_suffices
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pacing_holds_its_invariants_and_bounds(scenario: str, seed: int) -> None:
    assert not run(scenario, seed)["broken"]


of_interpreted_code = pytest.mark.skipif(
    not str(live.__file__).endswith(".py"),
    reason="compiled methods call each other directly, and not what a test puts in their place",
)


def test_who_left_a_group_with_a_full_buffer_is_replayed_to() -> None:
    """With no room reported, such a host was sent nothing at all."""
    assert not run("loss_goes", 70)["broken"]


def stations() -> CheckedStations:
    weather = Weather(delay=0.0005, uplink=5e6)
    return CheckedStations(1, weather, StreamSettings(mtu=1400), 3, patience=1.0)


def burst(made: CheckedStations, seconds: float = 2.0) -> None:
    group = made.group(1, 7, [2, 3])
    made.run(0.2)
    made.publish(group, 6_000, 300)
    assert made.run_until(lambda: made.complete(group), seconds)


def test_a_burst_without_faults_is_delivered_once_and_in_order() -> None:
    made = stations()
    burst(made)
    assert all(one.overflowed == 0 for one in made.stations.values())
    assert made.sent_bytes[1] < 1.1 * 300 * 6_000


@of_interpreted_code
def test_more_on_its_way_than_the_window_allows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Live, "_may", lambda self: 1 << 20)
    with pytest.raises(BrokenError, match="live bytes"):
        burst(stations())


def test_a_cursor_that_goes_back_is_found() -> None:
    made = stations()
    group = made.group(1, 7, [2, 3])
    made.run(0.2)
    made.publish(group, 6_000, 20)
    made.run(0.05)
    group.sender.live.edge -= 1
    made.publish(group, 6_000, 1)
    with pytest.raises(BrokenError, match="cursor"):
        made.run(1.0)


@of_interpreted_code
def test_a_deadlock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "settle", lambda self, next_, now: None)
    monkeypatch.setattr(Live, "heard", lambda self, peer, report, now: None)
    with pytest.raises(BrokenError, match="nothing was delivered"):
        burst(stations(), 5.0)


def test_a_host_that_spins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streams, "next_deadline", lambda self, now: now)
    with pytest.raises(SpinningError):
        burst(stations())


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
