"""The runbook of docs/operating.md, "A host's disk is gone": its commands, in its order, on three daemons."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.cluster import Cluster
from tests.unit.cli.eventually import until

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operating.md"
PAYMENTS = [f"payment {number}" for number in range(5)]


def documented() -> list[tuple[str, list[str]]]:
    """Returns (host, words after `treecast`) of each command of the section."""
    section = PAGE.read_text().split("\n## A host's disk is gone\n", 1)[1].split("\n## ", 1)[0]
    lines = re.findall(r"^(host-\d)\$ treecast (.*)$", section, re.MULTILINE)
    return [(host, shlex.split(words)) for host, words in lines]


class Runbook(Cluster):
    """A cluster and the commands of the runbook, which must all be used."""

    def __init__(self, start_daemon, command, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(start_daemon, command, monkeypatch, folder)
        self._todo = documented()

    def step(self, host: str, *beginning: str) -> Any:
        """Runs the runbook's next command, which must start with these words; fills in this cluster's paths
        and addresses."""
        documented_host, words = self._todo.pop(0)
        assert (documented_host, words[: len(beginning)]) == (host, list(beginning))
        if words[0] == "up":
            return self.hosts[host].restart()
        if words[0] == "restore-coordinator":
            words[words.index("--from") + 1] = self.hosts["host-2"].control
            words[words.index("--data") + 1] = str(self.hosts[host].data)
            words[words.index("--join-token") + 1] = f"@{self.token}"
        return self.ran(host, *words)

    def done(self) -> None:
        assert self._todo == []


@pytest.mark.slow
def test_a_directory_that_has_lost_its_logs_alone(
    start_daemon, command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Host and directory are the same, but the coordinator has recorded more than the logs hold."""
    cluster = Cluster(start_daemon, command, monkeypatch, tmp_path)
    assert cluster.ran("host-1", "topics", "create", "t", "-p", "2", "--leader", "host-2").code == 0
    until(lambda: "t" in cluster.ran("host-3", "topics", "list").out)
    cluster.produce("t", 0, "one", "two")
    cluster.produce("t", 1, "only there", host="host-2")
    assert cluster.consume("host-3", "t", 0, 2) == ["one", "two"]
    until(lambda: cluster.copied("t", 0, 2))
    daemon = cluster.hosts["host-2"]
    for ended in (daemon.kill, daemon.stop):  # after an orderly stop the logs may be lost as well
        until(lambda: cluster.recorded("t", 2, 1))
        ended()
        shutil.rmtree(daemon.data / "logs" / "t-0")
        daemon.restart()
        until(lambda: cluster.standing("t", 0, "host-2")["end"] >= 2)
        until(lambda: cluster.ran("host-1", "streams", "--check").code == 0)
        assert "its log here is shorter than was reported" in daemon.log()
        assert cluster.consume("host-2", "t", 0, 2) == ["one", "two"]
    assert cluster.consume("host-2", "t", 1, 1) == ["only there"]
    (found,) = [one for one in cluster.ran("host-1", "streams", "--json").json if one.get("resumed")]
    assert [(one["first"], one["heard"]) for one in found["resumed"]] == [(2, 2), (2, 2)]
    assert found["lost"] == []
    assert "are gone" not in daemon.log()
    assert cluster.standing("t", 0)["state"] == "led"


