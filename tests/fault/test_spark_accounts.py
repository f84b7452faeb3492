"""The accounts of the Spark run, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from spark_kills.accounts import Accounts

A, B, C = b"0:0:1", b"0:1:2", b"0:0:3"


def accounts(*, fed: tuple[bytes, ...], written: tuple[bytes, ...]) -> Accounts:
    found = Accounts()
    for value in fed:
        found.fed(value)
    for value in written:
        found.written(value)
    return found


def test_each_input_has_to_be_there_once() -> None:
    assert accounts(fed=(A, B), written=(A,)).missing() == {B}
    assert accounts(fed=(A,), written=(A, A)).twice() == [A]
    assert accounts(fed=(A,), written=(A, B)).strange() == {B}


def test_a_copied_checkpoint_may_write_a_batch_to_both_topics_and_neither_twice() -> None:
    found = accounts(fed=(A, B), written=(A,))
    found.turn()
    found.written(A)
    found.written(B)
    assert (found.missing(), found.twice(), found.strange()) == (set(), [], set())
    found.written(B)
    assert found.twice() == [B]


def test_what_was_in_both_topics_is_missed_by_neither_alone() -> None:
    found = accounts(fed=(A, B), written=())
    found.turn()
    found.written(B)
    assert found.missing() == {A}


def test_what_is_read_later_of_a_topic_that_was_written_to_before_counts_there() -> None:
    found = accounts(fed=(A, B), written=(A,))
    number = found.turn()
    found.written(B)
    found.written_before(number, B)
    assert (found.missing(), found.twice()) == (set(), [])
    found.written_before(number, A)
    assert found.twice() == [A]


def test_of_an_input_that_is_made_anew_what_was_read_has_to_be_there() -> None:
    found = accounts(fed=(A, B), written=(A,))
    found.input_anew(complete=False)
    assert (found.missing(), found.new_seen) == (set(), 0)
    found.fed(C)
    assert found.missing() == {C}
    found.written(C)
    assert (found.missing(), found.new_seen, found.strange()) == (set(), 1, set())
    found.close()
    assert (found.gone, found.inputs) == (1, 3)


def test_of_an_input_that_was_read_to_its_end_all_has_to_be_there() -> None:
    found = accounts(fed=(A, B), written=(A,))
    found.input_anew(complete=True)
    assert found.missing() == {B}


def test_what_is_read_later_of_an_input_that_is_gone_is_no_invention() -> None:
    """Its batch was committed as the driver died."""
    found = accounts(fed=(A, B), written=(A,))
    found.input_anew(complete=False)
    found.written(B)
    found.close()
    assert (found.strange(), found.twice(), found.gone) == (set(), [], 0)
