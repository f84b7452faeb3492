"""The ledgers of the hosts runs find injected errors."""

from __future__ import annotations

import json

import pytest
from tests.fault.hosts.ledger import HEAD_SIZE, Ledger, differences, make_value, merged, read_value

PLACE = "load-0"


def ledger(pairs: list[tuple[int, int]], producer: int = 1) -> Ledger:
    made = Ledger()
    for sequence, offset in pairs:
        made.lane(producer, PLACE).note(sequence, offset)
    return made


SENT = [(0, 5), (1, 6), (2, 9)]


def test_the_same_records_at_the_same_offsets_are_equal():
    assert differences(ledger(SENT), ledger(SENT), "h2") == []


@pytest.mark.parametrize(
    ("read", "says"),
    [
        ([(0, 5), (1, 6)], "2 records read, 3 acknowledged"),  # lost at the end
        ([(0, 5), (2, 9)], "do not follow"),  # lost in the middle
        ([(0, 5), (1, 6), (1, 7), (2, 9)], "do not follow"),  # twice
        ([(0, 5), (2, 6), (1, 9)], "do not follow"),  # out of order
        ([(0, 5), (1, 6), (2, 10)], "another digest"),  # another offset at the end
        ([(0, 5), (1, 7), (2, 9)], "another digest"),  # another offset in the middle
        ([(0, 5), (1, 6), (2, 9), (3, 10)], "4 records read, 3 acknowledged"),  # invented
        ([], "0 records read, 3 acknowledged"),
    ],
)
def test_whatever_is_read_otherwise_is_found(read, says):
    found = differences(ledger(SENT), ledger(read), "h2")
    assert len(found) == 1
    assert says in found[0]


def test_a_producer_that_nobody_heard_of_is_found():
    found = differences(ledger(SENT), merged([ledger(SENT), ledger([(0, 1)], producer=7)]), "h2")
    assert ["7/load-0" in line for line in found] == [True]


def test_a_ledger_survives_its_way_between_processes():
    there = Ledger.from_json(json.loads(json.dumps(ledger(SENT).as_json())))
    assert there == ledger(SENT)


def test_values():
    assert read_value(make_value(3, 4, 5.5, 100)) == (3, 4, 5.5)
    assert len(make_value(3, 4, 5.5, 100)) == 100
    assert len(make_value(3, 4, 5.5, 0)) == HEAD_SIZE
    for strange in (b"", b"x" * 8, make_value(3, 4, 5.5, 100) + b"x"):
        with pytest.raises(ValueError, match="invented"):
            read_value(strange)
