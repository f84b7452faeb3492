"""Two MQTT brokers in a row, as peers: publishers are at the near one, subscribers at the far one.

Two Treecast daemons that are joined by the fabric, two Mosquittos that are joined by its bridge, and two bare
loops with UDP between them. All on loopback.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.core.peer import Server
from bench.core.ports import free_port
from bench.core.process import ServerProcess
from bench.workloads.mqtt_load import crosses

from .floor_mqtt import FloorMqtt
from .mosquitto import MosquittoPeer, listens
from .treecast import TreecastPeer

TIMEOUT = 60.0  # seconds until a message has come all the way


class Pair(Server):
    """Of two servers with `address`es. `start` returns once a message has come all the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._servers: list[Server] = []

    @property
    def address(self) -> tuple[str, int]:
        return self._servers[0].address

    @property
    def far(self) -> tuple[str, int]:
        """The address for subscribers."""
        return self._servers[1].address

    def start(self) -> float:
        began = time.monotonic()
        try:
            self.join()
            self.cross()
        except BaseException:
            self.stop()
            raise
        return time.monotonic() - began

    def join(self) -> None:
        """Starts both, the near one first in `_servers`."""
        raise NotImplementedError

    def cross(self) -> None:
        """Returns once a message has come all the way."""
        crosses(self.address, self.far, TIMEOUT)

    def begin(self, server: Server, first: bool = False) -> None:
        self._servers.insert(0 if first else len(self._servers), server)
        server.start()

    def stop(self) -> None:
        while self._servers:
            self._servers.pop().stop()

    def pids(self) -> list[int]:
        return [pid for server in self._servers for pid in server.pids()]

    def settings(self) -> Mapping[str, str]:
        """The settings of the near peer. After the run, those of the last run."""
        if self._servers:
            self._said = dict(self._servers[0].settings())
        return {**getattr(self, "_said", {}), "topology": self.topology}

    topology = ""


class JoinedDaemon(TreecastPeer):
    """One of the two, with its MQTT face on."""

    def __init__(self, python: str, flags: Sequence[str], parent: Path | None, name: str) -> None:
        self._mqtt = free_port()
        more = ("--mqtt", f"127.0.0.1:{self._mqtt}", "--fabric", "127.0.0.1:0", *flags)
        super().__init__(
            python=python, flags=more, fsync="never", parent=parent, name=name, start_timeout=TIMEOUT
        )

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._mqtt if self.ready() else self._port


class TreecastPair(Pair):
    """`flags`: of both daemons, beside those that join them."""

    topology = "two daemons, the second joins the first (--join, --join-token)"

    def __init__(
        self, *, name: str, python: str, parent: Path | None = None, flags: Sequence[str] = ()
    ) -> None:
        super().__init__(name)
        self._python, self._parent, self._flags = python, parent, flags

    def join(self) -> None:
        near = JoinedDaemon(self._python, ["--name", "a", *self._flags], self._parent, self.name)
        self.begin(near)
        control = near.wait_ready()["control"]
        token = ["--join", control, "--join-token", f"@{near.data / 'join-token'}", "--name", "b"]
        far = JoinedDaemon(self._python, [*token, *self._flags], self._parent, self.name)
        self.begin(far)
        far.wait_ready()
        self.settings()


class _Bridged(MosquittoPeer):
    """The near one: what is published to it goes to the far one as well."""

    def __init__(self, far: int, parent: Path | None) -> None:
        super().__init__(parent)
        self._far = far

    def lines(self) -> list[str]:
        return [
            *super().lines(),
            "connection far",
            f"address 127.0.0.1:{self._far}",
            "topic # out 1",
            "cleansession true",
            "try_private true",
            "notifications false",
            "bridge_protocol_version mqttv311",
            "restart_timeout 1",
        ]


class MosquittoBridge(Pair):
    topology = "two Mosquittos; the first one's bridge: topic # out 1, cleansession, no bound of what waits"

    def __init__(self, *, name: str, parent: Path | None = None) -> None:
        super().__init__(name)
        self._parent = parent

    def join(self) -> None:
        far = MosquittoPeer(self._parent)
        self.begin(far)
        self.begin(_Bridged(far.address[1], self._parent), first=True)
        self.settings()


class _Loop(FloorMqtt):
    """One of two bare loops."""

    def __init__(self, flags: Sequence[str], parent: Path | None) -> None:
        super().__init__(parent)
        self._more = list(flags)

    def launch(self, folder: Path) -> float:
        command = [sys.executable, "-m", "bench.floor.mqtt", "--port", str(self._port), *self._more]
        self._process = ServerProcess(command, folder / "server.log")
        return self._process.wait_until(lambda: listens(self._port), 30)


class FloorPair(Pair):
    is_floor = True
    topology = "two bare loops: what is received goes on by UDP, and from there to subscribers"

    def __init__(self, *, name: str, parent: Path | None = None, tagged: bool = False) -> None:
        """`tagged`: packets between the two carry a tag, as the fabric's segments do."""
        super().__init__(name)
        self._parent = parent
        self._tagged = ["--tagged"] if tagged else []

    def join(self) -> None:
        udp = str(free_port())
        self.begin(_Loop(["--udp", udp, *self._tagged], self._parent))
        self.begin(_Loop(["--to", udp, *self._tagged], self._parent), first=True)
        self.settings()
