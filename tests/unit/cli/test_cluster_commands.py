"""`treecast status`, `doctor` and `streams` beside a joined daemon, and how they print accounts."""

from __future__ import annotations

import json
import socket

import pytest

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.cli import partitions as partitions_module
from treecast.middleware.cli import streams as streams_module


def stream(**account) -> pb.StreamStatus:
    whole = {"host": "b", "state": "live", "carrier": "unicast", "closed": True, "balanced": True}
    return pb.StreamStatus(
        name="t-0", stream=3, epoch=2, outgoing=True, accounts=[pb.StreamAccount(**{**whole, **account})]
    )


class Client:
    """A client of a daemon that has these streams."""

    def __init__(self, *found: pb.StreamStatus | pb.PartitionStanding) -> None:
        self._found = found

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None: ...

    def streams(self) -> pb.ListStreamsResponse:
        return pb.ListStreamsResponse(
            streams=[one for one in self._found if isinstance(one, pb.StreamStatus)],
            partitions=self.list_partitions(),
        )

    def list_partitions(self, topic: str = "") -> list[pb.PartitionStanding]:
        found = [one for one in self._found if isinstance(one, pb.PartitionStanding)]
        return [one for one in found if topic in ("", one.topic)]

    def rebuild_partition(self, request: pb.RebuildPartitionRequest) -> pb.RebuildPartitionResponse:
        assert request.accept_loss
        return pb.RebuildPartitionResponse(said=f"{request.topic}-{request.partition} is accepted")


@pytest.fixture
def beside(command, monkeypatch: pytest.MonkeyPatch):
    """Returns `beside(streams...)("streams", ...)`, which runs the command with a daemon that has these
    streams."""

    def make(*found: pb.StreamStatus | pb.PartitionStanding):
        for module in (streams_module, partitions_module):
            monkeypatch.setattr(module, "daemon_at", lambda *where: Client(*found))
        return command

    return make


def test_an_account_on_one_line(beside) -> None:
    ran = beside(
        stream(addressed=12, live=5, expired={"size": 4, "age": 2}, outstanding=1, closed=False),
        pb.StreamStatus(name="u-1", origin="a", stream=9, epoch=1, state="live", next=7, end=10),
    )("streams")
    sent, received = ran.lines[1].split(), ran.lines[-1].split()
    assert sent[:10] == ["3", "t-0", "2", "b", "live", "unicast", "12", "5", "0", "0"]
    assert "6 (age 2, size 4)" in ran.lines[1]
    assert sent[-2:] == ["1", "open"]
    assert received == ["a", "9", "u-1", "1", "live", "7", "10", "3"]


def test_a_topic_and_json(beside) -> None:
    treecast = beside(stream(addressed=1), pb.StreamStatus(name="t-u-0", outgoing=True))
    (only,) = treecast("streams", "t", "--json").json
    assert (only["name"], only["accounts"][0]["addressed"]) == ("t-0", 1)
    assert treecast("streams", "nothing").lines[0] == "no stream of this host has a receiver"


@pytest.mark.parametrize(
    ("account", "flags", "code"),
    [
        ({}, (), 0),
        ({}, ("--check",), 0),
        ({"closed": False, "outstanding": 1}, (), 0),
        ({"closed": False, "outstanding": 1}, ("--check",), 1),
        ({"balanced": False}, (), 1),
    ],
)
def test_the_exit_code_says_whether_all_is_accounted_for(
    account: dict[str, object], flags: tuple[str, ...], code: int, beside
) -> None:
    assert beside(stream(**account))("streams", *flags).code == code


@pytest.fixture
def cluster(command, start_daemon, monkeypatch: pytest.MonkeyPatch):
    """The command beside the second of two hosts."""
    fabric = ("--fabric", "127.0.0.1:0")
    first = start_daemon("--name", "a", *fabric)
    token = ("--join", first.control, "--join-token", f"@{first.data / 'join-token'}")
    second = start_daemon("--name", "b", *fabric, *token)
    monkeypatch.setenv("TREECAST_CONTROL", second.control)
    return command


def test_commands_beside_a_joined_host(cluster) -> None:
    assert cluster("topics", "create", "t", "-p", "2", "--leader", "a", "--leader", "b").code == 0
    described = cluster("topics", "describe", "t").lines
    assert [line.split()[:2] for line in described[-2:]] == [["0", "a"], ["1", "b"]]
    status = cluster("status").lines
    assert any(line.startswith("coordinator") and ", revision" in line for line in status)
    assert [line.split()[1] for line in status[-2:]] == ["a", "b"]
    said = {row["check"]: row for row in cluster("doctor", "--json").json}
    assert "b is host 2 of cluster" in said["cluster"]["detail"]
    assert "on interface lo, MTU" in said["fabric"]["detail"]
    assert {"host a", "carrier unicast", "carrier ip-multicast"} <= said.keys()
    assert cluster("streams").code == 0


