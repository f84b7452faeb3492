"""The parts of a way, and the command, short: ways are as long as docs/architecture.md says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from types import CodeType
from typing import Any, Final

import pytest

from tests.walk import host
from tests.walk.__main__ import main
from tests.walk.way import Entry, File, Function, Way, as_text, host_way, until_written

PAGE: Final = host.ROOT / "docs" / "architecture.md"
SOCKETS: Final = "middleware/fabric/sockets/"
CHANNEL: Final = "middleware/fabric/channel/"
# By way: the rooms that A and B have to enter. The first of each reads the message.
Ends = tuple[tuple[str, ...], tuple[str, ...]]
ENDS: Final[tuple[Ends, ...]] = (
    (("shims/kafka/", SOCKETS), ("middleware/fabric/", "shims/kafka/", SOCKETS)),
    (("shims/mqtt/", SOCKETS), ("middleware/fabric/", "shims/mqtt/", SOCKETS)),
    (("shims/amqp/", CHANNEL), (CHANNEL, "middleware/broker/queues/")),
)
# Files of each way that no change may exceed.
LONGEST: Final = {"a Kafka record": 30, "an MQTT message of QoS 1": 37, "an AMQP message with a confirm": 33}
FEWER: Final = 2  # files that a way may have less than the page says, before the page has to follow
TRACES: Final = (4, 16, 64)


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


def stated() -> dict[str, tuple[int, int]]:
    """Returns the files and calls of each way, from the table of the page."""
    rows = re.findall(r"^\| (an? [\w ]+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    return {way: (int(files), int(calls)) for way, files, calls in rows}


def faults(
    ways: list[dict[str, Any]], page: dict[str, tuple[int, int]], all_ends: Sequence[Ends] = ENDS
) -> list[str]:
    """Returns what contradicts the page, or does not begin and end where a message's way does."""
    found = [f"{one['message']} is not on the page" for one in ways if one["message"] not in page]
    for way, ends in zip(ways, all_ends, strict=True):
        files, calls = page.get(way["message"], (0, 0))
        if not files - FEWER <= way["files"] <= files:
            found.append(f"{way['message']}: {way['files']} files, the page says {files}")
        if not calls * 17 // 20 <= way["calls"] <= calls:  # beats and timers fall into some traces
            found.append(f"{way['message']}: {way['calls']} calls, the page says {calls}")
        for crossed, wanted in zip(way["hosts"], ends, strict=True):
            found += ends_of(crossed, wanted)
    return found


def ends_of(crossed: dict[str, Any], wanted: tuple[str, ...]) -> list[str]:
    """Returns the rooms that a way lacks at a host, whose first file is the one that reads the message."""
    rooms, name, first = paths(crossed), crossed["host"], wanted[0]
    lacking = [room for room in wanted if not any(path.startswith(room) for path in rooms)]
    found = [f"host {name}: nothing of {room} in {rooms}" for room in lacking]
    if rooms and not rooms[0].startswith(first):
        found.append(f"host {name}: the first file is {rooms[0]}, not of {first}")
    return found


def test_the_page_tells_the_ways_of_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """A timer that fires in every trace looks like a part of the way. More traces exclude it, and change
    nothing for a function that is part of it."""
    page = stated()
    for traces in TRACES:
        assert main(["--before", "3", "--traces", str(traces), "--json"]) == 0
        ways = json.loads(capsys.readouterr().out)
        assert [way["message"] for way in ways] == list(page)
        assert all(way["calls"] == sum(host["calls"] for host in way["hosts"]) for way in ways)
        found = faults(ways, page)
        if not found:
            return
    raise AssertionError(found)


def test_no_way_gets_longer_by_a_page_that_follows_it() -> None:
    assert all(files <= LONGEST[way] for way, (files, _) in stated().items())
    assert list(stated()) == list(LONGEST)


def test_a_way_that_is_longer_or_shorter_than_the_page_says_is_found() -> None:
    rooms = ("shims/kafka/a.py", "middleware/fabric/sockets/b.py")
    hosts = [
        {"host": host, "way": [{"path": path} for path in rooms[::step]]}
        for host, step in (("A", 1), ("B", -1))
    ]
    way = {"message": "a Kafka record", "files": 20, "calls": 95, "hosts": hosts}
    page = {"a Kafka record": (20, 100)}

    def of_kafka(change: dict[str, Any]) -> list[str]:
        return faults([way | change], page, ENDS[:1])

    assert of_kafka({}) == []
    assert len(of_kafka({"files": 21})) == len(of_kafka({"files": 17})) == 1
    assert len(of_kafka({"calls": 101})) == len(of_kafka({"calls": 84})) == 1
    assert len(of_kafka({"message": "another"})) == 3
    assert len(of_kafka({"hosts": hosts[::-1]})) == 2
    assert len(of_kafka({"hosts": [{"host": "A", "way": []}, hosts[1]]})) == 2


def paths(found: dict[str, Any]) -> list[str]:
    return [file["path"] for file in found["way"]]
