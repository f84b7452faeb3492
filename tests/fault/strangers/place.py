"""The place of a stranger: a daemon's addresses, and what it has open there."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import time
from collections.abc import Mapping
from typing import Final

from treecast.middleware.daemon.process import split_address

ANSWER_S: Final = 60.0  # for which an answer is waited for; none is no fault of the daemon's


class Place:
    """A daemon's addresses, by face, and the connections that a stranger has there. `share`: of the number
    that a stranger is to be many.
    """

    def __init__(self, addresses: Mapping[str, str], share: float = 1.0) -> None:
        self._addresses = addresses
        self.share = share
        self._open: list[socket.socket] = []

    def address(self, face: str) -> str:
        return self._addresses[face]

    def connect(self, face: str) -> socket.socket:
        made = socket.create_connection(split_address(self._addresses[face]), 10)
        self._open.append(made)
        return made

    def many(self, face: str, count: int) -> list[socket.socket]:
        """Connects `count` times, without waiting for the daemon to accept."""
        found = []
        for number in range(count):
            made = socket.socket()
            made.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                made.connect(split_address(self._addresses[face]))
            self._open.append(made)
            found.append(made)
            if number % 20 == 19:
                time.sleep(0.05)
        return found

    def call(self, path: str, method: str, body: object = None, user: str = "guest") -> tuple[int, bytes]:
        """Makes a call of the management API as `user`, whose password is the name."""
        connection = http.client.HTTPConnection(*split_address(self._addresses["admin"]), timeout=ANSWER_S)
        secret = base64.b64encode(f"{user}:{user}".encode()).decode()
        headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read()
        finally:
            connection.close()

    def leave(self) -> None:
        for one in self._open:
            one.close()
        self._open.clear()
