"""`treecast up` as a process: the ready line, refusals, signals, crashes, and the files it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.discovery import Address, find_face
from treecast.middleware.daemon.listeners import bound_address, listen
from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess, parse_ready
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch

WAIT = 60.0  # seconds to wait for a process before the test fails


def produce(daemon: DaemonProcess, topic: str, count: int) -> None:
    """Appends `count` records to partition 0 by one Produce request (version 3) that is acknowledged."""
    with DaemonClient(daemon.control) as client:
        if topic not in [found.name for found in client.list_topics()]:
            client.create_topic(topic)
    batch = build_batch([Record(None, b"%d" % n, timestamp=int(1000 * time.time())) for n in range(count)])
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">hhi", -1, -1, 30000) + struct.pack(">i", 1) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    with socket.create_connection(daemon.address("kafka"), WAIT) as connection:
        answer = ask(connection, 0, 3, body)
    assert struct.unpack_from(">ih", answer, 4 + 4 + len(name) + 4) == (0, 0)


def send(connection: socket.socket, key: int, version: int, body: bytes) -> None:
    frame = struct.pack(">hhih", key, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)


def ask(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    """Sends a request with a null client id; returns the response from its correlation id on."""
    send(connection, key, version, body)
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        return stream.read(size)


def connects(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, WAIT).close()
    # reset: the connection waited while the listener closed
    except (ConnectionRefusedError, ConnectionResetError):
        return False
    return True


def refused(daemon: DaemonProcess) -> str:
    """Returns the message of a daemon that does not start."""
    with pytest.raises(DaemonFailed):
        daemon.start()
    assert "Traceback" not in daemon.log()
    return daemon.log()


def test_the_ready_line(start_daemon) -> None:
    daemon = start_daemon("--name", "h1")
    assert list(daemon.ready) == ["name", "kafka", "amqp", "mqtt", "stare", "admin", "control"]
    assert daemon.ready["name"] == "h1"
    for face in ("kafka", "amqp", "mqtt", "stare", "admin", "control"):
        with socket.create_connection(daemon.address(face), WAIT):
            pass


def test_relative_paths_are_those_of_who_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child itself runs in a directory of its own."""
    python = Path(sys.executable)
    (tmp_path / "environment").symlink_to(python.parent.parent)
    monkeypatch.chdir(tmp_path)
    with DaemonProcess(Path("data"), python=f"environment/{python.parent.name}/{python.name}") as daemon:
        assert daemon.running
    assert (tmp_path / "data" / "meta.json").exists()


def test_the_ready_line_is_all_of_standard_output_and_leaves_out_what_is_off(tmp_path: Path) -> None:
    daemon = DaemonProcess(
        tmp_path / "data",
        ["--mqtt", "off", "--stare", "off", "--amqp", "off", "--admin", "off", "--control", "off"],
    )
    command = [*daemon.command(), "--runtime-dir", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert re.fullmatch(r"ready name=\S+ kafka=127\.0\.0\.1:\d+\n", line)
        process.send_signal(signal.SIGTERM)
        rest, log = process.communicate(timeout=WAIT)
    daemon.clean_up()
    assert (rest, process.returncode) == (b"", 0)
    assert b'"stopped"' in log


def test_what_it_logs_is_json_where_nobody_watches(daemon: DaemonProcess) -> None:
    daemon.stop()
    entries = [json.loads(line) for line in daemon.log().splitlines()]
    assert any(entry["event"] == "daemon serves" and entry["fsync"] for entry in entries)
    assert {"event", "level", "logger", "timestamp"} <= set(entries[0])


@pytest.mark.parametrize("face", ["kafka", "amqp", "mqtt", "stare", "admin", "control"])
def test_a_port_in_use(face: str, start_daemon) -> None:
    with listen("admin", Address("127.0.0.1", 0)) as listener:
        taken = bound_address(listener)
        daemon = start_daemon(f"--{face}", str(taken), start=False)
        said = refused(daemon)
    assert f"treecast up: --{face} {taken}: the port is in use" in said
    assert daemon.process.returncode == 1
    assert not daemon.runtime_dir.exists()
    daemon.start()  # now that the port is free


def test_a_data_directory_of_another_version(tmp_path: Path, start_daemon) -> None:
    data = tmp_path / "data"
    data.mkdir()
    meta = '{"format": 99, "cluster_id": "x", "host_id": 1}'
    (data / "meta.json").write_text(meta)
    daemon = start_daemon(data=data, start=False)
    said = refused(daemon)
    assert f"treecast up: {data} has data format 99, this Treecast reads format 1" in said
    assert daemon.process.returncode == 1
    assert [(path.name, path.read_text()) for path in data.iterdir()] == [("meta.json", meta)]


def test_a_data_directory_that_another_daemon_uses(daemon: DaemonProcess, start_daemon) -> None:
    other = start_daemon(data=daemon.data, start=False)
    assert str(daemon.pid) in refused(other)
    assert daemon.running


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--amqp", "5672"], "--amqp: '5672' is not an address"),
        (["--join", "127.0.0.1:7671"], "--join: the fabric is off"),
        (["--fsnyc", "batch"], "did you mean --fsync?"),
    ],
)
def test_wrong_use(flags: list[str], said: str, start_daemon) -> None:
    daemon = start_daemon(*flags, start=False)
    log = refused(daemon)
    assert said in log
    assert "Try `treecast up --help`." in log
    assert daemon.process.returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_nothing_is_left_behind(number: signal.Signals, start_daemon) -> None:
    daemon = start_daemon()
    produce(daemon, "t", 3)
    assert sorted(path.name for path in daemon.runtime_dir.iterdir()) == sorted(
        f"{face}.{kind}"
        for face in ("kafka", "amqp", "mqtt", "stare", "admin", "control")
        for kind in ("sock", "address")
    )
    daemon.process.send_signal(number)
    assert daemon.process.wait(WAIT) == 0
    assert not daemon.runtime_dir.exists()
    assert (daemon.data / "clean-shutdown").exists()
    assert {json.loads(line)["level"] for line in daemon.log().splitlines()} == {"info"}


