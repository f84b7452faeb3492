"""The oracle of the scenario `disk-loss`: which records must remain, and which may be lost if they are
named."""

from __future__ import annotations

import pytest
from tests.fault.hosts.disk_load import Ack, Place
from tests.fault.hosts.disk_loss import Loss, judge

P: Place = ("t", 0)
LOSSES = [Loss("h", 10.0, {P: 5}), Loss("h", 20.0, {P: 8})]


def ack(offset: int, at: float, sequence: int = 1) -> Ack:
    return Ack(P, offset, 0, sequence, at)


@pytest.mark.parametrize(
    ("heard", "named", "there", "outcome"),
    [
        pytest.param(ack(4, 9.0), [5, 8], True, "found", id="where it was said to be"),
        pytest.param(ack(4, 9.0), [4, 8], False, "wrong", id="another host had it: naming it is not enough"),
        pytest.param(ack(5, 9.0), [5, 8], False, "lost", id="on the first disk alone, and named"),
        pytest.param(ack(7, 9.0), [5, 8], False, "lost", id="the same, further on"),
        pytest.param(ack(5, 9.0), [6, 8], False, "wrong", id="the name begins after it"),
        pytest.param(ack(5, 9.0), [], False, "wrong", id="nothing is named"),
        pytest.param(
            ack(5, 11.0), [5, 8], False, "wrong", id="heard after the loss, and copied at the second"
        ),
        pytest.param(ack(8, 11.0), [5, 8], False, "lost", id="on the second disk alone"),
        pytest.param(ack(8, 11.0), [5], False, "wrong", id="the second is not named"),
        pytest.param(ack(8, 21.0), [5, 8], False, "wrong", id="heard after the last loss"),
    ],
)
def test_judged(heard: Ack, named: list[int], there: bool, outcome: str) -> None:
    records = {P: {heard.offset: (0, heard.sequence if there else 99)}}
    judged = judge([heard], LOSSES, {P: named}, records)
    assert (judged.found, judged.lost, len(judged.problems)) == {
        "found": (1, 0, 0),
        "lost": (0, 1, 0),
        "wrong": (0, 0, 1),
    }[outcome]


def test_a_partition_that_nobody_lost_has_all() -> None:
    elsewhere = Ack(("u", 0), 3, 0, 1, 1.0)
    assert judge([elsewhere], LOSSES, {}, {}).problems
    assert judge([elsewhere], LOSSES, {}, {("u", 0): {3: (0, 1)}}).found == 1
