"""A data directory that comes back old, one that runs twice, and a disk that is lost with the only record of
it.

On real daemons; tests/unit/control and tests/unit/relay have the rules one by one.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.cluster import Cluster
from tests.unit.cli.eventually import until

from treecast.middleware.api.attachment import STAMP_SECONDS
from treecast.middleware.daemon.process import DaemonFailed

pytestmark = pytest.mark.slow
EARLY = [f"early {number}" for number in range(10)]
LATE = [f"late {number}" for number in range(5)]


@pytest.fixture
def cluster(start_daemon, command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    return Cluster(start_daemon, command, monkeypatch, tmp_path)


def made(cluster: Cluster, topic: str, leader: str) -> None:
    ran = cluster.ran("host-1", "topics", "create", topic, "--leader", leader)
    assert ran.code == 0, ran.err
    for host in cluster.hosts:
        until(lambda host=host: topic in cluster.ran(host, "topics", "list").out)


def followed(cluster: Cluster, topic: str, values: list[str], *hosts: str) -> None:
    """Waits until the hosts have replicas with these records."""
    for host in hosts:
        assert cluster.consume(host, topic, 0, len(values)) == values
        until(lambda host=host: cluster.copied(topic, 0, len(values), host))


def checks(cluster: Cluster) -> list[int]:
    return [cluster.ran(host, "streams", "--check").code for host in cluster.hosts]


def problems(cluster: Cluster, host: str) -> Any:
    return cluster.ran(host, "status", "--json").json["problems"]


@pytest.mark.parametrize(("runs", "killed"), [(1, True), (1, False), (2, True)])
def test_a_restored_directory_leads_from_the_copies_of_others(
    cluster: Cluster, tmp_path: Path, runs: int, killed: bool
) -> None:
    """The copy is of an orderly stopped daemon, and `runs` older than what the others know."""
    made(cluster, "t", "host-2")
    cluster.produce("t", 0, *EARLY, host="host-2")
    followed(cluster, "t", EARLY, "host-1", "host-3")
    daemon = cluster.hosts["host-2"]
    daemon.stop()
    shutil.copytree(daemon.data, tmp_path / "copy", copy_function=shutil.copy2)
    values = list(EARLY)
    for run in range(runs):
        daemon.restart()
        cluster.produce("t", 0, *(f"{run} {value}" for value in LATE), host="host-2")
        values += [f"{run} {value}" for value in LATE]
        followed(cluster, "t", values, "host-1", "host-3")
        until(lambda values=values: cluster.recorded("t", len(values)))
        daemon.kill() if killed else daemon.stop()
    cluster.restore("host-2", tmp_path / "copy")
    daemon.restart()
    until(lambda: checks(cluster) == [0, 0, 0])
    for host in cluster.hosts:
        assert cluster.consume(host, "t", 0, len(values)) == values
    assert cluster.standing("t", 0)["lost"] == []
    assert "an older state of it" in daemon.log()
    assert any("restored to an older state" in problem for problem in problems(cluster, "host-2"))
    cluster.produce("t", 0, "new", host="host-2")
    followed(cluster, "t", [*values, "new"], *cluster.hosts)
    assert "replica is cut" not in "".join(one.log() for one in cluster.hosts.values())
    daemon.restart()
    assert problems(cluster, "host-2") == []  # the next run is none of an older state


def test_a_copy_of_a_running_daemons_directory_is_an_older_state_too(
    cluster: Cluster, tmp_path: Path
) -> None:
    made(cluster, "t", "host-2")
    cluster.produce("t", 0, *EARLY, host="host-2")
    followed(cluster, "t", EARLY, "host-3")
    daemon = cluster.hosts["host-2"]
    shutil.copytree(daemon.data, tmp_path / "copy", copy_function=shutil.copy2)
    time.sleep(2 * STAMP_SECONDS)  # the run goes on; nothing that is read here shows how far
    daemon.kill()
    cluster.restore("host-2", tmp_path / "copy")
    daemon.restart()
    until(lambda: checks(cluster) == [0, 0, 0])
    assert "an older state of it" in daemon.log()
    followed(cluster, "t", EARLY, *cluster.hosts)


def test_a_second_daemon_on_a_copy_is_refused_with_what_to_do(
    cluster: Cluster, start_daemon, tmp_path: Path
) -> None:
    made(cluster, "t", "host-2")
    cluster.produce("t", 0, *EARLY, host="host-2")
    daemon = cluster.hosts["host-2"]
    daemon.stop()
    shutil.copytree(daemon.data, tmp_path / "clone", copy_function=shutil.copy2)
    daemon.restart()
    before = cluster.standing("t", 0)
    with pytest.raises(DaemonFailed, match=r"another daemon runs as host host-2.*stop this one"):
        start_daemon("--name", "host-2", "--fabric", "127.0.0.1:0", data=tmp_path / "clone")
    assert cluster.standing("t", 0) == before
    assert checks(cluster) == [0, 0, 0]
    cluster.produce("t", 0, "more", host="host-2")
    assert cluster.consume("host-3", "t", 0, 11) == [*EARLY, "more"]


def lose_the_first(cluster: Cluster) -> None:
    """Loses the disk with the coordinator, and follows the runbook."""
    cluster.lose_disk("host-1")
    source = ("--from", cluster.hosts["host-2"].control, "--join-token", f"@{cluster.token}")
    restored = cluster.ran(
        "host-2", "restore-coordinator", *source, "--data", str(cluster.hosts["host-1"].data)
    )
    assert restored.code == 0, restored.err
    cluster.hosts["host-1"].restart()
    until(lambda: cluster.presences() == ["attached"] * 3)


def test_a_loss_that_nobody_can_measure_is_named_until_an_operator_accepts_it(cluster: Cluster) -> None:
    made(cluster, "t", "host-1")
    made(cluster, "u", "host-2")
    cluster.produce("t", 0, *EARLY, host="host-1")
    cluster.produce("u", 0, "kept", host="host-2")
    until(lambda: cluster.recorded("t", 10) and cluster.recorded("u", 1))
    lose_the_first(cluster)
    until(lambda: cluster.standing("t", 0)["state"] == "led")
    (lost,) = cluster.standing("t", 0)["lost"]
    assert (lost["first"], lost["unknown"], lost["accepted"]) == (0, True, False)
    until(lambda: checks(cluster) == [1, 1, 1])
    for host in ("host-1", "host-3"):
        assert any("nobody knows how many" in problem for problem in problems(cluster, host))
    assert "unknown" in cluster.ran("host-3", "streams").out
    assert cluster.standing("u", 0)["lost"] == []
    until(lambda: cluster.recorded("u", 1))
    accepted = cluster.ran("host-1", "partitions", "accept")
    assert "t-0" in accepted.out, accepted.err
    until(lambda: checks(cluster) == [0, 0, 0])
    assert len(cluster.standing("t", 0, "host-3")["lost"]) == 1
    assert "no loss" in cluster.ran("host-1", "partitions", "accept", "t", "0").out


def test_after_a_complete_recovery_nothing_says_that_records_are_gone(cluster: Cluster) -> None:
    made(cluster, "t", "host-1")
    cluster.produce("t", 0, *EARLY, host="host-1")
    followed(cluster, "t", EARLY, "host-3")
    until(lambda: cluster.recorded("t", 10))
    time.sleep(3)  # host-3 hears, more than once, that nothing more is written; no command shows it
    lose_the_first(cluster)
    until(lambda: checks(cluster) == [0, 0, 0])
    followed(cluster, "t", EARLY, *cluster.hosts)
    standing = cluster.standing("t", 0)
    assert (standing["lost"], [one["first"] for one in standing["resumed"]]) == ([], [10])
    assert "gone" not in cluster.hosts["host-1"].log()
    assert "lost disk of" not in cluster.ran("host-1", "partitions", "list").out
