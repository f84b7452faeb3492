"""Two AMQP brokers in a row, as peers: publishers at the near one, the queue and its consumer at the far one.

Two Treecast daemons that are joined by the fabric, and two RabbitMQ brokers that are joined by federation.
All on loopback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.core.peer import Server
from bench.core.ports import free_port
from bench.workloads.amqp_load import crosses

from .mqtt_pairs import TIMEOUT, Pair
from .rabbitmq import Federation
from .rabbitmq.federation import EXCHANGE, QUEUE
from .treecast import TreecastPeer


class JoinedAmqpDaemon(TreecastPeer):
    """One of the two, with its AMQP face on."""

    def __init__(self, python: str, flags: Sequence[str], parent: Path | None, name: str) -> None:
        self._amqp = free_port()
        more = ("--amqp", f"127.0.0.1:{self._amqp}", "--fabric", "127.0.0.1:0", *flags)
        super().__init__(
            python=python, flags=more, fsync="batch", parent=parent, name=name, start_timeout=TIMEOUT
        )

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._amqp if self.ready() else self._port


class TreecastAmqpPair(Pair):
    """The queue is declared at the far daemon, which is therefore its home."""

    topology = "two daemons, the second joins the first (--join, --join-token)"

    def __init__(self, *, name: str, python: str, parent: Path | None = None) -> None:
        super().__init__(name)
        self._python, self._parent = python, parent

    def join(self) -> None:
        near = JoinedAmqpDaemon(self._python, ["--name", "a"], self._parent, self.name)
        self.begin(near)
        control = near.wait_ready()["control"]
        token = ["--join", control, "--join-token", f"@{near.data / 'join-token'}", "--name", "b"]
        far = JoinedAmqpDaemon(self._python, token, self._parent, self.name)
        self.begin(far)
        far.wait_ready()
        self.settings()

    def cross(self) -> None:
        crosses(self.address, self.far, EXCHANGE, QUEUE, TIMEOUT)


class FederatedPair(Server):
    """RabbitMQ federation, with the addresses of both ends."""

    def __init__(self, *, name: str, parent: Path | None = None) -> None:
        self.name = name
        self._chain = Federation(parent=parent)

    @property
    def address(self) -> tuple[str, int]:
        return self._chain.route.near

    @property
    def far(self) -> tuple[str, int]:
        return self._chain.route.far

    def start(self) -> float:
        return self._chain.start()

    def stop(self) -> None:
        self._chain.stop()

    def pids(self) -> list[int]:
        return self._chain.pids()

    def settings(self) -> Mapping[str, str]:
        return self._chain.settings()
