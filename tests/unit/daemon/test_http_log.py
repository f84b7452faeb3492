"""Faults of callers of the admin address do not fill the log."""

from __future__ import annotations

import logging
import socket

import pytest
from tests.unit.cli.eventually import until

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.slow

BAD = (
    b"GET / HTTP/1.1\rx",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/definitions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
    b"Content-Length: 100\r\n\r\nhalf",
)


def test_bad_requests_and_ends_within_a_body(start_daemon) -> None:
    daemon: DaemonProcess = start_daemon()
    for data in BAD:
        with socket.create_connection(daemon.address("admin")) as to:
            to.sendall(data)
            to.settimeout(20)
            assert data is BAD[-1] or to.recv(100)
    with socket.create_connection(daemon.address("admin")) as to:
        to.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: to.recv(100))
    assert "Traceback" not in daemon.log()
    assert logging.getLogger("aiohttp.server").filters == []  # of the daemon's process only
