"""The oracle of the crash run, tested with broken logs."""

from __future__ import annotations

import random

import pytest
from crash.oracle import OffsetLedger, Oracle, Outcome, compacted_key
from crash.values import NotOurs, make_value, read_value

PLACE = ("topic", 0)
RNG = random.Random(0)


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


def value(sequence: int, name: str = "plain.a.0") -> bytes:
    return make_value(name, sequence, RNG)


def written(oracle: Oracle, count: int, *, gapless: bool = False, acked: int | None = None):
    """Notes a stream of `count` records; the first `acked` (default: all) were acknowledged at their number
    as offset."""
    stream = oracle.stream("plain.a.0", PLACE, gapless=gapless)
    stream.sent = count
    oracle.ack(stream, 0, count if acked is None else acked, 0)
    return stream


def test_values_prove_themselves():
    data = value(5)
    assert read_value(data) == ("plain.a.0", 5)
    for wrong in (None, b"", b"plain.a.0|5", data[:-1], data.replace(b"|5|", b"|6|")):
        with pytest.raises(NotOurs):
            read_value(wrong)


def test_a_whole_log_is_fine(oracle):
    written(oracle, 3, acked=2)
    for offset in range(3):
        oracle.see(PLACE, offset, value(offset))
    oracle.read_up_to({PLACE: 3})
    assert oracle.problems == []
    assert oracle.tally.unknown_found == 1


def test_what_was_not_acknowledged_may_be_missing(oracle):
    written(oracle, 3, acked=2)
    oracle.see(PLACE, 0, value(0))
    oracle.see(PLACE, 1, value(1))
    oracle.read_up_to({PLACE: 2})
    assert oracle.problems == []


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ([(0, 0), (1, 1)], "lost plain.a.0 2"),
        ([(0, 0), (1, 1), (2, 2), (3, 2)], "there twice"),
        ([(0, 0), (1, 1), (3, 2)], "acknowledged at 2"),
        ([(0, 0), (1, 2), (2, 1)], "stands after"),
        ([(0, 0), (1, 1), (2, 2), (3, 7)], "never sent"),
    ],
)
def test_broken_logs(oracle, log, problem):
    written(oracle, 3)
    for offset, sequence in log:
        oracle.see(PLACE, offset, value(sequence))
    oracle.read_up_to({PLACE: 10})
    assert any(problem in found for found in oracle.problems)


def test_bytes_of_nobody(oracle):
    oracle.see(PLACE, 0, b"what is this")
    assert "invented" in oracle.problems[0]


def test_a_stranger_in_another_partition(oracle):
    written(oracle, 1)
    oracle.see(("topic", 1), 0, value(0))
    assert "never sent there" in oracle.problems[0]


def test_a_gap_in_what_is_retried(oracle):
    written(oracle, 3, gapless=True, acked=0)
    oracle.see(PLACE, 0, value(0))
    oracle.see(PLACE, 1, value(2))
    assert "goes from 0 to 2" in oracle.problems[0]


def test_a_repeat_must_be_answered_with_its_place(oracle):
    stream = written(oracle, 1, acked=0)
    oracle.see(PLACE, 0, value(0))
    oracle.ack(stream, 0, 1, 0)
    assert oracle.problems == []
    assert oracle.tally.repeats_answered == 1
    other = oracle.stream("plain.b.0", PLACE)
    other.sent = 1
    oracle.see(PLACE, 1, value(0, "plain.b.0"))
    oracle.ack(other, 0, 1, 7)
    assert "acknowledged at 7, but stored at 1" in oracle.problems[0]


def test_a_log_that_ends_before_what_was_read(oracle):
    written(oracle, 2)
    oracle.see(PLACE, 0, value(0))
    oracle.see(PLACE, 1, value(1))
    oracle.read_up_to({PLACE: 2})
    oracle.read_up_to({PLACE: 1})
    assert "ends at 1" in oracle.problems[0]


def test_a_record_that_changes(oracle):
    written(oracle, 1)
    data = value(0)
    oracle.see(PLACE, 0, data)
    oracle.see_again(PLACE, 0, data)
    assert oracle.problems == []
    oracle.see_again(PLACE, 0, value(0) + b"x")
    assert "not what was read before" in oracle.problems[0]


class TestTransactions:
    def run(self, oracle, outcome, shown, *, position=2, final=False):
        """Checks two records of one transaction, of which `shown` are visible."""
        stream = written(oracle, 2)
        transaction = oracle.begin(1)
        for sequence in (0, 1):
            oracle.put(transaction, stream, sequence)
        transaction.outcome = outcome
        for sequence in shown:
            oracle.see_committed(PLACE, sequence, value(sequence))
        oracle.committed_up_to({PLACE: position}, final=final)
        return oracle.problems

    def test_committed_and_whole(self, oracle):
        assert self.run(oracle, Outcome.COMMITTED, [0, 1]) == []
        assert oracle.unsettled == set()

    def test_aborted_and_hidden(self, oracle):
        assert self.run(oracle, Outcome.ABORTED, []) == []

    @pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.OPEN])
    def test_shown_though_not_committed(self, oracle, outcome):
        assert "is shown" in self.run(oracle, outcome, [0])[0]

    def test_half_of_it(self, oracle):
        assert "hides plain.a.0 1" in self.run(oracle, Outcome.COMMITTED, [0])[0]

    def test_not_yet_reached(self, oracle):
        assert self.run(oracle, Outcome.COMMITTED, [0], position=1) == []
        assert oracle.unsettled == {1}

    def test_never_reached(self, oracle):
        assert self.run(oracle, Outcome.COMMITTED, [0], position=1, final=True) != []

    def test_undecided_at_the_end(self, oracle):
        assert "still committing" in self.run(oracle, Outcome.COMMITTING, [], final=True)[0]

    def test_shown_twice(self, oracle):
        assert "twice" in self.run(oracle, Outcome.COMMITTED, [0, 1, 1])[0]


class TestCompacted:
    def log(self, *sequences):
        return [(n, compacted_key(n), make_value("compacted.a.0", n, RNG)) for n in sequences]

    @pytest.fixture
    def stream(self, oracle):
        stream = oracle.stream("compacted.a.0", PLACE)
        stream.sent = 100
        oracle.ack(stream, 0, 80, 0)
        return stream

    def test_newer_records_may_replace(self, oracle, stream):
        oracle.check_compacted(PLACE, self.log(*range(43, 80)), 80)
        assert oracle.problems == []
        assert oracle.tally.compacted_away == 43

    def test_even_by_one_that_was_not_acknowledged(self, oracle, stream):
        oracle.check_compacted(PLACE, self.log(*range(44, 81)), 81)
        assert oracle.problems == []

    def test_the_newest_is_lost(self, oracle, stream):
        oracle.check_compacted(PLACE, self.log(*range(43, 79)), 80)
        assert len(oracle.problems) == 1
        assert "lost compacted.a.0 79" in oracle.problems[0]

    def test_moved_and_invented(self, oracle, stream):
        [(_, key, data)] = self.log(50)
        oracle.check_compacted(PLACE, [*self.log(*range(43, 80)), (90, key, data), (91, b"k", b"?")], 92)
        assert [p.split(": ")[1][:8] for p in oracle.problems] == ["compacte", "invented"]


@pytest.mark.parametrize(("committed", "problems"), [(5, 0), (7, 0), (4, 1), (8, 1), (-1, 1)])
def test_offsets_never_go_back(oracle, committed, problems):
    OffsetLedger("group", PLACE, acked=5, attempted=7).check(oracle, committed)
    assert len(oracle.problems) == problems
