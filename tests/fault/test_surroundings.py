"""Problems around a daemon: its port, its data directory, its disk."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytestmark = pytest.mark.fault
OPEN_FILES = 64  # of the fixture `limited`


def test_a_port_in_use(daemon, neighbour, start_daemon):
    other = start_daemon("--kafka", daemon.kafka, start=False)
    with pytest.raises(Exception, match=r"no ready line \(exit code 1\)") as failed:
        other.start()
    message = str(failed.value)
    assert daemon.kafka.split(":")[1] in message
    assert "in use" in message
    assert "Traceback" not in message


def test_a_data_directory_in_use(daemon, neighbour, start_daemon):
    other = start_daemon(data=daemon.data, start=False)
    with pytest.raises(Exception, match=r"no ready line \(exit code 1\)") as failed:
        other.start()
    assert str(daemon.data) in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_a_data_directory_of_another_version(daemon, wire_client, topic, read_values):
    daemon.pin_ports()
    assert daemon.stop() == 0
    meta = daemon.data / "meta.json"
    ours = meta.read_text()
    assert '"format": 1' in ours
    meta.write_text(ours.replace('"format": 1', '"format": 99'))
    before = snapshot(daemon.data)
    with pytest.raises(Exception, match=r"no ready line \(exit code 1\)") as failed:
        daemon.start()
    message = str(failed.value)
    assert "99" in message
    assert str(daemon.data) in message
    assert "Traceback" not in message
    assert snapshot(daemon.data) == before
    meta.write_text(ours)
    daemon.start()
    assert read_values(daemon.kafka, topic) == [(0, b"first")]


def test_a_folder_of_something_else_is_left_alone(start_daemon, tmp_path):
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "dear.txt").write_text("sir or madam")
    before = snapshot(folder)
    with pytest.raises(Exception, match=r"no ready line \(exit code 1\)") as failed:
        start_daemon(data=folder)
    assert str(folder) in str(failed.value)
    assert snapshot(folder) == before


def snapshot(folder):
    """Returns names and contents of all files."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- a full disk

STORAGE_ERROR = 56


@pytest.fixture
def daemon_on(start_daemon, small_disk):
    """A daemon with its data on the small disk; it ends before the disk is removed."""
    started = start_daemon(data=small_disk / "data")
    yield started
    if started.running:
        started.kill()


