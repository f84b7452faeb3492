"""One RabbitMQ broker as a peer, with the settings of its package, and Treecast's AMQP face beside it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.core.peer import LocalServer
from bench.core.ports import free_port
from bench.peers.treecast import TreecastPeer

from .federation import base_definitions
from .node import Node, PortMapper, version

NAME = "RabbitMQ"


class RabbitPeer(LocalServer):
    """One node on loopback, with a port mapper of its own."""

    name = NAME

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__("rabbitmq-", parent)
        self._mapper: PortMapper | None = None

    def launch(self, folder: Path) -> float:
        self._mapper = PortMapper(folder)
        definitions = {**base_definitions(), "exchanges": []}
        node = Node("bench", folder / "node", self._mapper, definitions, ())
        self._process, self._port = node.process, node.port
        return node.wait(120)

    def stop(self) -> None:
        super().stop()
        if self._mapper is not None:
            self._mapper.process.stop()
            self._mapper = None

    def settings(self) -> Mapping[str, str]:
        return {
            "version": f"{version()}, Debian's package",
            "Erlang": erlang(),
            "settings": "its defaults: no configuration but the address of its listener",
            "queues": "durable classic queues",
            "durability": "a persistent message is confirmed once it is on disk: it calls fsync",
        }


def erlang() -> str:
    """Returns Erlang's release and virtual machine."""
    if shutil.which("erl") is None:
        return "not installed"
    asked = (
        'io:format("OTP ~s, erts ~s, ~s", [erlang:system_info(K) || K <- [otp_release, version, '
        "emu_flavor]]), halt()."
    )
    done = subprocess.run(
        ["erl", "-noshell", "-eval", asked], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() or "unknown"


class TreecastAmqpPeer(TreecastPeer):
    """`treecast up` with the AMQP face, and the durability that RabbitMQ has: `--fsync batch`."""

    def __init__(self, *, python: str, parent: Path | None = None, name: str = "Treecast") -> None:
        self._amqp_port = free_port()
        flags = ("--amqp", f"127.0.0.1:{self._amqp_port}")
        super().__init__(python=python, flags=flags, fsync="batch", parent=parent, name=name)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._amqp_port if self.ready() else self._port
