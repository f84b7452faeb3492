"""Notifications to a service manager, which is a socket of the test."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from treecast.middleware.daemon.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(10)
        yield receiver


def test_what_is_sent(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    assert notifier.active
    assert notifier.send("READY=1", "STATUS=serving")
    assert manager.recv(100) == b"READY=1\nSTATUS=serving"
    notifier.close()
    assert notifier.send("STOPPING=1")
    notifier.close()


def test_it_needs_no_new_descriptor_each_time(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watchdog that is not fed restarts the daemon; a lack of descriptors must not cause that."""
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    assert notifier.send("READY=1")

    def refuses(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", refuses)
    assert notifier.send("WATCHDOG=1")
    notifier.close()
    assert not notifier.send("WATCHDOG=1")


def test_an_abstract_socket_is_named_with_an_at_sign() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # the kernel picks an abstract name
        name = receiver.getsockname().decode().replace("\0", "@")
        notifier = Notifier({"NOTIFY_SOCKET": name})
        assert notifier.send("STOPPING=1")
        notifier.close()
        assert receiver.recv(100) == b"STOPPING=1"


def test_without_a_manager_nothing_happens() -> None:
    notifier = Notifier({})
    assert not notifier.active
    assert not notifier.send("READY=1")


def test_a_manager_that_has_gone_is_no_error(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert not notifier.send("READY=1")
    notifier.close()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
        ({"WATCHDOG_USEC": "20000000"}, 10.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 10.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_watchdog_is_fed_at_half_its_time(environment: dict[str, str], seconds: float | None) -> None:
    assert Notifier(environment).watchdog_seconds == seconds
