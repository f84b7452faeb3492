"""Treecast as servers in a row: one daemon, or two joined by the fabric, on loopback."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.chain.load import open_route
from bench.core.chain import Chain, Route
from treecast.middleware.load.connection import Connection

from .treecast import TreecastPeer

TOPIC = "bench"


class TreecastChain(Chain):
    """With two `hosts`, the producer is at the first, which leads the topic, the consumer at the second.

    `python` and `fsync` as in TreecastPeer.
    """

    def __init__(
        self,
        hosts: int,
        *,
        name: str,
        python: str = sys.executable,
        fsync: str = "",
        parent: Path | None = None,
        start_timeout: float = 60,
    ) -> None:
        if hosts not in (1, 2):
            raise ValueError("one daemon or two")
        self.name = name
        self._hosts, self._timeout = hosts, start_timeout
        self._python, self._fsync, self._parent = python, fsync, parent
        self._daemons: list[TreecastPeer] = []
        self._said: Mapping[str, str] = {}

    @property
    def route(self) -> Route:
        return Route("kafka", self._daemons[0].address, self._daemons[-1].address, TOPIC, TOPIC)

    def start(self) -> float:
        began = time.monotonic()
        try:
            if self._hosts == 1:
                self._start(["--fabric", "off"])
            else:
                first = self._start(["--name", "a", "--fabric", "127.0.0.1:0"])
                control = first.wait_ready()["control"]
                with Connection(*first.address) as connection:
                    connection.create_topic(TOPIC, 1)  # while it is alone: then it leads
                joined = ["--join", control, "--join-token", f"@{first.data / 'join-token'}"]
                self._start(["--name", "b", "--fabric", "127.0.0.1:0", *joined])
            came = open_route(self.route, self._timeout)
        except BaseException:
            self.stop()
            raise
        self._said = self._daemons[0].settings()
        return came - began

    def stop(self) -> None:
        while self._daemons:
            self._daemons.pop().stop()

    def hosts(self) -> list[list[int]]:
        return [daemon.pids() for daemon in self._daemons]

    def settings(self) -> Mapping[str, str]:
        topology = (
            "one daemon, its fabric off"
            if self._hosts == 1
            else "two daemons, the second joins the first (--join, --join-token)"
        )
        return {**(self._said or self._daemon([]).settings()), "topology": topology}

    def _daemon(self, flags: list[str]) -> TreecastPeer:
        return TreecastPeer(
            python=self._python,
            flags=flags,
            fsync=self._fsync,
            parent=self._parent,
            start_timeout=self._timeout,
        )

    def _start(self, flags: list[str]) -> TreecastPeer:
        daemon = self._daemon(flags)
        self._daemons.append(daemon)
        daemon.start()
        return daemon
