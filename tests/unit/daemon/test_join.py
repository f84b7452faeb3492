"""Daemons in a cluster have the same topics, through restarts, kills and an absent coordinator."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess, parse_ready
from treecast.middleware.model.errors import Fault, TreecastError

WAIT = 30.0  # seconds
FABRIC = ("--fabric", "127.0.0.1:0")


def topics(daemon: DaemonProcess) -> dict[str, str]:
    """Returns topic ids by name."""
    with DaemonClient(daemon.control) as client:
        return {topic.name: topic.topic_id for topic in client.list_topics()}


def create(daemon: DaemonProcess, name: str, partitions: int = 1) -> None:
    with DaemonClient(daemon.control) as client:
        client.create_topic(name, partitions)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.05)


def led(daemon: DaemonProcess) -> list[str]:
    """Returns the partitions that it leads."""
    with DaemonClient(daemon.control) as client:
        found = [client.describe_topic(topic.name) for topic in client.list_topics()]
    name = daemon.ready["name"]
    return sorted(f"{t.topic.name}-{p.index}" for t in found for p in t.partitions if p.leader == name)


def logged(daemon: DaemonProcess, text: str) -> bool:
    return text in daemon.log()


@pytest.fixture
def first(start_daemon) -> DaemonProcess:
    return start_daemon("--name", "a", *FABRIC)


@pytest.fixture
def joined(start_daemon, first: DaemonProcess) -> Callable[..., DaemonProcess]:
    """Starts a daemon that joins `first`: `joined("b")`."""

    def start(name: str, *flags: str, **options) -> DaemonProcess:
        token = ("--join-token", f"@{first.data / 'join-token'}")
        return start_daemon("--name", name, *FABRIC, "--join", first.control, *token, *flags, **options)

    return start


def test_what_a_first_daemon_has(first: DaemonProcess) -> None:
    assert list(first.ready) == ["name", "kafka", "amqp", "mqtt", "stare", "admin", "control", "fabric"]
    path = first.data / "join-token"
    assert path.read_text().startswith("treecast1.")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    create(first, "t", 2)
    assert led(first) == ["t-0", "t-1"]
    assert logged(first, f"--join {first.control} --join-token @{path}")


def test_a_coordinator_that_nobody_can_reach_is_told(start_daemon) -> None:
    flags = ("--fabric", "127.0.0.1:0", "--fabric-advertised", "10.99.0.1:0")
    daemon = start_daemon("--name", "a", *flags)
    assert logged(daemon, "hosts on other machines cannot join")


def test_two_hosts_have_the_same_topics(first: DaemonProcess, joined) -> None:
    create(first, "early", 2)
    second = joined("b")
    create(second, "t", 4)
    until(lambda: topics(first).keys() == topics(second).keys() == {"early", "t"})
    assert topics(first) == topics(second)
    both = [*led(first), *led(second)]
    assert sorted(both) == ["early-0", "early-1", "t-0", "t-1", "t-2", "t-3"]
    assert len(led(first)) == len(led(second)) == 3  # the host that leads fewer partitions gets more
    with DaemonClient(second.control) as client:
        client.alter_topic("early", {"retention.ms": "77"})
        client.delete_topic("t")
    with DaemonClient(first.control) as client:
        until(lambda: client.describe_topic("early").topic.overrides == {"retention.ms": "77"})
    until(lambda: topics(first).keys() == {"early"})
    until(lambda: not any(name.startswith("t-") for name in (*led(first), *led(second))))


def test_each_comes_back_as_what_it_was(first: DaemonProcess, joined) -> None:
    second = joined("b")
    create(second, "t", 4)
    before = topics(second)
    second.flags = ["--name", "b", *FABRIC]  # address and token were kept
    for daemon in (second, first):
        daemon.restart()
        until(lambda daemon=daemon: topics(daemon) == before)
    second.kill()
    create(first, "meanwhile")
    second.restart()
    until(lambda: topics(second).keys() == {"t", "meanwhile"})
    create(second, "after")
    until(lambda: topics(first) == topics(second))
    assert json.loads((second.data / "meta.json").read_text())["host_id"] == 2


def test_a_killed_coordinator_is_missed_and_found_again(first: DaemonProcess, joined) -> None:
    second = joined("b")
    create(first, "t", 2)
    until(lambda: "t" in topics(second))
    first.kill()
    until(lambda: logged(second, "coordinator is away"))
    assert topics(second).keys() == {"t"}
    with pytest.raises(TreecastError) as refused:
        create(second, "not-now")
    assert refused.value.fault is Fault.COORDINATOR_UNAVAILABLE
    first.restart()
    until(lambda: logged(second, "coordinator is back"))
    create(second, "now")
    until(lambda: topics(first).keys() == {"t", "now"})
    assert second.log().count("coordinator is away") == 1


def test_a_host_starts_from_what_it_knew(first: DaemonProcess, joined) -> None:
    second = joined("b")
    create(second, "t", 2)
    first.pin_ports()
    first.kill()
    second.restart()
    assert logged(second, "host starts from its stored view")
    assert topics(second).keys() == {"t"}
    first.start()
    create(first, "now")
    until(lambda: topics(second).keys() == {"t", "now"})


def test_a_new_host_waits_for_the_coordinator(first: DaemonProcess, joined) -> None:
    first.pin_ports()
    first.kill()
    second = joined("b", start=False)
    second.start(wait=False)
    until(lambda: logged(second, "waiting for the coordinator"))
    assert second.running
    first.start()
    second.wait_ready()
    assert second.log().count("waiting for the coordinator") == 1


def test_a_signal_ends_the_wait(first: DaemonProcess, joined) -> None:
    first.kill()
    second = joined("b", start=False)
    second.start(wait=False)
    until(lambda: logged(second, "waiting for the coordinator"))
    assert second.stop() == 0


def refusal(daemon: DaemonProcess) -> str:
    with pytest.raises(DaemonFailed):
        daemon.start()
    assert "Traceback" not in daemon.log()
    return daemon.log()


def test_no_token_a_broken_one_and_another_clusters(
    first: DaemonProcess, start_daemon, tmp_path: Path
) -> None:
    def join(*flags: str) -> str:
        return refusal(start_daemon("--name", "c", *FABRIC, "--join", first.control, *flags, start=False))

    assert "its token is needed: give --join-token" in join()
    assert "a join token begins with 'treecast1.'" in join("--join-token", "hello")
    assert "the file cannot be read: No such file" in join("--join-token", f"@{tmp_path / 'x'}")
    other = start_daemon("--name", "x", *FABRIC)
    assert "this coordinator to" in join("--join-token", f"@{other.data / 'join-token'}")


def test_a_name_that_is_taken_and_one_that_is_not_the_directorys(first: DaemonProcess, joined) -> None:
    second = joined("b")
    assert "a host named b is attached already" in refusal(joined("b", start=False))
    second.stop()
    second.flags[second.flags.index("b")] = "c"
    assert "is of host 'b', and this is 'c': start with --name b" in refusal(second)


def test_a_daemon_without_a_coordinator_cannot_be_joined(first: DaemonProcess, joined, start_daemon) -> None:
    second = joined("b")
    third = start_daemon(
        *("--name", "c", *FABRIC, "--join", second.control),
        *("--join-token", f"@{first.data / 'join-token'}"),
        start=False,
    )
    assert "there is no coordinator" in refusal(third)


# --- views of other hosts


def test_what_hosts_see_of_each_other(first: DaemonProcess, joined) -> None:
    second = joined("b")
    with DaemonClient(second.control) as client:
        until(lambda: all(host.here or host.channel.connected for host in client.status().hosts))
        status = client.status()
        assert [(host.name, host.host_id, host.here) for host in status.hosts] == [
            ("a", 1, False),
            ("b", 2, True),
        ]
        assert [host.address for host in status.hosts] == [first.ready["fabric"], second.ready["fabric"]]
        assert status.coordinator.address == first.control
        assert status.coordinator.reachable
        fabric = client.fabric()
        assert (fabric.address, fabric.interface) == (second.ready["fabric"], "lo")
        assert {carrier.name for carrier in fabric.carriers} == {"unicast", "ip-multicast"}
        assert list(client.list_streams()) == []
        first.kill()
        until(lambda: not client.status().coordinator.reachable)
        until(lambda: not client.status().hosts[0].channel.connected)
        assert "no coordinator answers" in client.status().coordinator.problem


def test_leaders_are_named(first: DaemonProcess, joined) -> None:
    second = joined("b")
    with DaemonClient(first.control) as client:
        client.create_topic("pinned", 2, leaders=["b"])
        client.create_topic("each", 2, leaders=["b", "a"])
        with pytest.raises(TreecastError) as refused:
            client.create_topic("x", leaders=["nobody"])
        assert refused.value.fault is Fault.INVALID_ASSIGNMENT
        until(lambda: topics(second).keys() == {"pinned", "each"})
        assert [p.leader for p in client.describe_topic("pinned").partitions] == ["b", "b"]
        assert [p.leader for p in client.describe_topic("each").partitions] == ["b", "a"]


def test_a_host_alone_has_no_streams_and_no_leaders(daemon: DaemonProcess) -> None:
    with DaemonClient(daemon.control) as client:
        assert not client.status().HasField("coordinator")
        for call in (client.list_streams, client.fabric):
            with pytest.raises(TreecastError, match="the fabric is off, and this host is alone"):
                call()
        with pytest.raises(TreecastError, match="name no leaders"):
            client.create_topic("t", leaders=["a"])


def test_metrics_of_a_joined_host(first: DaemonProcess) -> None:
    with urllib.request.urlopen(f"http://{first.admin}/metrics", timeout=WAIT) as answer:
        text = answer.read().decode()
    assert "treecast_coordinator_up 1.0" in text
    # the first host reaches its own coordinator without the network
    assert "treecast_coordinator_watchers 0.0" in text
    assert 'treecast_host_attached{host="a"} 1.0' in text
    assert "treecast_fabric_sent_packets_total" in text


# --- hosts that were alone


def test_a_host_alone_is_adopted_with_its_topics(
    first: DaemonProcess, joined, start_daemon, tmp_path
) -> None:
    data = tmp_path / "alone"
    alone = start_daemon("--name", "b", data=data)
    create(alone, "mine", 2)
    before = topics(alone)
    alone.stop()
    second = joined("b", data=data)
    assert topics(second) == before
    until(lambda: topics(first) == before)
    assert led(second) == ["mine-0", "mine-1"]
    assert json.loads((data / "meta.json").read_text())["host_id"] == 2
    second.restart()
    assert topics(second) == before


def test_topics_of_one_name_that_are_not_the_same(
    first: DaemonProcess, joined, start_daemon, tmp_path
) -> None:
    data = tmp_path / "alone"
    alone = start_daemon("--name", "b", data=data)
    create(alone, "t")
    alone.stop()
    create(first, "t")
    assert "both have a topic 't'" in refusal(joined("b", data=data, start=False))
    alone.start()
    assert topics(alone).keys() == {"t"}


def test_a_cluster_of_one_can_be_left_and_had_again(first: DaemonProcess) -> None:
    create(first, "kept")
    create(first, "gone")
    before, taken = topics(first), producer_id(first)
    with DaemonClient(first.control) as client:
        client.reset_group(pb.ResetGroupRequest(group_id="g", topic="kept", earliest=True))
    first.stop()
    first.flags = ["--name", "a"]
    first.start()
    assert "fabric" not in first.ready
    assert topics(first) == before
    assert offsets(first, "g") == [("kept", 0, 0)]
    assert (between := producer_id(first)) > taken
    with DaemonClient(first.control) as client:
        client.delete_topic("gone")
    first.stop()
    first.flags = ["--name", "a", *FABRIC]
    first.start()
    assert topics(first) == {"kept": before["kept"]}
    assert offsets(first, "g") == [("kept", 0, 0)]
    assert producer_id(first) > between


def test_a_first_daemon_that_is_alone_can_join_another(
    first: DaemonProcess, joined, tmp_path, start_daemon
) -> None:
    data = tmp_path / "other"
    other = start_daemon("--name", "b", *FABRIC, data=data)
    create(other, "mine")
    before = topics(other)
    assert json.loads((data / "meta.json").read_text())["host_id"] == 1
    other.stop()
    second = joined("b", data=data)
    assert topics(second) == before
    until(lambda: topics(first) == before)
    assert not (data / "coordinator.db").exists()
    assert json.loads((data / "meta.json").read_text())["host_id"] == 2


def test_a_cluster_of_several_is_not_left(first: DaemonProcess, joined) -> None:
    second = joined("b")
    for daemon, said in ((second, "which is joined to others"), (first, "a cluster of 2 hosts (a, b)")):
        daemon.stop()
        daemon.flags = [*daemon.flags[:2], "--fabric", "off"]
        assert said in refusal(daemon)


# --- a coordinator of its own


@contextmanager
def coordinator(data: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A `treecast coordinator`, and its control address."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "coordinator", "--data", str(data), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, parse_ready(process.stdout.readline().decode())["control"]
        finally:
            process.kill()


def test_a_coordinator_as_a_process_of_its_own(start_daemon, tmp_path: Path) -> None:
    data = tmp_path / "coordinator"
    with coordinator(data, "--control", "127.0.0.1:0") as (process, control):
        assert stat.S_IMODE((data / "join-token").stat().st_mode) == 0o600
        token = ("--join", control, "--join-token", f"@{data / 'join-token'}")
        hosts = [start_daemon("--name", name, *FABRIC, *token) for name in ("a", "b")]
        create(hosts[0], "t", 2)
        until(lambda: topics(hosts[1]).keys() == {"t"})
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
    until(lambda: logged(hosts[0], "coordinator is away"))
    with coordinator(data, "--control", control):
        until(lambda: logged(hosts[0], "coordinator is back"))
        create(hosts[0], "more")
        until(lambda: topics(hosts[1]).keys() == {"t", "more"})


@pytest.mark.parametrize(
    ("flags", "said", "code"),
    [
        (["--control", "off"], "a coordinator needs an address", 1),
        (["--kafka", "127.0.0.1:0"], "unknown flag --kafka", 2),
        (["--join-token", "x", "--control", "127.0.0.1:0"], "--join-token: a join token begins with", 1),
    ],
)
def test_wrong_use_of_the_coordinator(flags: list[str], said: str, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "treecast.middleware.cli", "coordinator", "--data", str(tmp_path / "c")]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=WAIT, check=False)
    assert said in done.stderr
    assert (done.returncode, done.stdout) == (code, "")


def test_a_daemons_directory_is_no_coordinators(first: DaemonProcess) -> None:
    command = [sys.executable, "-m", "treecast.middleware.cli", "coordinator", "--data", str(first.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert "is a daemon's data directory" in done.stderr


def offsets(daemon: DaemonProcess, group: str) -> list[tuple[str, int, int]]:
    with DaemonClient(daemon.control) as client:
        found = client.describe_group(group).offsets
    return [(offset.topic, offset.partition, offset.committed) for offset in found]


def test_groups_of_a_host_alone_keep_their_offsets(
    first: DaemonProcess, joined, start_daemon, tmp_path
) -> None:
    data = tmp_path / "alone"
    alone = start_daemon("--name", "b", data=data)
    create(alone, "mine", 2)
    with DaemonClient(alone.control) as client:
        client.reset_group(pb.ResetGroupRequest(group_id="g", topic="mine", earliest=True))
    before = offsets(alone, "g")
    assert before == [("mine", 0, 0), ("mine", 1, 0)]
    alone.stop()
    second = joined("b", data=data)
    assert offsets(second, "g") == before
    until(lambda: "g" in {group.group_id for group in groups(first)})
    assert offsets(first, "g") == before


def groups(daemon: DaemonProcess) -> list[pb.Group]:
    with DaemonClient(daemon.control) as client:
        return list(client.list_groups())


def test_groups_are_listed_while_one_home_is_away(first: DaemonProcess, joined) -> None:
    second = joined("b")
    create(first, "t", 1)
    until(lambda: topics(second).keys() == {"t"})
    for daemon, group in ((first, "here"), (second, "there")):  # the first host to ask is the home
        with DaemonClient(daemon.control) as client:
            client.reset_group(pb.ResetGroupRequest(group_id=group, topic="t", earliest=True))
    until(
        lambda: (
            {group.group_id: group.state for group in groups(first)} == {"here": "Empty", "there": "Empty"}
        )
    )
    second.kill()
    assert {group.group_id: group.state for group in groups(first)} == {"here": "Empty", "there": "Unknown"}
    with DaemonClient(first.control) as client:
        assert client.status().totals.groups == 2


def test_groups_whose_homes_disk_is_lost_keep_their_offsets(first: DaemonProcess, joined) -> None:
    """The coordinator's store has the offsets."""
    second = joined("b")
    create(first, "t", 1)
    until(lambda: topics(second).keys() == {"t"})
    with DaemonClient(second.control) as client:
        client.reset_group(pb.ResetGroupRequest(group_id="g", topic="t", earliest=True))
    assert offsets(first, "g") == [("t", 0, 0)]
    second.kill()
    shutil.rmtree(second.data)
    with DaemonClient(first.control) as client:
        until(lambda: any(host.presence == "away" for host in client.status().hosts))
    second.restart()
    until(lambda: [group.state for group in groups(first)] == ["Empty"])
    assert offsets(first, "g") == offsets(second, "g") == [("t", 0, 0)]


