"""The oracle of the scenario `old-copy`: what may be missing, and what has to be named."""

from __future__ import annotations

import pytest
from tests.fault.hosts.disk_load import Ack, Place
from tests.fault.hosts.old_copy_judge import Path, Restored, Sent, judge_messages, judge_records

P: Place = ("t", 0)
RESTORED = [Restored("h", 10.0, 20.0, {P: 5}), Restored("h", 30.0, 40.0, {P: 8})]


@pytest.mark.parametrize(
    ("offset", "at", "named", "there", "outcome"),
    [
        pytest.param(4, 9.0, [], True, "found", id="there"),
        pytest.param(4, 9.0, [4, 5], False, "wrong", id="the copy had it: naming it is not enough"),
        pytest.param(5, 15.0, [5], False, "lost", id="only the given-up state had it, and it is named"),
        pytest.param(7, 15.0, [6], False, "lost", id="named from a later offset that covers it"),
        pytest.param(5, 15.0, [6], False, "wrong", id="the name begins after it"),
        pytest.param(
            5, 15.0, [4], False, "wrong", id="a name that gives up what was there names another loss"
        ),
        pytest.param(5, 15.0, [], False, "wrong", id="nothing is named"),
        pytest.param(5, 25.0, [5], False, "wrong", id="acknowledged afterwards, and in the second copy"),
        pytest.param(9, 35.0, [8], False, "lost", id="of the second"),
        pytest.param(9, 45.0, [8], False, "wrong", id="after both"),
    ],
)
def test_records(offset: int, at: float, named: list[int], there: bool, outcome: str) -> None:
    records = {P: {offset: (0, 1 if there else 99)}}
    judged = judge_records([Ack(P, offset, 0, 1, at)], RESTORED, {P: named}, records)
    assert (judged.found, judged.lost, len(judged.problems)) == _counts(outcome)


@pytest.mark.parametrize(
    ("at", "hosts", "named", "there", "outcome"),
    [
        pytest.param(15.0, ("g", "h"), set(), True, "found", id="there"),
        pytest.param(15.0, ("g", "h"), {"h"}, False, "lost", id="since the copy, and named"),
        pytest.param(15.0, ("g", "h"), {"g"}, False, "wrong", id="another host is named"),
        pytest.param(15.0, ("g", "f"), {"h"}, False, "wrong", id="no way through the restored host"),
        pytest.param(1.0, ("g", "h"), {"h"}, False, "wrong", id="long before the copy"),
        pytest.param(9.0, ("g", "h"), {"h"}, False, "lost", id="on its way when the copy was made"),
        pytest.param(22.0, ("g", "h"), {"h"}, False, "wrong", id="between the two"),
    ],
)
def test_messages(at: float, hosts: tuple[str, ...], named: set[str], there: bool, outcome: str) -> None:
    judged = judge_messages(Path("amqp", hosts), [Sent(1, at)], {1} if there else set(), RESTORED, named)
    assert (judged.found, judged.lost, len(judged.problems)) == _counts(outcome)


def _counts(outcome: str) -> tuple[int, int, int]:
    return {"found": (1, 0, 0), "lost": (0, 1, 0), "wrong": (0, 0, 1)}[outcome]
