"""Listening, and the error if the system refuses it."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from treecast.middleware.api.discovery import Address
from treecast.middleware.daemon.listeners import (
    StartError,
    bound_address,
    cannot_listen,
    check_free,
    listen,
    listen_unix,
)


def test_port_0_picks_a_free_one() -> None:
    with listen("admin", Address("127.0.0.1", 0)) as listener:
        address = bound_address(listener)
        assert address.port > 0
        with socket.create_connection((address.host, address.port), 10):
            pass


def test_a_port_in_use_names_flag_address_and_way_out() -> None:
    with listen("admin", Address("127.0.0.1", 0)) as listener:
        taken = bound_address(listener)
        for attempt in (listen, check_free):
            with pytest.raises(StartError) as refused:
                attempt("kafka", taken)
            said = str(refused.value)
            assert said.startswith(f"--kafka {taken}: the port is in use")
            assert f"ss -ltnp 'sport = :{taken.port}'" in said


def test_a_free_port_stays_free() -> None:
    with listen("admin", Address("127.0.0.1", 0)) as listener:
        address = bound_address(listener)
    check_free("control", address)
    listen("control", address).close()


def test_a_host_name_is_resolved_and_the_port_kept() -> None:
    assert str(check_free("control", Address("localhost", 0))) in ("127.0.0.1:0", "[::1]:0")


def test_an_address_of_another_machine() -> None:
    with pytest.raises(StartError, match="this machine has no such address"):
        listen("kafka", Address("192.0.2.1", 0))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "cannot be resolved (Name or service not known)"),
        (PermissionError(errno.EACCES, "Permission denied"), "ports below 1024 are root's"),
        (
            OSError(errno.ENOBUFS, "No buffer space available"),
            "cannot listen there: No buffer space available",
        ),
    ],
)
def test_other_reasons(error: OSError, said: str) -> None:
    assert said in str(cannot_listen("kafka", Address("h", 9), error))


def test_a_unix_socket_listens(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    with pytest.raises(OSError, match="in use"):
        listen_unix(path)