@pytest.fixture
def dial(wire_client):
    """Returns `dial(daemon)`, which opens a connection that is closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda daemon: stack.enter_context(contextlib.closing(wire_client.Connection(daemon.kafka)))


@pytest.mark.parametrize("codec", [0, 4])
def test_a_full_disk_refuses_and_harms_nothing(
    daemon_on, small_disk, fill, wire_client, dial, read_values, codec
):
    wire, acked = wire_client, []
    connection = dial(daemon_on)
    connection.insist("CreateTopics", wire.create_topic("full", 1, {}), wire.first_topic_code)

    def produce(value):
        batch = wire.build_batch([(b"k", value)], codec)
        code, offset = wire.produced(connection.ask(wire.produce("full", 0, batch)))
        if code == 0:
            assert offset == len(acked)
            acked.append(value)
        return code

    for number in range(20):
        assert produce(b"before %d" % number) == 0
    for turn in range(3):
        filling = fill(small_disk)
        codes = [produce(b"%d while full %d " % (turn, n) + os.urandom(20_000)) for n in range(20)]
        assert set(codes) <= {0, STORAGE_ERROR}
        assert STORAGE_ERROR in codes
        # existing records can be read, over the same connection too
        assert read_values(daemon_on.kafka, "full") == list(enumerate(acked))
        refused = connection.ask(wire.offset_commit("group", "full", 0, 1))
        # the home cannot write, so the client shall retry
        assert wire.only_partition_code(refused) in (0, 15, 16)
        filling.unlink()
        for number in range(20):
            assert produce(b"%d after %d" % (turn, number)) == 0
        connection.insist(
            "OffsetCommit", wire.offset_commit("group", "full", 0, turn), wire.only_partition_code
        )
    assert read_values(daemon_on.kafka, "full") == list(enumerate(acked))
    daemon_on.pin_ports()
    daemon_on.kill()
    daemon_on.start()
    assert read_values(daemon_on.kafka, "full") == list(enumerate(acked))
    connection = dial(daemon_on)
    assert wire.fetched_offsets(connection.ask(wire.offset_fetch("group", "full", [0]))) == {0: (2, "m2")}


def page(daemon, path):
    """Returns status and text of an admin page."""
    try:
        with urllib.request.urlopen(f"http://{daemon.admin}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def logged(daemon, text):
    return sum(text in line for line in daemon.log().splitlines())


def command(daemon, *words):
    return [sys.executable, "-m", "treecast.middleware.cli", *words], daemon._environment | {
        "TREECAST_CONTROL": daemon.control,
        "TREECAST_KAFKA": daemon.kafka,
    }


def test_a_full_disk_is_said(daemon_on, small_disk, fill, tmp_path, wire_client, dial, read_values, until):
    """The log reports it once; so do status, readiness, metrics, doctor and the command that waits for it."""
    connection = dial(daemon_on)
    connection.insist("CreateTopics", wire_client.create_topic("full", 1, {}), wire_client.first_topic_code)
    assert page(daemon_on, "/readyz") == (200, "ready\n")
    filling = fill(small_disk)
    lines = tmp_path / "lines"
    lines.write_bytes(b"\n".join(b"%d" % n + b"x" * 10_000 for n in range(500)))
    program, environment = command(daemon_on, "produce", "full", "--file", str(lines))
    producing = subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, text=True)
    said = "treecast: answered by"
    while said.startswith("treecast: answered by"):
        said = producing.stderr.readline()
    assert f"waiting for {daemon_on.kafka} to acknowledge 500 records: the disk of {daemon_on.data}" in said
    assert "refuses writes: No space left on device" in said
    assert logged(daemon_on, "refuses writes") == 1
    status, text = page(daemon_on, "/readyz")
    assert (status, "refuses writes" in text) == (503, True)
    assert page(daemon_on, "/readyz?for=reads")[0] == 200
    assert "\ntreecast_disk_refuses 1.0\n" in page(daemon_on, "/metrics")[1]
    for word in ("status", "doctor"):
        program, environment = command(daemon_on, word)
        shown = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert "refuses writes" in " ".join(shown.stdout.split())
    for number in range(20):
        connection.ask(wire_client.offset_commit("group", "full", 0, number))
    assert logged(daemon_on, "groups and offsets cannot be written") <= 1
    filling.unlink()
    assert producing.wait(120) == 0
    producing.stderr.close()
    assert len(read_values(daemon_on.kafka, "full")) == 500
    until(lambda: page(daemon_on, "/readyz")[0] == 200, "the disk to take writes again")
    assert (logged(daemon_on, "refuses writes"), logged(daemon_on, "accepts writes again")) == (1, 1)


# --- no file descriptors


def serves(daemon, held):
    """Returns whether one more client is answered and not refused."""
    held.append(client := socket.create_connection(daemon.address("kafka"), 30))
    with contextlib.suppress(ConnectionError):
        client.sendall(bytes((0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255)))  # ApiVersions
        return client.recv(4) != b""
    return False


def turned_away(daemon, face, held):
    """Returns whether one more client is refused. An accepted one takes a descriptor that had become free."""
    held.append(client := socket.create_connection(daemon.address(face), 30))
    client.settimeout(1)  # silent ones are closed after 10 s: more than a few must be held at a time
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@pytest.fixture
def held():
    """Connections that are closed at the end."""
    made = []
    yield made
    for one in made:
        one.close()


def test_used_up_descriptors_are_said_and_nobody_hangs(limited, held, until):
    while serves(limited, held):
        assert len(held) < 64, "nobody is turned away"
    for face in ("amqp", "mqtt", "stare"):
        while not turned_away(limited, face, held):
            assert len(held) < 80, "nobody is turned away"
    until(lambda: page(limited, "/readyz")[0] == 503, "the log line")
    program, environment = command(limited, "status")
    shown = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert "no file descriptors are left for clients: 64 may be open" in " ".join(shown.stdout.split())
    assert logged(limited, "no file descriptors are left") == 1
    assert "treecast_descriptors_used_up 1.0" in page(limited, "/metrics")[1]
    for client in held:
        client.close()
    until(lambda: page(limited, "/readyz")[0] == 200, "descriptors to be free again")
    assert serves(limited, held)
    assert "treecast_face_connections_refused_total" in page(limited, "/metrics")[1]


# --- topics, transactions and the start on a full disk


def test_topics_and_transactions_on_a_full_disk(daemon_on, small_disk, fill, wire_client, dial, read_values):
    """A request that cannot be written is refused with an error, and works once there is room."""
    wire = wire_client
    connection = dial(daemon_on)
    connection.insist("CreateTopics", wire.create_topic("full", 1, {}), wire.first_topic_code)
    reply = connection.insist("InitProducerId", wire.init_producer("id"), wire.top_code)
    producer = (reply.producer_id, reply.producer_epoch)
    added = wire.add_partitions("id", producer, "full", [0])
    connection.insist("AddPartitionsToTxn", added, wire.add_partitions_code)
    batch = wire.build_batch([(b"k", b"v")], producer=producer, sequence=0, transactional=True)
    sent = wire.produce("full", 0, batch, transactional_id="id")
    assert wire.produced(connection.ask(sent)) == (0, 0)
    filling = fill(small_disk)
    codes = (
        wire.first_topic_code(connection.ask(wire.create_topic(f"more-{n}", 50, {}))) for n in range(400)
    )
    assert any(codes)  # as soon as one is refused, no more are created
    ended = wire.top_code(connection.ask(wire.end_txn("id", producer, True)))
    filling.unlink()
    if ended != 0:
        connection.insist("EndTxn", wire.end_txn("id", producer, True), wire.top_code)
    connection.insist("CreateTopics", wire.create_topic("room", 1, {}), wire.first_topic_code)
    assert read_values(daemon_on.kafka, "full") == [(0, b"v")]
    daemon_on.pin_ports()
    daemon_on.kill()
    daemon_on.start()
    assert read_values(daemon_on.kafka, "full") == [(0, b"v")]


def test_starting_on_a_full_disk_says_so(start_daemon, small_disk, fill):
    filling = fill(small_disk)
    daemon = start_daemon(data=small_disk / "data", start=False)
    with pytest.raises(Exception, match=r"no ready line \(exit code 1\)") as failed:
        daemon.start()
    assert "Traceback" not in str(failed.value)
    assert "space" in str(failed.value)
    filling.unlink()
    daemon.start()
    daemon.kill()
