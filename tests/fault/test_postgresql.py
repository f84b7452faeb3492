"""Coordinators on PostgreSQL: a few rounds of the fault run, its checks, and daemons that follow the lead."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.postgresql import Answers, Site, run
from tests.postgresql import programs

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.fault

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
        [*CLI, *words, "--control", daemon.control], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


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
        until(lambda: asked(daemons[1], "topics", "create", "after")[0] == 0, "the other one to lead")
        for daemon in daemons:
            until(lambda daemon=daemon: "after" in asked(daemon, "topics", "list")[1], "its view")
            assert "before" in asked(daemon, "topics", "list")[1]
    finally:
        site.close()
