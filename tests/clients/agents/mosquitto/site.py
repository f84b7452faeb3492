"""Sites for tests of the agent beside Mosquitto: a broker each, and clients of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from bench.core.ports import free_port
from bench.core.process import ServerProcess
from bench.peers.mosquitto import listens, program
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.clients.agents.process import AgentProcess
from tests.clients.mqtt.paho_client import Client

PATIENCE = 120.0  # seconds until a test gives up; nothing is asserted about it


class Broker:
    """A Mosquitto on loopback with the settings of its manual for queues without bounds. `more`: lines of its
    configuration; `listener`: those of its listener."""

    def __init__(self, folder: Path, more: str = "", *, listener: str = "allow_anonymous true\n") -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        self.folder = folder
        self.config = folder / "mosquitto.conf"
        user = "user root\n" if os.geteuid() == 0 else ""  # else it cannot read what the test has written
        self.config.write_text(
            f"{user}persistence true\npersistence_location {folder}/\nmax_queued_messages 0\n"
            f"{more}listener {self.port} 127.0.0.1\n{listener}"
        )
        self._process: ServerProcess | None = None

    def start(self) -> None:
        self._process = ServerProcess([program() or "", "-c", str(self.config)], self.folder / "server.log")
        self._process.wait_until(lambda: listens(self.port), PATIENCE)

    def stop(self) -> None:
        """Ends it in order: it stores sessions and retained messages."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def forget(self) -> None:
        """Removes what it has stored."""
        (self.folder / "mosquitto.db").unlink(missing_ok=True)

    def client(self, name: str, *, lasting: bool = False, **options: Any) -> Client:
        """Returns a connected client of version 5."""
        made = Client(name, paho.MQTTv5)
        given = Properties(PacketTypes.CONNECT)
        given.SessionExpiryInterval = 3600 if lasting else 0
        made.open("127.0.0.1", self.port, clean_start=not lasting, properties=given, **options)
        return made


def subscribe(client: Client, filter: str, qos: int = 2) -> None:
    """Subscribes so that retained messages stay marked."""
    Client.subscribe(client, filter, options=SubscribeOptions(qos, retainAsPublished=True))


def agent(
    site: str,
    folder: Path,
    broker: Broker,
    join: str,
    token: Path,
    topics: list[str],
    *,
    more: str = "",
    table: str = "",
) -> AgentProcess:
    """Returns an agent, not started. `more`: lines of [agent]; `table`: lines of [mosquitto]."""
    rules = ", ".join(f"'{one}'" for one in topics)
    own = f'[mosquitto]\naddress = "127.0.0.1:{broker.port}"\ntopics = [{rules}]\n{table}'
    return AgentProcess("mosquitto", site, folder, join, token, more, own, PATIENCE)