def test_a_second_signal_hurries(start_daemon) -> None:
    """The first signal waits for a client that does not read its replies, until the grace period ends."""
    daemon = start_daemon("--shutdown-grace-ms", "600000")
    with socket.create_connection(daemon.address("kafka"), WAIT) as deaf:
        deaf.settimeout(1)
        with contextlib.suppress(TimeoutError):
            while True:  # until the daemon reads no more
                for _ in range(1000):
                    send(deaf, 18, 0, b"")
        daemon.process.send_signal(signal.SIGTERM)
        while "stopping" not in daemon.log():
            assert daemon.running
        while connects(daemon.address("kafka")):
            pass
        assert daemon.running
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(WAIT) == 0
    assert not daemon.runtime_dir.exists()


def test_after_kill_9_everything_acknowledged_is_there(daemon: DaemonProcess) -> None:
    produce(daemon, "t", 100)
    daemon.kill()
    assert (daemon.runtime_dir / "kafka.sock").exists()
    ports = dict(daemon.ready)
    daemon.restart()
    assert daemon.ready == ports
    with DaemonClient(daemon.control) as client:
        (topic,) = client.list_topics()
        assert (topic.name, topic.records) == ("t", 100)
    produce(daemon, "t", 1)
    environment = {"TREECAST_RUNTIME_DIR": str(daemon.runtime_dir)}
    assert find_face("kafka", environment).socket == daemon.runtime_dir / "kafka.sock"


def test_a_second_daemon_leaves_the_first_ones_sockets_alone(daemon: DaemonProcess, start_daemon) -> None:
    other = start_daemon("--runtime-dir", str(daemon.runtime_dir))
    assert "another daemon listens" in other.log()
    other.stop()
    found = find_face("kafka", {"TREECAST_RUNTIME_DIR": str(daemon.runtime_dir)})
    assert str(found) == daemon.kafka


def test_open_files_are_raised_to_the_hard_limit(tmp_path: Path, start_daemon) -> None:
    daemon = start_daemon(start=False)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        daemon.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with DaemonClient(daemon.control) as client:
        assert client.status().resources.open_files_limit == hard


def test_the_service_manager_hears_ready_watchdog_and_stopping(tmp_path: Path, start_daemon) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
        daemon = start_daemon(environment=environment)
        heard: list[str] = []
        listen_until(manager, heard, "WATCHDOG=1", 2)
        assert "READY=1" in heard
        daemon.process.send_signal(signal.SIGTERM)
        listen_until(manager, heard, "STOPPING=1", 1)
    assert daemon.process.wait(WAIT) == 0
    assert heard.count("STOPPING=1") == 1


def listen_until(manager: socket.socket, heard: list[str], word: str, times: int) -> None:
    while heard.count(word) < times:
        assert select.select([manager], [], [], WAIT)[0], f"{word} did not come, only {heard}"
        heard += manager.recv(4096).decode().split("\n")


def test_settings_come_from_the_environment_and_the_file_too(tmp_path: Path, start_daemon) -> None:
    path = tmp_path / "treecast.toml"
    path.write_text('name = "from-file"\nfsync = "never"\ndefault_partitions = 3\n')
    daemon = start_daemon("--fsync", "batch", environment={"TREECAST_CONFIG": str(path)})
    assert daemon.ready["name"] == "from-file"
    with DaemonClient(daemon.control) as client:
        assert client.status().fsync == "batch"
        assert client.create_topic("t").partitions == 3


def test_a_closed_standard_output_is_no_reason_to_end(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data", ["--runtime-dir", str(tmp_path / "run")])
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(daemon.command(), stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert process.stderr is not None
        log = b""
        while b"the ready line was" not in log:
            line = process.stderr.readline()
            assert line, log
            log += line
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT)
    daemon.clean_up()
    assert process.returncode == 0


def test_a_ready_line_is_read() -> None:
    line = "ready name=h kafka=[::1]:9092\n"
    assert parse_ready(line) == {"name": "h", "kafka": "[::1]:9092"}
    with pytest.raises(ValueError, match="not a ready line"):
        parse_ready("hello\n")