def test_a_host_on_a_new_disk_has_connections_at_once(first: DaemonProcess, joined) -> None:
    second = joined("b")
    for _ in range(2):  # the run number rises with each start
        second.restart()

    def host(daemon: DaemonProcess, name: str) -> pb.HostStatus:
        with DaemonClient(daemon.control) as client:
            (found,) = [one for one in client.status().hosts if one.name == name]
        return found

    until(lambda: host(first, "b").channel.connected)
    second.kill()
    shutil.rmtree(second.data)
    until(lambda: host(first, "b").presence == "away")
    second.restart()
    until(lambda: host(first, "b").channel.connected and host(second, "a").channel.connected)
    assert not logged(first, "a newer incarnation of the host is known")
    assert not logged(second, "a newer incarnation of the host is known")
    assert logged(second, "data directory is another one, or an older state of it")
    with DaemonClient(second.control) as client:
        [problem] = client.status().problems
        assert "this data directory is new to the cluster" in problem


def test_producer_ids_of_a_host_alone_are_not_given_again(
    first: DaemonProcess, joined, start_daemon, tmp_path
) -> None:
    data = tmp_path / "alone"
    alone = start_daemon("--name", "b", data=data)
    taken = producer_id(alone)
    alone.stop()
    second = joined("b", data=data)
    assert min(producer_id(first), producer_id(second)) > taken
    assert producer_id(first) != producer_id(second)
    second.restart()
    assert producer_id(second) > taken


