"""Notifications of the service manager: `sd_notify(3)` over a datagram to $NOTIFY_SOCKET.

  READY=1  STOPPING=1  WATCHDOG=1  STATUS=<one line>

The event loop itself sends the watchdog's ping, every half of $WATCHDOG_USEC: a stuck loop sends none, and
systemd restarts the daemon.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to the service manager, if there is one; otherwise does nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._channel: socket.socket | None = None  # kept open: later there may be no free descriptor
        self.watchdog_seconds = _watchdog_seconds(environment)

    @property
    def active(self) -> bool:
        return bool(self._address)

    def send(self, *assignments: str) -> bool:
        """Sends e.g. `READY=1`. Returns whether it was sent. A missing manager is not an error."""
        if not self._address:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            if self._channel is None:
                self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._channel.setblocking(False)
            self._channel.sendto("\n".join(assignments).encode(), address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Closes its socket; the next `send` opens another."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Returns the interval of pings, half of the time-out; None if this process has no watchdog."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or int(microseconds) == 0:
        return None
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 2_000_000
