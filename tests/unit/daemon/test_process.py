"""A daemon as a child process."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from treecast.middleware.daemon import process
from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess


def stopped_and_pinned(daemon: DaemonProcess) -> tuple[str, int]:
    daemon.stop()
    daemon.pin_ports()
    return daemon.address("kafka")


def test_a_port_that_somebody_else_was_given_is_waited_for(daemon: DaemonProcess) -> None:
    address = stopped_and_pinned(daemon)
    with socket.create_server(address) as taken:

        def close_when_missed() -> None:
            while "the port is in use" not in daemon.log():
                time.sleep(0.02)
            taken.close()

        closing = threading.Thread(target=close_when_missed, daemon=True)
        closing.start()
        daemon.start()
        closing.join()
    assert daemon.address("kafka") == address


def test_a_port_that_stays_taken_is_told(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "REGAIN_SECONDS", 0.0)
    address = stopped_and_pinned(daemon)
    with socket.create_server(address), pytest.raises(DaemonFailed, match="the port is in use"):
        daemon.start()