@pytest.mark.slow
def test_a_coordinator_that_was_begun_anew_by_mistake_takes_no_topic_away(
    start_daemon, command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was started on its new disk with the token only."""
    cluster = Cluster(start_daemon, command, monkeypatch, tmp_path)
    assert cluster.ran("host-1", "topics", "create", "t", "--leader", "host-2").code == 0
    until(lambda: "t" in cluster.ran("host-3", "topics", "list").out)
    cluster.produce("t", 0, "one", "two")
    first = cluster.hosts["host-1"]
    cluster.lose_disk("host-1")
    first.flags += ["--join-token", f"@{cluster.token}"]
    first.restart()
    until(lambda: "its store is lost" in cluster.ran("host-2", "status").out)
    assert cluster.consume("host-2", "t", 0, 2) == ["one", "two"]
    cluster.produce("t", 0, "three", host="host-2")
    first.kill()
    shutil.rmtree(first.data)
    at = first.flags.index("--join-token")
    del first.flags[at : at + 2]
    source = ("--from", cluster.hosts["host-2"].control, "--join-token", f"@{cluster.token}")
    restored = cluster.ran("host-1", "restore-coordinator", *source, "--data", str(first.data))
    assert restored.code == 0, restored.err
    first.restart()
    until(lambda: cluster.presences() == ["attached"] * 3)
    assert cluster.consume("host-1", "t", 0, 3) == ["one", "two", "three"]
    until(lambda: cluster.ran("host-3", "streams", "--check").code == 0)


@pytest.fixture
def filled(start_daemon, command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runbook:
    """A cluster with data. Host-2 leads `payments`, and alone has its partition 1; host-1 leads `first`."""
    cluster = Runbook(start_daemon, command, monkeypatch, tmp_path)
    for topic, leader in (("payments", "host-2"), ("first", "host-1")):
        made = cluster.ran("host-1", "topics", "create", topic, "-p", "2", "--leader", leader)
        assert made.code == 0, made.err
        until(lambda topic=topic: topic in cluster.ran("host-3", "topics", "list").out)
    cluster.produce("payments", 0, *PAYMENTS)
    cluster.produce("payments", 1, "one", "two", host="host-2")
    cluster.produce("first", 0, "kept")
    assert cluster.consume("host-3", "payments", 0, 5) == PAYMENTS
    assert cluster.consume("host-3", "first", 0, 1) == ["kept"]
    until(lambda: cluster.copied("payments", 0, 5) and cluster.copied("first", 0, 1))
    until(lambda: cluster.recorded("payments", 5, 2))
    return cluster


@pytest.mark.slow
def test_a_hosts_disk_is_gone(filled: Runbook) -> None:
    it_is_started_on_an_empty_disk(filled)
    what_waits_is_decided_about(filled)
    nothing_is_left_to_rebuild(filled)
    the_coordinators_disk_is_gone_too(filled)
    filled.done()


def it_is_started_on_an_empty_disk(cluster: Runbook) -> None:
    """Steps 1 and 2."""
    cluster.lose_disk("host-2")
    cluster.step("host-2", "up")
    until(lambda: cluster.standing("payments", 0)["state"] == "led")
    assert cluster.step("host-1", "streams", "--check").code == 1
    assert "WAITS" in cluster.step("host-1", "partitions", "list").out
    assert cluster.consume("host-3", "payments", 0, 5) == PAYMENTS
    cluster.produce("payments", 0, "after", host="host-2")
    assert cluster.consume("host-3", "payments", 0, 6) == [*PAYMENTS, "after"]
    until(lambda: cluster.copied("payments", 0, 6))
    assert cluster.ran("host-3", "streams", "--check", "--json").code == 1
    waiting = cluster.ran("host-2", "status", "--json").json["problems"]
    assert any("payments-1" in problem for problem in waiting)


def what_waits_is_decided_about(cluster: Runbook) -> None:
    """Step 3, in the order of the page: another host takes the lead, then records are given up."""
    until(lambda: cluster.recorded("payments", 6, 2))
    cluster.hosts["host-2"].kill()
    cluster.wait_away("host-2")
    promoted = cluster.step("host-1", "partitions", "promote")
    assert promoted.code == 0, promoted.err
    assert cluster.standing("payments", 0)["leader"] == "host-3"
    cluster.produce("payments", 0, "at another host")
    cluster.hosts["host-2"].restart()
    until(
        lambda: cluster.standing("payments", 1, "host-2")["problem"].startswith(
            "its disk is gone or old; it waits"
        )
    )
    refused = cluster.step("host-1", "partitions", "rebuild")
    assert refused.code == 1
    assert "2 records" in refused.err
    assert "--accept-loss" in refused.err
    given_up = cluster.step("host-1", "partitions", "rebuild")
    assert given_up.code == 0, given_up.err
    (lost,) = until(lambda: cluster.standing("payments", 1)["lost"])
    assert (lost["first"], lost["heard"], lost["host"]) == (0, 2, "host-2")
    until(lambda: cluster.standing("payments", 1)["state"] == "led")
    until(lambda: cluster.ran("host-1", "streams", "--check").code == 0)
    assert "lost disk of" in cluster.ran("host-1", "streams").out


def nothing_is_left_to_rebuild(cluster: Runbook) -> None:
    """Step 4: the commands name the consumers to reset; tests/unit/relay covers a refused copy."""
    nothing = cluster.step("host-3", "partitions", "rebuild")
    assert (nothing.code, "nothing to rebuild" in nothing.err) == (1, True)


def the_coordinators_disk_is_gone_too(cluster: Runbook) -> None:
    """Step 5."""
    until(
        lambda: cluster.ran("host-2", "consume", "first", "--beginning", "-n", "1", "--idle", "20").code == 0
    )
    cluster.lose_disk("host-1")
    restored = cluster.step("host-1", "restore-coordinator")
    assert restored.code == 0, restored.err
    cluster.step("host-1", "up")
    until(lambda: cluster.standing("first", 0)["state"] == "led")
    assert cluster.consume("host-2", "first", 0, 1) == ["kept"]
    cluster.produce("first", 0, "again", host="host-2")
    assert cluster.consume("host-3", "first", 0, 2) == ["kept", "again"]
    assert cluster.consume("host-1", "payments", 0, 7) == [*PAYMENTS, "after", "at another host"]
    until(lambda: cluster.presences() == ["attached"] * 3)
    until(lambda: cluster.standing("first", 1)["state"] == "led")
    assert cluster.step("host-1", "partitions", "accept").code == 0
    until(lambda: cluster.ran("host-1", "streams", "--check").code == 0)
