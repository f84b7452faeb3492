"""SIGHUP and changed files: users, rights and certificates are read again; what is wrong changes nothing."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.authority import Authority
from tests.conftest import StartDaemon

from treecast.middleware.broker.access import Content, User
from treecast.middleware.daemon import run
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.users_file import change_users
from treecast.middleware.model.certificate_names import common_name

WAIT = 60


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def shown_certificate(daemon: DaemonProcess, face: str) -> str:
    """Returns the common name of the certificate that a listener shows to a new client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(daemon.data.parent / "authority.pem")
    with (
        socket.create_connection(daemon.address(face), WAIT) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert() or {}
    return common_name(found)


@pytest.fixture
def authority(tmp_path: Path, require_tool: Callable[[str], str]) -> Authority:
    return Authority(tmp_path, require_tool("openssl"))


@pytest.fixture
def daemon(tmp_path: Path, authority: Authority, start_daemon: StartDaemon) -> DaemonProcess:
    """A daemon whose faces with TLS use the certificate `first`."""
    files = tmp_path / "served.pem"
    files.write_bytes(authority.signs("first", "/CN=first").read_bytes())
    flags = [
        flag
        for face in ("kafka", "mqtt", "amqp")
        for flag in (f"--{face}-tls", "127.0.0.1:0", f"--{face}-tls-certificate", str(files))
    ]
    return start_daemon(*flags)


@pytest.mark.parametrize("by_signal", [True, False])
def test_a_new_certificate(
    daemon: DaemonProcess, authority: Authority, tmp_path: Path, by_signal: bool
) -> None:
    """A file that does not fit together changes nothing; open connections go on."""
    served = tmp_path / "served.pem"
    second = authority.signs("second", "/CN=second")
    served.write_bytes((tmp_path / "second.crt").read_bytes() + (tmp_path / "first.key").read_bytes())
    if by_signal:
        daemon.process.send_signal(signal.SIGHUP)
    until(lambda: daemon.log().count("certificate not read") == 3)
    assert shown_certificate(daemon, "kafka-tls") == "first"
    replaced = tmp_path / "new.pem"
    replaced.write_bytes(second.read_bytes())
    with socket.create_connection(daemon.address("kafka"), WAIT) as before:
        replaced.replace(served)
        if by_signal:
            daemon.process.send_signal(signal.SIGHUP)
        for face in ("kafka-tls", "mqtt-tls", "amqp-tls"):
            until(lambda face=face: shown_certificate(daemon, face) == "second")
        before.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\7\xff\xff")  # ApiVersions
        assert before.recv(8)[4:] == b"\0\0\0\7"
    assert daemon.running


def test_users_by_sighup(daemon: DaemonProcess) -> None:
    """The stamp of a file that was put back in its place by a tool may be the old one."""
    path = daemon.data / "users.toml"
    change_users(path, lambda _: Content({"alice": User("alice")}))
    until(lambda: daemon.log().count("users read again") == 1)
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: daemon.log().count("users read again") == 2)
    path.write_text("[users")
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: "users not read" in daemon.log())
    assert daemon.running


def test_a_terminal_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    outside, inside = os.openpty()
    monkeypatch.setattr(run, "_STDIN", inside)
    assert run.has_terminal()
    os.close(outside)
    assert not run.has_terminal()
    os.close(inside)
