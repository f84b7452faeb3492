"""Logs of stimuli: a replay from the file puts out what the first run did, and fails where it failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import replay
from tests.fuzz.segments import Attacked
from tests.fuzz.steps import live
from tests.unit.fabric import test_schedules as schedules
from tests.unit.queues import test_broker_reference as queues


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of the logs of failures."""
    monkeypatch.setattr(replay, "KEPT", tmp_path)
    return tmp_path


def same(log: replay.Log, file: Path) -> None:
    """Plays a log and what is read from its file; both put out the same."""
    log.write(file)
    read = replay.Log.read(file)
    assert replay.play(log) == replay.play(read)
    assert replay.again(read) == 0


@given(queues.steps, st.booleans())
@settings(max_examples=30)
def test_queues(tmp_path_factory: pytest.TempPathFactory, program: list[queues.Step], spills: bool) -> None:
    file = tmp_path_factory.getbasetemp() / "queues.jsonl"
    same(replay.Log("queues", {"spills": spills}, [*queues.BEGIN, *program]), file)


@given(st.lists(st.one_of(schedules.PUBLISH, *schedules.OTHERS), max_size=8), st.integers(0, 99))
@settings(max_examples=15)
def test_a_stream(tmp_path_factory: pytest.TempPathFactory, steps: schedules.Steps, seed: int) -> None:
    given = {"seed": seed, "multicast": seed % 2 == 1, "lossless": True}
    same(replay.Log("stream", given, [*steps]), tmp_path_factory.getbasetemp() / "stream.jsonl")


def test_a_host_that_is_attacked(folder: Path) -> None:
    """Its log was drawn step by step; the replay draws nothing."""
    log, _ = live(5, 200)
    assert {step[0] for step in log.steps} == {"renew", "grow", "attack", "check"}
    same(log, folder / "log.jsonl")


def test_a_failure_is_kept_up_to_its_step_and_fails_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Attacked.attack

    def faulty(self: Attacked, packets: list[str], seconds: float) -> None:
        whole(self, packets, seconds)
        assert seconds != 2.0, "two seconds are too long"

    log, _ = live(1, 5)
    sound = [step for step in log.steps if step[0] != "attack" or step[2] != 2.0]
    log.steps = [*sound, ["attack", [], 2.0], ["attack", [], 0.0]]
    monkeypatch.setattr(Attacked, "attack", faulty)
    with pytest.raises(AssertionError, match="too long") as found:
        replay.play(log)
    file = folder / "segments.jsonl"
    assert found.value.__notes__ == [f"again: python -m tests.replay {file}"]
    assert replay.Log.read(file).steps[-1] == ["attack", [], 2.0]
    assert replay.main([str(file), "--show"]) == 1
    shown = capsys.readouterr()
    assert '["attack", [], 2.0]' in shown.out
    assert "two seconds are too long" in shown.err
    monkeypatch.setattr(Attacked, "attack", whole)
    assert replay.main([str(file)]) == 0, "it is mended"


def test_what_is_no_log(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text('{"world": "moon", "given": {}}\n')
    with pytest.raises(ValueError, match="moon is none"):
        replay.Log.read(file)
