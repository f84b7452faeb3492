"""Three daemons on five label switches with a second way between any two, and a tree manager, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.network.conftest import StartLab
from tests.network.srv6_site import HOSTS, Site, line, wait_until

from treecast.middleware.dataplane.lab.description import Description, Host, Link, Switch

PROGRAM = Path(__file__).resolve().parents[2] / "p4" / "virtual_trees.p4"
SWITCHES = ("s1", "s2", "s3", "s4", "s5")
# The tutorial's network, with a link more: a ring of s2, s3, s5 and s4.
LINKS = (
    *(("alpha", "s1"), ("s1", "s2"), ("s2", "s3"), ("s3", "beta")),
    *(("s2", "s4"), ("s4", "s5"), ("s5", "gamma"), ("s3", "s5")),
)


class LabelSite(Site):
    """A lab with its tree manager (`controller`) and daemons. `relayed`: the links that can be cut; `probe`:
    seconds between probes of a link."""

    carrier = "labels"

    def __init__(
        self, start: StartLab, folder: Path, relayed: Sequence[tuple[str, str]] = (), *, probe: float = 1.0
    ) -> None:
        self._probe = probe
        self.folder = folder
        self.links = LINKS
        self.listed = list(LINKS)
        self.lab = start(
            Description(
                hosts=dict.fromkeys(HOSTS, Host()),
                switches=dict.fromkeys(SWITCHES, Switch(str(PROGRAM))),
                links=tuple([Link(pair, relay=pair in relayed) for pair in LINKS]),
            )
        )
        self.token = f"@{folder / 'alpha' / 'join-token'}"
        self.file = folder / "trees.toml"
        self._start_daemon("alpha")  # it makes the token, and needs no other to be ready
        self.controller = self.start_manager()
        wait_until(self._programmed, "no switch forwards")
        for host in HOSTS[1:]:
            self._start_daemon(host)
        assert line(self.controller).startswith("ready ")

    def ip(self, host: str) -> str:
        return self.lab.ipv4(host)

    def url(self, host: str) -> str:
        return self.ip(host)

    def _programmed(self) -> bool:
        return b"waiting" in (self.folder / "manager.err").read_bytes()

    def start_manager(self) -> subprocess.Popen[bytes]:
        self.write()
        module = "treecast.middleware.control.trees"
        command = (sys.executable, "-m", module, str(self.file), "--token", self.token)
        with (self.folder / "manager.err").open("wb") as errors:
            return self.lab.start("alpha", *command, stderr=errors)

    def write(self) -> None:
        lines = [f"links = {json.dumps(self.listed)}", 'strategy = "broadcast"', "packet_life = 0.1"]
        lines += [f"probe = {self._probe}", "[switches]"]
        lines += [f'{name} = "{self.lab.p4runtime(name)}"' for name in SWITCHES]
        for host in HOSTS:
            lines += [f"[hosts.{host}]", f'control = "{self.ip(host)}:7671"']
            lines += [f'mac = "{self.lab.interface(host).mac}"']
        self.file.write_text("\n".join(lines))

    def list(self, links: Sequence[tuple[str, str]]) -> None:
        """Writes a file with these links, and has the manager take it."""
        self.listed = list(links)
        self.write()
        os.kill(self.controller.pid, signal.SIGHUP)
