import sys

import pytest
from bench import stock
from bench.core.measure import ACK_P99, DELIVERY_P99
from bench.core.peer import Server
from bench.workloads.stock import COMMITS, CPU, StockLoad, started

FOUND = {
    "messages": 1000,
    "acknowledged": 99.5,
    "received": 98.5,
    "ack": [0.1, 0.5, 2.0],
    "arrival": [0.2, 1.5, 3.0],
    "late": [0.01, 0.02, 0.03],
    "commits": 300,
    "refused commits": 0,
}


def load(**options) -> StockLoad:
    return StockLoad("kafka", 100, seconds=10, warm_up=5, **options)


def by_name(values):
    return {metric.name: value for metric, value in values.items()}


def test_a_report_becomes_metrics_with_the_targets_of_the_load():
    values = load(targets={CPU: 0.6}).values(FOUND, 0.5)
    named = by_name(values)
    assert named[CPU.name] == pytest.approx(500)
    assert named[ACK_P99.name] == 0.5
    assert named[DELIVERY_P99.name] == 1.5
    assert named[COMMITS.name] == pytest.approx(20)
    assert {metric.name: metric.target for metric in values if metric.target} == {CPU.name: 0.6}


@pytest.mark.parametrize("slow", ["acknowledged", "received"])
def test_a_missed_rate_makes_the_round_void(slow):
    assert load().void(load().values(FOUND, 0.5)) == ""
    missed = load().values({**FOUND, slow: 97.0}, 0.5)
    assert load().void(missed).endswith("97/s of 100/s")


def test_refused_commits_fail_the_run():
    with pytest.raises(RuntimeError, match="3 commits were refused"):
        load().values({**FOUND, "refused commits": 3}, 0.5)


class Clocked(Server):
    """Uses a second of CPU between any two questions."""

    name = "clocked"
    address = ("127.0.0.1", 1)

    def __init__(self):
        self.used = 0.0

    def start(self):
        return 0.0

    def stop(self):
        pass

    def pids(self):
        return []

    def settings(self):
        return {}

    def cpu_seconds(self):
        self.used += 1
        return self.used


def test_the_cpu_is_that_between_the_first_counted_message_and_the_report():
    program = "print('connected'); print('measuring', flush=True); print('{}')"
    assert started([sys.executable, "-c", program], Clocked(), 60) == ({}, 1.0)


def test_a_client_that_fails_is_told_in_its_own_words():
    program = "import sys; print('measuring', flush=True); sys.exit('no such broker')"
    with pytest.raises(RuntimeError, match="no such broker"):
        started([sys.executable, "-c", program], Clocked(), 60)


def test_all_faces_have_loads_and_an_unknown_one_is_refused():
    found = stock.faces(stock.FACES, 1, 1, None)
    assert [face.name for face in found] == list(stock.FACES)
    assert len({one.name for face in found for one in face.loads}) == 5
    assert all(one.rate == 7 for face in stock.faces(stock.FACES, 1, 1, 7) for one in face.loads)
    with pytest.raises(KeyError):
        stock.faces(["stare"], 1, 1, None)
