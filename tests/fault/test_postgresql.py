"""Coordinators on PostgreSQL: a few rounds of the fault run, its checks, and daemons that follow the lead."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.postgresql import Answers, Site, run
from tests.postgresql import programs

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.fault

PATIENCE_S = 300.0  # until a test gives up; nothing is asserted about it
CLI = (sys.executable, "-m", "treecast.middleware.cli")


@pytest.fixture(autouse=True)
def needed() -> None:
    if programs() is None:
        assert not os.environ.get("TREECAST_CI"), "PostgreSQL is not installed"
        pytest.skip("PostgreSQL is not installed")


@pytest.mark.slow
def test_nothing_answered_is_lost_and_no_two_decide_at_once(tmp_path: Path) -> None:
    said: list[str] = []
    answers = asyncio.run(run(["killed", "stopped", "promoted"], 1, tmp_path, tell=said.append))
    assert not answers.problems
    assert len(said) == 3
    assert len(answers.epochs) >= 4  # each round began another
    assert len(answers.topics) >= 15


def test_the_run_notices_two_that_decide() -> None:
    answers = Answers()
    answers.note(1, "one", answers.highest)
    answers.note(2, "two", answers.highest)
    assert not answers.problems
    answers.note(1, "one", 1)  # its call began before epoch 2
    assert not answers.problems
    answers.note(1, "one", answers.highest)
    assert answers.problems == ["one decided in epoch 1 after epoch 2 had begun"]
    answers.note(2, "one", answers.highest)
    assert answers.problems[1:] == ["epoch 2 is of two and of one"]


def test_the_run_notices_what_is_lost(tmp_path: Path) -> None:
    site = Site.__new__(Site)
    site.answers = Answers()
    site._compare("topics", {"t": b"1", "u": b"2"}, {"t": b"1", "u": b"2", "v": b""})
    assert not site.answers.problems
    site._compare("topics", {"t": b"1", "u": b"2"}, {"t": b"3"})
    assert site.answers.problems == ["2 topics are lost, as 't'"]


def asked(daemon: DaemonProcess, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*CLI, *words, "--control", daemon.control],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def created(daemon: DaemonProcess, topic: str) -> bool:
    """Creates a topic, if an attempt whose answer was lost has not done so. Returns whether it is there."""
    code, said = asked(daemon, "topics", "create", topic)
    return code == 0 or f"topic {topic} exists already" in " ".join(said.split())


@pytest.mark.slow
def test_daemons_follow_the_lead(
    start_daemon: Callable[..., DaemonProcess], until: Callable[..., None], tmp_path: Path
) -> None:
    site = Site(tmp_path)
    try:
        asyncio.run(site.open(replicated=False))
        token = f"@{tmp_path / 'token'}"
        joined = ("--fabric", "127.0.0.1:0", "--join", site.addresses, "--join-token", token)
        daemons = [start_daemon("--name", name, *joined) for name in ("a", "b")]
        assert asked(daemons[0], "topics", "create", "before")[0] == 0
        asyncio.run(site.leader()).kill()
        until(lambda: created(daemons[1], "after"), "the other one to lead")
        for daemon in daemons:
            for topic in ("before", "after"):
                until(lambda at=daemon, topic=topic: topic in asked(at, "topics", "list")[1], "its view")
    finally:
        site.close()


class Follower:
    """`treecast events --follow --json` beside a daemon."""

    def __init__(self, daemon: DaemonProcess) -> None:
        command = [*CLI, "events", "--follow", "--json", "--control", daemon.control]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.events: list[dict[str, object]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def seen(self, what: str) -> bool:
        return any(one["what"] == what for one in self.events)

    def stop(self) -> None:
        self._process.terminate()
        self._thread.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(PATIENCE_S)


def events(daemon: DaemonProcess) -> list[dict[str, object]]:
    """Returns what is recorded; nothing while no coordinator leads."""
    code, said = asked(daemon, "events", "--json")
    found: list[dict[str, object]] = json.loads(said) if code == 0 else []
    return found


def topics_of(events: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(one["kind"], one["what"]) for one in events if str(one["what"]).startswith("topic ")]


@pytest.mark.slow
def test_events_outlive_their_coordinator(
    start_daemon: Callable[..., DaemonProcess], until: Callable[..., None], tmp_path: Path
) -> None:
    """The next leader reads them back from the database, goes on with their numbers, and `--follow` goes on
    as well. Then all coordinators and the server start again."""
    site = Site(tmp_path)
    follower: Follower | None = None
    try:
        asyncio.run(site.open(replicated=False))
        joined = (
            "--fabric",
            "127.0.0.1:0",
            "--join",
            site.addresses,
            "--join-token",
            f"@{tmp_path / 'token'}",
        )
        daemon = start_daemon("--name", "a", *joined)
        assert asked(daemon, "topics", "create", "before")[0] == 0
        until(lambda: topics_of(events(daemon)) == [("created", "topic before")], "the first event")
        kept = events(daemon)
        follower = Follower(daemon)
        until(lambda: follower.seen("topic before"), "what was recorded before")
        asyncio.run(site.leader()).kill()
        until(lambda: created(daemon, "after"), "the other one to lead")
        until(lambda: follower.seen("topic after"), "the next leader's event")
        until(lambda: ("created", "topic after") in topics_of(events(daemon)), "the event by a question")
        found = events(daemon)
        assert found[: len(kept)] == kept
        assert [one["number"] for one in found] == list(range(1, len(found) + 1))
        until(lambda: follower.events[: len(found)] == found, "all events, in order")
        for coordinator in site.coordinators:
            coordinator.kill()
        site.primary.stop()
        site.primary.start()
        for coordinator in site.coordinators:
            coordinator.start()
        until(lambda: events(daemon)[: len(found)] == found, "a coordinator that leads, with all events")
    finally:
        if follower is not None:
            follower.stop()
        site.close()