def producer_id(daemon: DaemonProcess) -> int:
    """Gets a producer id by one InitProducerId request, version 0, without a transactional id."""
    body = struct.pack(">hhih", 22, 0, 1, 1) + b"c" + struct.pack(">hi", -1, 1000)
    with socket.create_connection(daemon.address("kafka"), WAIT) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = b""
        while len(answer) < 24:
            piece = connection.recv(100)
            assert piece
            answer += piece
    _, _, _, error, found, _ = struct.unpack(">iiihqh", answer)
    assert error == 0
    return found


# --- mismatches


def test_a_joined_host_with_another_clusters_token(first: DaemonProcess, joined, start_daemon) -> None:
    second, other = joined("b"), start_daemon("--name", "x", *FABRIC)
    second.stop()
    second.flags[second.flags.index("--join-token") + 1] = f"@{other.data / 'join-token'}"
    assert "and the join token to cluster" in refusal(second)


def test_a_first_daemon_that_lost_its_coordinators_store(first: DaemonProcess) -> None:
    create(first, "t")
    first.stop()
    (first.data / "coordinator.db").rename(first.data / "elsewhere")
    assert "coordinator.db is missing: restore it" in refusal(first)
    (first.data / "elsewhere").rename(first.data / "coordinator.db")
    first.start()
    assert topics(first).keys() == {"t"}


