"""The parts of a way, and the command, short. docs/results states how long a way may be, not this test."""

from __future__ import annotations

import json
from types import CodeType
from typing import Any

import pytest

from tests.walk import host
from tests.walk.__main__ import main
from tests.walk.way import Entry, File, Function, Way, as_text, host_way, until_written


def trace(*names: str) -> list[Entry]:
    """Returns a trace of `f.py:g` a nanosecond apart; a following `!` marks a write."""
    found = []
    for at, name in enumerate(names):
        path, _, function = name.rstrip("!").partition(":")
        found.append(Entry(path, function, at, name.endswith("!")))
    return found


def test_the_way_is_what_all_traces_have_and_as_often_as_the_least_of_them() -> None:
    way = host_way("A", [trace("b:x", "a:y", "b:x", "t:tick", "b:z"), trace("b:x", "b:z", "b:z", "a:y")])
    assert way.files == (
        File("b", 2, (Function("x", 1), Function("z", 1))),
        File("a", 1, (Function("y", 1),)),
    )
    assert way.sometimes == {"t:tick": 1}
    assert way.calls == 3


def test_a_timer_before_the_message_does_not_change_the_order() -> None:
    way = host_way("A", [trace("t:tick", "c:end", "a:x", "c:end"), trace("a:x", "c:end")])
    assert [file.path for file in way.files] == ["a", "c"]


def test_a_trace_ends_with_the_last_write_of_its_room() -> None:
    found = trace("shims/s:a", "shims/s:a!", "fabric/f:b", "fabric/f:b!", "shims/s:c")
    assert [e.function for e in until_written(found, "shims/", 9)] == ["a"]
    assert [e.function for e in until_written(found, "", 9)] == ["a", "b"]
    assert [e.function for e in until_written(found, "", 2)] == ["a"]
    assert [e.function for e in until_written(found, "none/", 2)] == ["a", "b"]


def test_the_text_counts_a_file_once_that_both_hosts_enter() -> None:
    hosts = (host_way("A", [trace("f:g", "f:g")]), host_way("B", [trace("f:h")]))
    text = as_text(Way("a message", 1, hosts, ()))
    assert text.startswith("a message: 1 files, 3 calls")
    assert "g 2" in text


def code_of(path: str, name: str) -> CodeType:
    return compile("pass", path, "exec").replace(co_name=name)


def test_ours_are_the_packages_also_where_they_are_imported_through_the_links() -> None:
    assert host.ours(code_of(str(host.ROOT / "shims/mqtt/server.py"), "f")) == "shims/mqtt/server.py"
    assert host.ours(code_of(f"{host.LINKED}middleware/x.py", "<lambda>")) == "middleware/x.py"
    assert host.ours(code_of(f"{host.LINKED}middleware/x.py", "<listcomp>")) == ""
    assert host.ours(code_of(str(host.ROOT / "tests/conftest.py"), "f")) == ""
    assert host.ours(code_of("/usr/lib/python3/asyncio/events.py", "f")) == ""


def test_one_message_of_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--before", "3", "--traces", "3", "--json"]) == 0
    ways = json.loads(capsys.readouterr().out)
    assert [way["message"] for way in ways] == ["a Kafka record", "an MQTT message of QoS 1"]
    for way, face in zip(ways, ("kafka", "mqtt"), strict=True):
        assert [found["host"] for found in way["hosts"]] == ["A", "B"]
        for found in way["hosts"]:
            rooms = paths(found)
            assert any(path.startswith(f"shims/{face}/") for path in rooms), rooms
            assert any(path.startswith("middleware/fabric/sockets/") for path in rooms), rooms
        assert paths(way["hosts"][0])[0].startswith(f"shims/{face}/")  # the client's socket comes first
        # here the fabric's socket comes first
        assert paths(way["hosts"][1])[0].startswith("middleware/fabric/")
        assert way["calls"] == sum(found["calls"] for found in way["hosts"])


def paths(found: dict[str, Any]) -> list[str]:
    return [file["path"] for file in found["way"]]
