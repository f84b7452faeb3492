"""A network of switches that look at content, as an operator describes it, in TOML.

layout = "stock:8s,price:u32"   # what content headers hold; daemons: --carrier "content=stock:8s;price:u32"
look = 1.0                      # seconds between looks at what daemons want

links = [["alpha", "s1"], ["s1", "s2"], ["s2", "beta"]]   # in the order of each switch's ports

[switches]                      # P4Runtime; they are given their program
s1 = "10.0.0.11:9559"
s2 = "unix:/run/s2.sock"

[hosts.alpha]                   # a daemon, by its --name
control = "10.0.0.1:7671"
mac = "02:00:00:00:00:01"
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from treecast.middleware.routing.content import ContentNetwork
from treecast.middleware.routing.network import RoutingError
from treecast.middleware.routing.spanning import NotConnected
from treecast.middleware.wire.content import Layout

from ..macs import mac_of


class HostPlace(msgspec.Struct, forbid_unknown_fields=True):
    """`control` empty: what it wants is not asked."""

    mac: str
    control: str = ""


class Described(msgspec.Struct, forbid_unknown_fields=True):
    """The file, as its docstring above says."""

    layout: str
    links: list[tuple[str, str]]
    switches: dict[str, str]
    hosts: dict[str, HostPlace] = {}
    look: float = 1.0

    def network(self) -> ContentNetwork:
        """Returns the network. Raises RoutingError for names that are unknown or used twice, and for nodes
        without a way to the others."""
        known = {*self.switches, *self.hosts}
        if len(known) < len(self.switches) + len(self.hosts):
            raise RoutingError("a switch and a host have the same name")
        for name in [name for link in self.links for name in link if name not in known]:
            raise RoutingError(f"links name {name!r}, which is no switch and no host")
        try:
            return ContentNetwork(tuple(self.switches), tuple(self.hosts), self.links)
        except NotConnected as error:
            raise RoutingError(f"links do not join all switches and hosts: {error}") from error

    def header(self) -> Layout:
        """Returns the layout. Raises RoutingError if headers cannot hold it."""
        try:
            return Layout(self.layout)
        except ValueError as error:
            raise RoutingError(f"layout: {error}") from error

    def macs(self) -> dict[str, int]:
        """Returns the addresses of hosts. Raises RoutingError."""
        return {name: mac_of(host.mac) for name, host in self.hosts.items()}


def read(path: Path) -> Described:
    """OSError, or RoutingError with what is wrong in the file."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Described)
    except msgspec.DecodeError as error:
        raise RoutingError(f"{path}: {error}") from error
