"""The oracle of the scenario `full-disk`: all acknowledged records must be present."""

from __future__ import annotations

from tests.fault.hosts.disk_load import Ack, Place
from tests.fault.hosts.full_disk import messages_of, records_of

P: Place = ("t", 0)


def test_a_record_has_to_be_where_it_was_said_to_be() -> None:
    acks = [Ack(P, 0, 1, 7, 0.0), Ack(P, 1, 1, 8, 0.0)]
    assert records_of(acks, {P: {0: (1, 7), 1: (1, 8)}}, "h1").problems == []
    for there in ({0: (1, 7)}, {0: (1, 7), 1: (1, 7)}, {0: (1, 7), 1: (2, 8)}):
        judged = records_of(acks, {P: there}, "h1")
        assert (judged.found, len(judged.problems)) == (1, 1)
    assert len(records_of(acks, {}, "h1").problems) == 2


def test_a_message_has_to_come_and_may_come_though_nobody_heard_that_it_was_taken() -> None:
    assert messages_of({1: {0, 1}}, {1: {0, 1, 2}}, {1: 3}, "h1").problems == []
    (missing,) = messages_of({1: {0, 1}}, {1: {0}}, {1: 3}, "h1").problems
    assert "1 acknowledged messages of publisher 1 have not come, such as [1]" in missing
    (strange,) = messages_of({1: {0}}, {1: {0, 3}}, {1: 3}, "h1").problems
    assert "nobody sent [3]" in strange
    assert len(messages_of({1: {0}, 2: {0}}, {}, {}, "h1").problems) == 2
