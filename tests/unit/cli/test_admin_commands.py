"""`status`, `topics` and `groups` beside a real daemon, as tables and as JSON."""

from __future__ import annotations

import pytest

from treecast.middleware.daemon.process import DaemonProcess


def test_status(treecast, shared_daemon: DaemonProcess) -> None:
    found = treecast("status", "--json").json
    assert found["pid"] == shared_daemon.pid
    assert [face["name"] for face in found["faces"]] == ["kafka", "amqp", "mqtt", "stare", "admin", "control"]
    assert found["faces"][0]["address"] == shared_daemon.kafka
    shown = treecast("status").out
    assert shared_daemon.kafka in shown
    for word in ("up for", "memory", "hot modules", "records in", "topics", f"pid {shared_daemon.pid}"):
        assert word in shown


def test_which_daemon_has_answered_is_said(
    treecast, command, shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_socket = f"treecast: answered by the daemon at {shared_daemon.control}, found by"
    assert treecast("status").err == f"{by_socket} {shared_daemon.runtime_dir / 'control.sock'}\n"
    assert command("status", "--control", shared_daemon.control).err == ""
    monkeypatch.setenv("TREECAST_CONTROL", shared_daemon.control)
    assert command("topics", "list", "--json").err == f"{by_socket} TREECAST_CONTROL\n"
    refused = command("topics", "describe", "missing").err.splitlines()
    assert refused[0] == f"{by_socket} TREECAST_CONTROL"


def test_status_at_a_named_address(command, shared_daemon: DaemonProcess) -> None:
    assert command("status", "--json", "--control", shared_daemon.control).json["pid"] == shared_daemon.pid


def test_a_topics_life(treecast) -> None:
    assert treecast("topics", "list").lines == ["no topics; create one with `treecast topics create TOPIC`"]
    assert treecast("topics", "list", "--json").json == []
    made = treecast("topics", "create", "life", "-p", "3", "--config", "retention.ms=60000", "--json").json
    assert (made["partitions"], made["overrides"]) == (3, {"retention.ms": "60000"})
    (listed,) = treecast("topics", "list", "--json").json
    assert (listed["name"], listed["partitions"]) == ("life", 3)
    header, row = treecast("topics", "list").lines
    assert header.split() == ["topic", "partitions", "records", "size", "settings"]
    assert row.split() == ["life", "3", "0", "0", "B", "retention.ms=60000"]
    assert treecast("topics", "grow", "life", "5").lines == ["grew life: 5 partitions"]
    changed = treecast("topics", "alter", "life", "--config", "segment.bytes=2000", "--unset", "retention.ms")
    assert changed.lines == ["changed life: segment.bytes=2000"]
    described = treecast("topics", "describe", "life", "--json").json
    assert len(described["partitions"]) == 5
    config = {entry["name"]: entry["value"] for entry in described["config"]}
    assert (config["segment.bytes"], config["retention.ms"]) == ("2000", "604800000")
    assert "segment.bytes=2000" in treecast("topics", "describe", "life").out
    assert treecast("topics", "delete", "life", "--yes").lines == ["deleted life"]
    assert treecast("topics", "list", "--json").json == []


def test_deleting_asks_first(treecast) -> None:
    treecast("topics", "create", "kept")
    refused = treecast("topics", "delete", "kept", stdin=b"n\n")
    assert refused.code != 0
    assert "delete kept with 0 records?" in refused.err
    assert [topic["name"] for topic in treecast("topics", "list", "--json").json] == ["kept"]
    assert treecast("topics", "delete", "kept", stdin=b"y\n").code == 0


def test_a_groups_life(treecast) -> None:
    treecast("topics", "create", "g-topic", "-p", "2")
    treecast("produce", "g-topic", "--partition", "0", stdin=b"a\nb\nc\n")
    read = treecast("consume", "g-topic", "--beginning", "--group", "readers", "--count", "2")
    assert read.lines == ["a", "b"]
    (listed,) = treecast("groups", "list", "--json").json
    assert (listed["group_id"], listed["state"], listed["members"]) == ("readers", "Empty", 0)
    assert "readers" in treecast("groups", "list").out
    offsets = treecast("groups", "describe", "readers", "--json").json["offsets"]
    assert [(o["topic"], o["committed"], o["end_offset"], o["lag"]) for o in offsets] == [
        ("g-topic", 2, 3, 1)
    ]
    assert "no members" in treecast("groups", "describe", "readers").out
    tried = treecast("groups", "reset", "readers", "--earliest", "--dry-run", "--json").json
    assert [o["committed"] for o in tried["after"]] == [0]
    treecast("groups", "reset", "readers", "--shift", "-1")
    again = treecast("consume", "g-topic", "--group", "readers", "--count", "2")
    assert again.lines == ["b", "c"]
    assert treecast("groups", "delete", "readers", "--yes", "--json").json == {"deleted": "readers"}
    assert treecast("groups", "list", "--json").json == []
    treecast("topics", "delete", "g-topic", "--yes")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "describe", "missing"], "there is no topic 'missing'; `treecast topics list`"),
        (["topics", "create", "a/b"], "holds characters outside"),
        (["topics", "create", "t", "--config", "retention.ms"], "expected NAME=VALUE"),
        (["topics", "create", "t", "--config", "nope=1"], "unknown topic config name: nope"),
        (["topics", "alter", "t"], "nothing to change"),
        (["topics", "grow", "missing", "3"], "`treecast topics list` lists all"),
        (["groups", "describe", "missing"], "`treecast groups list` lists all"),
        (["groups", "reset", "g"], "name a target: one of --earliest"),
        (["groups", "reset", "g", "--earliest", "--latest"], "name a target: one of --earliest"),
        (["groups", "reset", "g", "--time", "yesterday"], "expected a time as in"),
        (["status", "--control", "nowhere"], "--control nowhere: expected HOST:PORT"),
    ],
)
def test_refusals_say_what_to_do(treecast, arguments: list[str], said: str) -> None:
    refused = treecast(*arguments)
    assert refused.code == 1
    assert refused.out == ""
    assert refused.err.startswith("treecast: ")
    assert said in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["topics", "list"], ["groups", "describe", "g"], ["topics", "delete", "t", "--yes"]],
)
def test_without_a_daemon(command, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREECAST_CONTROL", "127.0.0.1:1")
    refused = command(*arguments)
    assert refused.code == 1
    assert "no daemon answers at 127.0.0.1:1; start one with `treecast up`" in refused.err


def test_a_variable_that_is_no_address(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREECAST_CONTROL", "nonsense")
    assert "TREECAST_CONTROL='nonsense': expected HOST:PORT" in command("status").err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), ([], 2), (["nonsense"], 2), (["topics", "create"], 2), (["up", "--help"], 0)],
)
def test_help_and_wrong_use(command, arguments: list[str], code: int) -> None:
    assert command(*arguments).code == code


