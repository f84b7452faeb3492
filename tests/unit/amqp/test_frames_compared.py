"""The comparison of bad frames with RabbitMQ: the allow list, and what counts as an answer."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.amqp_bad_frames import CASES, Outcome
from tests.fault.amqp_wire import Basic, Channel, Connection, Wire, method
from tests.foreign import amqp_frames as frames
from tests.foreign.amqp_frames import Answer, Compared, Difference, news

PAGE = Path(__file__).resolve().parents[3] / "docs" / "faces" / "amqp.md"
LISTED = [Difference("deep", "connection: 502 Queue.Declare", "goes on", "no limit")]
OPENED = method(Channel.OpenOk(), frames.PROBE)
GONE = Channel.Close(404, "NOT_FOUND - no exchange", 60, 40)


def compared(case: str, treecast: str, rabbitmq: str) -> Compared:
    return Compared(case, Answer(treecast), Answer(rabbitmq))


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ([compared("deep", "connection: 502 Queue.Declare", "goes on")], []),
        (
            [
                compared("deep", "connection: 502 Queue.Declare", "goes on"),
                compared("twice", "connection: 504 Channel.Open", "connection: 504 Channel.Open"),
            ],
            [],
        ),
        (
            [compared("deep", "goes on", "goes on")],
            ["no longer differs, take it off the allow list: deep: goes on"],
        ),
        (
            [compared("deep", "no answer", "goes on")],
            ["differs otherwise than the allow list says: deep: Treecast: no answer; RabbitMQ: goes on"],
        ),
        (
            [compared("deep", "connection: 502 Queue.Declare", "no answer")],
            [
                "differs otherwise than the allow list says: deep: "
                "Treecast: connection: 502 Queue.Declare; RabbitMQ: no answer"
            ],
        ),
        ([], ["on the allow list, but not a case: deep"]),
    ],
)
def test_all_that_the_allow_list_does_not_say_is_news(found: list[Compared], lines: list[str]) -> None:
    assert news(found, LISTED) == lines


def test_a_difference_without_an_entry_is_news() -> None:
    found = [compared("half", "connection: 502 Queue.Declare", "connection: 502 Basic.Publish")]
    assert news(found, []) == [
        "differs: half: Treecast: connection: 502 Queue.Declare; RabbitMQ: connection: 502 Basic.Publish"
    ]


def test_texts_may_differ() -> None:
    assert news([Compared("half", Answer("goes on", "one"), Answer("goes on", "another"))], []) == []


def test_a_case_is_listed_once(tmp_path: Path) -> None:
    entry = '[[difference]]\ncase = "a"\ntreecast = "x"\nrabbitmq = "y"\nreason = "z"\n'
    (tmp_path / "list.toml").write_text(entry)
    assert frames.differences(tmp_path / "list.toml") == [Difference("a", "x", "y", "z")]
    (tmp_path / "list.toml").write_text(entry * 2)
    with pytest.raises(ValueError, match=r"names a case twice: a"):
        frames.differences(tmp_path / "list.toml")


@pytest.mark.parametrize(
    ("channel", "close", "seen"),
    [
        (1, GONE, "channel 1: 404 Basic.Publish"),
        (0, Connection.Close(501, "FRAME_ERROR", 0, 0), "connection: 501 no method"),
        (0, Connection.Close(503, "COMMAND_INVALID", 99, 1), "connection: 503 99.1"),
    ],
)
def test_a_close_is_its_place_code_and_method(
    channel: int, close: Channel.Close | Connection.Close, seen: str
) -> None:
    assert frames.closed(channel, close) == Answer(seen, close.reply_text)


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    """A client, and the server's end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = Wire(listener.getsockname())
        server, _ = listener.accept()
        yield wire, server
        wire.close()
        server.close()


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (OPENED, frames.GOES_ON),
        (method(Basic.QosOk()), frames.SILENT),
        (method(Channel.OpenOk(), 1), frames.SILENT),  # not the probe's
        (method(GONE) + OPENED, "channel 1: 404 Basic.Publish"),
        (OPENED + method(GONE), "channel 1: 404 Basic.Publish"),
        (method(Basic.QosOk()) + method(Connection.Close(501, "", 0, 0), 0), "connection: 501 no method"),
    ],
)
def test_an_answer_is_the_first_close_or_its_absence(
    ends: tuple[Wire, socket.socket], said: bytes, seen: str
) -> None:
    wire, server = ends
    server.sendall(said)
    assert frames.answer_to(wire, b"bad", answer_s=0.2, quiet_s=0.2).seen == seen


@pytest.mark.parametrize("said", [b"", OPENED])
def test_a_connection_that_ends_has_no_reason(ends: tuple[Wire, socket.socket], said: bytes) -> None:
    wire, server = ends
    server.sendall(said)
    server.shutdown(socket.SHUT_WR)
    assert frames.answer_to(wire, b"bad").seen == frames.ENDS


def begins(expected: Outcome) -> str:
    """Returns how the answer begins that a case expects of the daemon."""
    if expected is None:
        return frames.GOES_ON
    channel, code = expected
    return (
        frames.ENDS if channel < 0 else f"channel {channel}: {code} " if channel else f"connection: {code} "
    )


def test_each_entry_is_a_difference_of_a_case_with_a_reason() -> None:
    for entry in frames.differences():
        assert entry.treecast.startswith(begins(CASES[entry.case][1])), entry.case
        assert entry.treecast != entry.rabbitmq
        assert entry.reason


def test_the_page_states_as_many_differences_as_the_list() -> None:
    found = re.search(r"the same\s+in\s+(\d+)\s+of\s+(\d+)\s+cases", PAGE.read_text())
    assert found is not None
    assert (int(found[1]), int(found[2])) == (len(CASES) - len(frames.differences()), len(CASES))
