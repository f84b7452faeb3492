"""The account of `python -m tests.fault.kafka_apps`; its runs are separate commands."""

from __future__ import annotations

from tests.fault.kafka_apps.site import account


def test_nothing_is_amiss_where_all_that_was_acknowledged_came_out_once():
    found = account("copy", {b"1", b"2"}, [b"2", b"1", b"3"], exact=True)
    assert (found.records_in, found.records_out, found.lost, found.doubled) == (2, 3, 0, 0)
    assert not found.amiss


def test_a_lost_record_is_amiss():
    found = account("copy", {b"1", b"2"}, [b"2", b"2"], exact=False)
    assert (found.lost, found.doubled) == (1, 1)
    assert found.amiss


def test_a_doubled_record_is_amiss_where_the_application_promises_exactly_once():
    assert account("copy", {b"1"}, [b"1", b"1"], exact=True).amiss
    assert not account("copy", {b"1"}, [b"1", b"1"], exact=False).amiss
