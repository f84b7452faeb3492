"""Open vSwitch's userspace datapath, started manually in a separate folder; no service is touched."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.core.process import ServerProcess
from bench.core.wires import Wires
from bench.peers.treecast_switch import SWITCH_CORE, SwitchPeer
from bench.workloads.flood import state_ids
from treecast.middleware.wire.stare import PORT, group

INSTALL = "Open vSwitch is not here: `apt install openvswitch-switch`, or --ovs with where it is unpacked"
_FOLDERS = (
    "usr/sbin",
    "usr/bin",
    "usr/lib/openvswitch-switch",
    "usr/lib/openvswitch-common",
    "usr/local/sbin",
)
_SECONDS = 60


class OpenVSwitch(SwitchPeer):
    """Its database and daemon, and a bridge with `datapath_type=netdev`.

    `root` is `/`, or the folder with unpacked Debian packages (openvswitch-switch, openvswitch-common).
    """

    def __init__(self, wires: Wires, states: int, root: Path, parent: Path | None) -> None:
        super().__init__("Open vSwitch", wires, parent)
        self._states, self._root = states, root
        self._database: ServerProcess | None = None

    def missing(self) -> str:
        """Returns why it cannot run, or an empty string."""
        needed = ("ovsdb-server", "ovs-vswitchd", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl")
        return "" if all(map(self._found, needed)) and self._schema.is_file() else INSTALL

    def _found(self, name: str) -> str:
        places = [self._root / folder / name for folder in _FOLDERS]
        return next((str(place) for place in places if os.access(place, os.X_OK)), "") or (
            shutil.which(name) or ""
        )

    @property
    def _schema(self) -> Path:
        return self._root / "usr/share/openvswitch/vswitch.ovsschema"

    @property
    def _environment(self) -> dict[str, str]:
        """The environment that keeps all its files in our folder."""
        names = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
        return {**self._with_libraries, **dict.fromkeys(names, str(self.folder))}

    @property
    def _with_libraries(self) -> dict[str, str]:
        """The environment with its libraries if they are not the system's own."""
        libraries = ":".join(str(one) for one in sorted(self._root.glob("usr/lib/*-linux-gnu")))
        own = {} if self._root == Path("/") else {"LD_LIBRARY_PATH": libraries}
        return {**os.environ, **own}

    @property
    def _socket(self) -> Path:
        return self.folder / "db.sock"

    def launch(self, folder: Path) -> float:
        database = self.folder / "conf.db"
        self._run("ovsdb-tool", "create", str(database), str(self._schema))
        command = [self._found("ovsdb-server"), f"--remote=punix:{self._socket}", "--no-chdir", str(database)]
        started = ServerProcess(command, self.folder / "database.log", environment=self._environment)
        self._database = started
        took = started.wait_until(self._database_serves, _SECONDS)
        self._vsctl("--no-wait", "init")
        took += self._open_switch()
        self._add_ports()
        self._add_flows()
        return took

    def _database_serves(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0

    def _open_switch(self) -> float:
        """Returns the daemon in the switch's namespace, on the switch's core."""
        words = [self._found("ovs-vswitchd"), "--disable-system", "--no-chdir", f"unix:{self._socket}"]
        command = self.wires.command(self.wires.switch, SWITCH_CORE, words)
        process = ServerProcess(command, self.folder / "switch.log", environment=self._environment)
        self._process = process
        self._vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure")
        return process.wait_until((self.folder / "br0.mgmt").exists, _SECONDS)

    def _add_ports(self) -> None:
        for port in range(self.wires.count):
            name = f"sw{port}"
            self._vsctl("add-port", "br0", name, "--", "set", "interface", name, f"ofport_request={port + 1}")

    def _add_flows(self) -> None:
        """Adds flows: STARE's publishes go to all ports but the first, with the TTL decremented; others are
        dropped.
        """
        to = ",".join(str(port + 1) for port in range(1, self.wires.count))
        flows = [
            f"priority=10,udp,nw_dst={socket.inet_ntoa(group(state))},tp_dst={PORT},"
            f"actions=dec_ttl,output:{to.replace(',', ',output:')}"
            for state in state_ids(self._states)
        ]
        path = self.folder / "flows"
        path.write_text("\n".join(["priority=0,actions=drop", *flows, ""]))
        self._run("ovs-ofctl", "replace-flows", str(self.folder / "br0.mgmt"), str(path))

    def _vsctl(self, *words: str) -> str:
        return self._run("ovs-vsctl", f"--db=unix:{self._socket}", f"--timeout={_SECONDS}", *words)

    def _run(self, name: str, *words: str) -> str:
        command = [self._found(name), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def stop(self) -> None:
        database, self._database = self._database, None
        if self._process is not None:
            self._process.stop()
            self._process = None
        if database is not None:
            database.stop()
        super().stop()

    def settings(self) -> Mapping[str, str]:
        version = subprocess.run(
            [self._found("ovs-vswitchd"), "--version"],
            capture_output=True,
            text=True,
            env=self._with_libraries,
            check=False,
        )
        return {
            "version": version.stdout.splitlines()[0] if version.stdout else "unknown",
            "datapath": "netdev, without DPDK and the kernel's module (--disable-system); default settings",
            "what it does": "a flow for each state: IPv4, UDP and address match, one hop less, output to all",
            "ports": "AF_PACKET sockets (its `system` devices)",
            "cores": "one, for all its threads",
        }
