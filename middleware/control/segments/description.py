"""A network of SRv6 routers as an operator describes it, in TOML.

block = "fcbb:bb00::"           # 32 bits of all SIDs; a router's locator is a /48 in it
store = "segments.json"         # the number of the controller's last run; seen from this file
packet_life = 1.0               # seconds
look = 2.0                      # seconds between looks at the receivers that daemons have
probe = 0.5                     # seconds between probes of each link between routers; 0: none are sent
capacity = 0                    # bits per second of a link between routers; 0: trees ignore load
high = 0.65                     # trees leave links with more load, as a share of the capacity
low = 0.5                       # and return to the shortest paths if these stay below this

links = [["alpha", "r1"], ["r1", "r2"], ["r2", "beta"]]   # in the order of each router's ports

[advice]                        # of `treecast pipeline`; without `kafka` none is followed
kafka = "10.0.0.1:9092"         # the Kafka face of a daemon
network = "srv6"                # the network's name in advice
every = 5.0                     # seconds between looks
dry_run = false                 # only write down what would be done
rule_writes = 1000              # segments that advice may write and remove in a minute
missing = 0.5                   # the share of hosts that advice may know nothing of

[routers]                       # P4Runtime, running p4/srv6_replication.p4
r1 = "10.0.0.11:9559"
r2 = "unix:/run/r2.sock"

[hosts.alpha]                   # a daemon, by its --name, started with --carrier srv6
control = "[fd00::1]:7671"
address = "fd00::1"             # of IPv6, to which routers bring what is for it alone
mac = "02:00:00:00:00:01"
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from treecast.middleware.routing.network import Network, RoutingError, check_ports, described
from treecast.middleware.routing.replication.engineering import HIGH, LOW
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.storage.whole_file import write_whole
from treecast.middleware.wire.srv6_sids import Layout, SidError

from ..advice.place import AdvicePlace
from ..macs import mac_of
from .routers import MOST_RUNS, Plan, host_address


class HostPlace(msgspec.Struct, forbid_unknown_fields=True):
    """`control` empty: it publishes nothing."""

    address: str
    mac: str
    control: str = ""


class Described(msgspec.Struct, forbid_unknown_fields=True):
    """The file, as its docstring above says."""

    links: list[tuple[str, str]]
    routers: dict[str, str]
    hosts: dict[str, HostPlace] = {}
    block: str = "fcbb:bb00::"
    store: str = "segments.json"
    packet_life: float = 1.0
    look: float = 2.0
    probe: float = 0.5
    capacity: float = 0
    high: float = HIGH
    low: float = LOW
    advice: AdvicePlace = AdvicePlace()

    def network(self) -> Network:
        """Returns the network. Raises RoutingError as `described` and `check_ports` do."""
        return check_ports(described(self.routers, self.hosts, self.links, "router"))

    def plan(self, run: int) -> Plan:
        """Returns the plan of run `run`. Raises RoutingError for invalid addresses."""
        network = self.network()
        try:
            layout = Layout(ipaddress.IPv6Address(self.block).packed).check()
        except (ValueError, SidError) as error:
            raise RoutingError(f"block {self.block!r}: {error}") from error
        macs = {network.node(name): mac_of(host.mac) for name, host in self.hosts.items()}
        hosts = {network.node(name): host_address(host.address) for name, host in self.hosts.items()}
        return Plan(network, Paths(network), layout, macs, hosts, run)

    def controls(self) -> dict[str, str]:
        """The control addresses of publishers, by name."""
        return {name: host.control for name, host in self.hosts.items() if host.control}


def read(path: Path) -> Described:
    """OSError, or RoutingError with what is wrong in the file."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Described)
    except msgspec.DecodeError as error:
        raise RoutingError(f"{path}: {error}") from error


class _Kept(msgspec.Struct):
    run: int


def next_run(path: Path) -> int:
    """The number of this run, which is on disk before it is used. ValueError where the file is no store."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=_Kept).run + 1
    except FileNotFoundError:
        run = 1
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is no store of runs: {error}; restore it") from error
    if not 0 < run < MOST_RUNS:
        raise ValueError(f"{path}: run {run} of {MOST_RUNS - 1}")
    write_whole(path, msgspec.json.encode(_Kept(run)))
    return run