def test_an_address_that_others_are_told(start_daemon, first: DaemonProcess) -> None:
    token = ("--join", first.control, "--join-token", f"@{first.data / 'join-token'}")
    flags = ("--fabric", "0.0.0.0:0", "--fabric-advertised", "localhost:0")
    second = start_daemon("--name", "b", *flags, *token)
    port = second.address("fabric")[1]
    with DaemonClient(first.control) as client:
        until(lambda: len(client.status().hosts) == 2)
        assert client.status().hosts[1].address == f"localhost:{port}"
        until(lambda: client.status().hosts[1].channel.connected)


def test_a_port_of_the_fabric_that_is_in_use(first: DaemonProcess, start_daemon) -> None:
    taken = first.ready["fabric"]
    said = refusal(start_daemon("--name", "b", "--fabric", taken, start=False))
    assert f"--fabric {taken}: the port is in use" in said


def test_nothing_is_left_when_a_start_is_refused(first: DaemonProcess, joined) -> None:
    """The refused start releases lock, ports and lease, so the next start with correct settings works at
    once."""
    second = joined("b", start=False)
    second.flags += ["--kafka", first.kafka]
    assert "the port is in use" in refusal(second)
    second.flags = second.flags[:-2]
    second.start()
    second.stop()
    second.flags += ["--topic-defaults", "retention.ms=7"]
    second.start()
