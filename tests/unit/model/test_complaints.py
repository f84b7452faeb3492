"""Every refusal is counted, and logged ever more rarely."""

from __future__ import annotations

import enum
import logging

import pytest

from treecast.middleware.model.complaints import Complaints
from treecast.middleware.model.logs import Entry, Log


def fields(record: logging.LogRecord) -> dict[str, object]:
    assert isinstance(record.msg, Entry)
    return record.msg.fields


class Fault(enum.Enum):
    ODD = "it is odd"


def test_all_is_counted_and_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    counted: dict[str, int] = {}
    complaints = Complaints(counted, Log("test.complaints"), "refused")
    with caplog.at_level(logging.DEBUG, "test.complaints"):
        for _ in range(1000):
            complaints.add(Fault.ODD)
    assert counted == {"ODD": 1000}
    assert [record.getMessage().split(", ")[2] for record in caplog.records] == [
        f"count={2**n}" for n in range(10)
    ]
    assert caplog.records[0].getMessage() == "refused: reason=ODD, detail=it is odd, count=1"


def test_several_at_once_are_logged_where_their_number_has_doubled(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("test.complaints")
    complaints = Complaints({}, log, "refused", frozenset({"USUAL"}), logging.ERROR)
    with caplog.at_level(logging.DEBUG, "test.complaints"):
        for _ in range(4):
            complaints.count("MANY", "why", 5)  # 5, 10, 15, 20
        complaints.count("USUAL", "why")
    assert [(record.levelname, fields(record)["count"]) for record in caplog.records] == [
        ("ERROR", 5),
        ("ERROR", 10),
        ("ERROR", 20),
        ("DEBUG", 1),
    ]
