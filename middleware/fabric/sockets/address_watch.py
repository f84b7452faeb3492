"""Tells that an address or a link of this machine has changed. Linux, rtnetlink(7)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from treecast.middleware.model.logs import Log

_log = Log(__name__)

# RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_GROUPS: Final = 0x1 | 0x10 | 0x100
_SOON: Final = 0.1  # seconds; a change comes as several messages, such as an address removed and one added


class AddressWatch:
    """Calls `changed` on the loop soon after a change, once for several. What has changed is not told."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Without the kernel's permission no change is told; the log says so."""
        self._loop = asyncio.get_running_loop()
        try:
            sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
            self._socket = sock
            sock.bind((0, _GROUPS))
        except OSError as error:
            _log.warning("changes of this machine's addresses are not noticed", error=error)
            self.close()
            return
        self._loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            # Read until empty, or the loop would call for each message. What they say is looked up
            # afterwards.
            while os.read(self._socket.fileno(), 1 << 16):
                pass
        except OSError:  # nothing more, or so much that the kernel has dropped some: something has changed
            pass
        self.soon(_SOON)

    def soon(self, seconds: float) -> None:
        """Calls `changed` in so many seconds, if it is not to be called anyway."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._changed()

    def close(self) -> None:
        """Safe to call twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