def test_version(command) -> None:
    import treecast

    assert command("--version").lines == [f"treecast {treecast.__version__}"]


def test_the_help_lists_every_command(command) -> None:
    shown = command("--help").out
    for name in ("up", "status", "topics", "groups", "produce", "consume", "bench", "doctor"):
        assert f" {name} " in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topics", "create", "t", "-p", "0"), "greater than or equal to 1"),
        (("topics", "create", "t", "-p", "99999999999"), "less than or equal to 2147483647"),
        (("topics", "grow", "t", "99999999999"), "less than or equal to 2147483647"),
        (
            ("topics", "create", "t", "--config", "retention.ms=abc"),
            "for retention.ms: expected a whole number",
        ),
        (
            ("topics", "create", "t", "--config", "retention.ms=1e3"),
            "for retention.ms: expected a whole number",
        ),
        (
            ("topics", "create", "t", "--config", "min.cleanable.dirty.ratio=x"),
            "dirty.ratio: expected a number",
        ),
        (("groups", "reset", "g", "--offset", "9" * 20), "Invalid value for '--offset'"),
        (("groups", "reset", "g", "--shift", "9" * 20), "Invalid value for '--shift'"),
        (("groups", "reset", "g", "--time", "9" * 20), "expected a time as in"),
        (("consume", "t", "--partition", "9" * 11), "Invalid value for '--partition'"),
        (("produce", "t", "--partition", "9" * 11), "Invalid value for '--partition'"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_in_words(
    treecast, arguments: tuple[str, ...], said: str
) -> None:
    refused = treecast(*arguments)
    assert refused.code != 0
    shown = " ".join(refused.err.replace("│", " ").split())
    assert said in shown
    assert "Traceback" not in shown
    assert "literal" not in shown


def test_how_many_copies_there_really_are(treecast) -> None:
    treecast("topics", "create", "wishing", "--config", "treecast.copies.wished=3")
    described = treecast("topics", "describe", "wishing")
    assert "copies    1 of 3 that were asked for" in described.out
    assert treecast("topics", "describe", "wishing", "--json").json["partitions"][0]["copies"] == 1
    found = {entry["check"]: entry for entry in treecast("doctor", "--json").json}
    assert "such as wishing: 1; each partition has one" in found["copies"]["detail"]
    treecast("topics", "delete", "wishing", "--yes")
    assert "copies" not in {entry["check"] for entry in treecast("doctor", "--json").json}


def test_a_views_life(treecast) -> None:
    shown = treecast("filter", "list", "--topic", "orders").lines
    assert shown == ["no views; create one with `treecast filter create NAME FILTER --topic TOPIC`"]
    treecast("topics", "create", "orders", "-p", "2")
    made = treecast("filter", "create", "big", "price > 50", "--topic", "orders")
    assert made.lines == ["created orders.view.big: a view of orders"]
    (view,) = treecast("filter", "list", "--topic", "orders", "--json").json
    assert view == {
        "view": "orders.view.big",
        "name": "big",
        "topic": "orders",
        "filter": "price > 50",
        "partitions": 2,
    }
    assert "orders.view.big" in treecast("filter", "list").out
    treecast("produce", "orders", "--partition", "0", stdin=b'{"price": 1}\n{"price": 60}\n{"price": 70}\n')
    read = treecast("consume", "orders.view.big", "--beginning", "--group", "big", "--count", "1")
    assert read.lines == ['{"price": 60}']
    (offset,) = treecast("groups", "describe", "big", "--json").json["offsets"]
    assert (offset["topic"], offset["committed"], offset["lag"]) == ("orders.view.big", 2, 1)
    treecast("groups", "reset", "big", "--earliest", "--topic", "orders.view.big")
    described = treecast("topics", "describe", "orders.view.big", "--json").json
    assert [partition["end_offset"] for partition in described["partitions"]] == [3, 0]
    again = treecast("filter", "create", "big", "price > 60", "--topic", "orders")
    assert again.code != 0
    assert "treecast filter delete big --topic orders" in again.err
    treecast("topics", "create", "bills")
    treecast("filter", "create", "big", "true", "--topic", "bills")
    unclear = treecast("filter", "delete", "big")
    assert unclear.code != 0
    assert "bills, orders" in unclear.err
    assert treecast("filter", "delete", "orders.view.big").lines == ["deleted orders.view.big"]
    assert treecast("filter", "delete", "big").lines == ["deleted bills.view.big"]
    assert treecast("filter", "delete", "big").code != 0


@pytest.mark.parametrize("text", ["price >", "avg(price) > 5", ""])
def test_a_view_needs_a_filter_without_state(treecast, text: str) -> None:
    treecast("topics", "create", "viewed")
    refused = treecast("filter", "create", "bad", text, "--topic", "viewed")
    assert refused.code != 0
    assert "view" in refused.err
    assert treecast("filter", "list", "--topic", "viewed", "--json").json == []
