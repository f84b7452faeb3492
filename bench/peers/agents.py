"""Two brokers that stand, joined by our agents or by their own bridge, as peers: all on loopback.

`joining_pids` are the agents (with the coordinator that they join), the JVM of MirrorMaker 2, or both
Mosquittos, whose bridge is a part of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.chain.load import open_route
from bench.core.chain import Chain, Route
from bench.core.process import ServerProcess
from treecast.middleware.load.connection import Connection

from .kafka import KafkaBroker, ensure_jars, kafka_version, missing_tools
from .kafka.mirror import TOPIC, MirrorMaker
from .mosquitto import MosquittoPeer
from .mqtt_pairs import MosquittoBridge, Pair

_TIMEOUT: Final = 60.0  # seconds until a process serves
_AGENT: Final = '[agent]\nname = "{name}"\ndata = "{folder}/{name}"\nadmin = "off"\nlog_level = "warning"\n'
RULES: Final = {"a": "bench/# out 1", "b": "bench/# in 1"}  # lines `topic` of both ends


class Joining:
    """The processes of ours that join two brokers, in a folder of their own. `python`: of which
    installation."""

    def __init__(self, python: str, parent: Path | None) -> None:
        self._python = os.path.abspath(python)  # not resolved: an environment's python is a link
        self._processes: list[ServerProcess] = []
        self.folder = Path(tempfile.mkdtemp(prefix="agents-", dir=parent))

    def start(self, name: str, *arguments: str) -> dict[str, str]:
        """Starts a command of `treecast`, and returns its ready line."""
        log = self.folder / f"{name}.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TREECAST_")}
        command = [self._python, "-m", "treecast.middleware.cli", *arguments]
        process = ServerProcess(command, log, cwd=self.folder, environment=clean)
        self._processes.append(process)
        process.wait_until(lambda: _ready(log) is not None, _TIMEOUT)
        return _ready(log) or {}

    def agent(self, kind: str, name: str, text: str) -> None:
        """Starts an agent with this file; its table [agent] has the keys that all have."""
        file = self.folder / f"{name}.toml"
        file.write_text(_AGENT.format(name=name, folder=self.folder) + text)
        self.start(name, "agent", kind, "--config", str(file))

    def pids(self) -> list[int]:
        return [pid for process in self._processes for pid in process.pids()]

    def stop(self) -> None:
        while self._processes:
            self._processes.pop().stop(10)
        shutil.rmtree(self.folder, ignore_errors=True)


def _ready(log: Path) -> dict[str, str] | None:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("ready "):
            return dict(field.split("=", 1) for field in line.split()[1:] if "=" in field)
    return None


def version(python: str) -> str:
    """Returns the version of an installation."""
    program = "import sys, treecast; print(treecast.__version__, 'on Python', *sys.version.split())"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class AgentsBetweenMosquittos(Pair):
    """An agent beside each of two Mosquittos, and a coordinator."""

    topology = "two Mosquittos, an agent beside each, and `treecast coordinator`"

    def __init__(self, *, name: str, python: str = sys.executable, parent: Path | None = None) -> None:
        super().__init__(name)
        self._python, self._parent = python, parent
        self._joining: Joining | None = None

    def join(self) -> None:
        for _ in RULES:
            self.begin(MosquittoPeer(self._parent))
        joining = self._joining = Joining(self._python, self._parent)
        data = joining.folder / "coordinator"
        ready = joining.start("coordinator", "coordinator", "--data", str(data), "--control", "127.0.0.1:0")
        joined = f'join = "{ready["control"]}"\njoin_token = "@{data / "join-token"}"\n'
        for (name, rule), server in zip(RULES.items(), self._servers, strict=True):
            table = f'[mosquitto]\naddress = "127.0.0.1:{server.address[1]}"\ntopics = ["{rule}"]\n'
            joining.agent("mosquitto", name, f"{joined}{table}")
        self.settings()

    def stop(self) -> None:
        if self._joining is not None:
            self._joining.stop()
            self._joining = None
        super().stop()

    def joining_pids(self) -> list[int]:
        return [] if self._joining is None else self._joining.pids()

    def pids(self) -> list[int]:
        return [*super().pids(), *self.joining_pids()]

    def settings(self) -> Mapping[str, str]:
        rules = ", ".join(RULES.values())
        return {**super().settings(), "agents": f"treecast {version(self._python)}; {rules}; other defaults"}


class BridgedMosquittos(MosquittoBridge):
    """Mosquitto's own bridge, for a comparison of what joins two brokers."""

    def joining_pids(self) -> list[int]:
        return self.pids()


class KafkaBridge(Chain):
    """Two Kafka nodes and our bridge between them, which keeps the topic's name."""

    def __init__(self, *, name: str, python: str = sys.executable, parent: Path | None = None) -> None:
        self.name = name
        self._python, self._parent = python, parent
        self._near, self._far = KafkaBroker(parent=parent), KafkaBroker(parent=parent)
        self._joining: Joining | None = None

    def missing(self) -> str:
        tools = missing_tools()
        return f"Apache Kafka needs {' and '.join(tools)} on the PATH" if tools else ""

    def prepare(self) -> None:
        ensure_jars()

    @property
    def route(self) -> Route:
        return Route("kafka", self._near.address, self._far.address, TOPIC, TOPIC, committed=True)

    def start(self) -> float:
        began = time.monotonic()
        try:
            self._near.start()
            self._far.start()
            with Connection(*self._near.address) as connection:
                connection.create_topic(TOPIC, 1)
            joining = self._joining = Joining(self._python, self._parent)
            joining.agent("kafka-bridge", "a-b", self._file())
            came = open_route(self.route, 2 * _TIMEOUT)
        except BaseException:
            self.stop()
            raise
        return came - began

    def _file(self) -> str:
        both = {"a": self._near.bootstrap, "b": self._far.bootstrap}
        clusters = "".join(
            f'[kafka-bridge.clusters.{alias}]\nbootstrap = ["{address}"]\n' for alias, address in both.items()
        )
        way = f'from = "a"\nto = "b"\ntopics = ["{TOPIC}"]\nnames = "same"\n'
        return f"{clusters}[[kafka-bridge.ways]]\n{way}"

    def stop(self) -> None:
        if self._joining is not None:
            self._joining.stop()
            self._joining = None
        self._far.stop()
        self._near.stop()

    def hosts(self) -> list[list[int]]:
        """Returns each host's processes; the agent runs beside the cluster that it writes to, as MirrorMaker
        does."""
        return [self._near.pids(), [*self._far.pids(), *self.joining_pids()]]

    def joining_pids(self) -> list[int]:
        return [] if self._joining is None else self._joining.pids()

    def settings(self) -> Mapping[str, str]:
        broker = self._near.settings()
        return {
            "version": kafka_version(),
            "brokers": f"two KRaft nodes with the distribution's server.properties; JVM {broker['jvm']}",
            "agent": f"treecast {version(self._python)}; names = same, other defaults",
            "durability": f"{broker['durability']}; records and offsets in one transaction",
        }


class MirroredKafka(MirrorMaker):
    """MirrorMaker 2, for a comparison of what joins two clusters: consumers at both read alike."""

    def __init__(self, *, name: str, parent: Path | None = None) -> None:
        super().__init__(parent=parent, committed=True)
        self.name = name

    def joining_pids(self) -> list[int]:
        return self.mirror_pids()