def test_where_a_message_goes(cluster) -> None:
    assert cluster("explain", "--mqtt", "a/b").lines == ["no host wants such a message"]
    assert cluster("topics", "create", "t", "-p", "2", "--leader", "a", "--leader", "b").code == 0
    found = cluster("explain", "--topic", "t", "--json").json
    ways = [(way["sender"], way["hosts"], way["carrier"], way["why"]) for way in found["ways"]]
    assert ways == [("b", ["a"], "channel", "leads t-0"), ("b", ["b"], "local", "leads t-1")]
    assert (found["host"], found["hosts"]) == ("b", ["a", "b"])
    assert cluster("explain", "--mqtt", "t", "--json").json == found  # Kafka has the topic
    assert cluster("explain", "", "queue").lines == ["no host wants such a message"]
    for wrong, said in (
        ((), "give one of EXCHANGE KEY, --topic NAME and --mqtt TOPIC"),
        (("e", "k", "--topic", "t"), "give one of"),
        (("e", "k"), "no exchange 'e' in vhost '/'"),
        (("amq.topic", "k", "--vhost", "v"), "there is no virtual host 'v'"),
        (("amq.headers", "", "--header", "name"), "expected NAME=VALUE"),
    ):
        ran = cluster("explain", *wrong)
        assert (ran.code, said in ran.err) == (1, True), ran


def test_the_doctor_looks_for_the_coordinator(command, tmp_path) -> None:
    config = tmp_path / "treecast.toml"
    config.write_text('fabric = "127.0.0.1:0"\njoin = "127.0.0.1:1"\n')
    ran = command("doctor", "--config", str(config), "--json")
    said = {row["check"]: row for row in json.loads(ran.out)}
    assert said["coordinator"]["level"] == "bad"
    assert "nobody answers at 127.0.0.1:1" in said["coordinator"]["detail"]
    assert ran.code == 1
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config.write_text(f'fabric = "127.0.0.1:0"\njoin = "127.0.0.1:{listener.getsockname()[1]}"\n')
        said = {
            row["check"]: row for row in json.loads(command("doctor", "--config", str(config), "--json").out)
        }
    assert said["coordinator"]["level"] == "ok"


LOST = pb.LostRecords(first=1000, heard=1003, leader_epoch=7, host="b", time_ms=1_700_000_000_000)


def standing(state: str, **more) -> pb.PartitionStanding:
    return pb.PartitionStanding(topic="t", partition=1, leader="b", state=state, **more)


@pytest.mark.parametrize("state", ["waits", "rebuilding", "refused"])
def test_the_check_fails_while_a_partition_is_not_as_it_should_be(beside, state: str) -> None:
    treecast = beside(stream(), standing(state, problem="it waits for host c"))
    assert treecast("streams", "--check").code == 1
    assert treecast("streams", "u", "--check").code == 0  # the account of another topic
    assert treecast("streams").code == 0
    (line,) = [line for line in treecast("streams").lines if line.startswith("t-1")]
    assert state.upper() in line
    assert "it waits for host c" in line
    found = treecast("streams", "--json").json
    assert [(one["name"], one["state"], one["accounts"]) for one in found[1:]] == [("t-1", state, [])]


def lost(**fields) -> pb.LostRecords:
    found = pb.LostRecords()
    found.CopyFrom(LOST)
    found.MergeFrom(pb.LostRecords(**fields))
    return found


def test_what_a_lost_disk_had_is_named_and_fails_the_check_until_it_is_accepted(beside) -> None:
    for accepted, said in ((False, "NO"), (True, "yes")):
        treecast = beside(stream(), standing("led", lost=[lost(accepted=accepted)]))
        assert treecast("streams", "--check").code == (0 if accepted else 1)
        ran = treecast("streams")
        assert ran.code == 0
        head, row = ran.lines[-2:]
        assert head.startswith("partition  lost disk of")
        assert row.split() == ["t-1", "b", "2023-11-14T22:13:20.000Z", "1,000", "1,003", "3", "7", said]
        assert treecast("streams", "--json").json[1]["lost"][0]["first"] == 1000


def test_a_loss_of_unknown_size_is_shown_as_such(beside) -> None:
    treecast = beside(standing("led", lost=[lost(unknown=True)]))
    assert treecast("streams", "--check").code == 1
    row = treecast("partitions", "list").lines[-1]
    assert row.split()[3:] == ["1,000", "unknown", "3", "or", "more", "7", "NO"]


def test_where_nothing_was_lost_with_a_disk_no_listing_says_so(beside) -> None:
    treecast = beside(standing("led", resumed=[LOST]))
    assert treecast("streams", "--check").code == 0
    assert "lost" not in treecast("streams").out + treecast("partitions", "list").out
    assert treecast("partitions", "list", "--json").json[0]["resumed"][0]["first"] == 1000


def test_losses_are_accepted_partition_by_partition(beside) -> None:
    treecast = beside(
        standing("led", lost=[lost()]),
        pb.PartitionStanding(topic="u", state="waits", lost=[lost()]),
        pb.PartitionStanding(topic="v", state="led", lost=[lost(accepted=True)]),
    )
    assert "no loss" in treecast("partitions", "accept", "t", "0").out
    ran = treecast("partitions", "accept")
    assert (ran.code, ran.lines) == (0, ["t-1 is accepted"])
