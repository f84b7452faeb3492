"""`python -m treecast.middleware.control.stare_switch.network FILE`: serves a network of STARE switches.

    probe = 0.5                     # seconds between probes of each link between switches
    expire = 150.0                  # seconds until a subscription expires that a host does not refresh

    # In the order of each switch's ports, or with them: ["s1:3", "s2:1"]
    links = [["a", "s1"], ["b", "s2"], ["s1", "s2"], ["s2", "s3"], ["s3", "s1"]]

    [switches.s1]                   # runs p4/stare_embedded.p4
    p4runtime = "unix:/run/s1.sock"
    mac = "02:00:00:00:00:f1"
    ip = "10.64.0.251"              # source of its own packets; no host may have it

    [hosts.a]
    mac = "02:00:00:00:00:01"
    addresses = ["10.64.0.1", "fd00::1"]

It is the embedded controller of all of them. Links may close circles: subscriptions, states and routes go by
a tree. Prints `ready tree=` when all switches that answer are programmed, `down=` when links go down or come
up, and `tree=` when the tree has moved. A switch that was restarted gets what it has lost. SIGHUP reads FILE
again; SIGTERM ends it, and switches keep what they hold.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from treecast.middleware.control.links.probes import Probes
from treecast.middleware.routing.network import Network, RoutingError, check_ports, described

from ..macs import mac_bytes
from .agent import StareAgent
from .embedded import BETWEEN_SWITCHES, EXPIRE, Place
from .programming import Routes
from .tree import PortProbes, inner_ports, names_of, ports_towards, tree_of

AGAIN: Final = 2.0  # seconds between attempts to reach a switch
READY: Final = 10.0  # seconds for a switch that does not answer at the start


class SwitchPlace(msgspec.Struct, forbid_unknown_fields=True):
    p4runtime: str
    mac: str
    ip: str
    ipv6: str = ""


class HostPlace(msgspec.Struct, forbid_unknown_fields=True):
    mac: str
    addresses: list[str]


class Described(msgspec.Struct, forbid_unknown_fields=True):
    """The file, as its docstring above says."""

    links: list[tuple[str, str]]
    switches: dict[str, SwitchPlace]
    hosts: dict[str, HostPlace] = {}
    probe: float = 0.5
    expire: float = EXPIRE

    def network(self) -> Network:
        """Returns the network. Raises RoutingError as `described` does."""
        return check_ports(described(self.switches, self.hosts, self.links))

    def place(self, network: Network, node: int, tree: int) -> Place:
        """Returns a switch's place in a tree (edges as bits). Raises RoutingError for an invalid address."""
        one = self.switches[network.names[node]]
        inside = inner_ports(network, node, tree)
        idle = inner_ports(network, node, -1) - inside
        return Place(
            inside, mac_bytes(one.mac), _address(one.ip), _address(one.ipv6) if one.ipv6 else b"", idle
        )

    def routes(self, network: Network, node: int, tree: int) -> Routes:
        """Returns a switch's routes to hosts. Raises RoutingError for an invalid address."""
        found: dict[tuple[bytes, int], tuple[int, bytes]] = {}
        for host, port in ports_towards(network, tree)[node].items():
            place = self.hosts[network.names[host]]
            for packed in map(_address, place.addresses):
                found[packed, 8 * len(packed)] = (port, mac_bytes(place.mac))
        return found


def read(path: Path) -> Described:
    """Reads the file. Raises OSError, or RoutingError with the error in the file."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Described)
    except msgspec.DecodeError as error:
        raise RoutingError(f"{path}: {error}") from error


class StareNetwork:
    """The switches of one network. `run` works until `ended` is set."""

    def __init__(self, path: Path, described: Described, run: int) -> None:
        self.ended = asyncio.Event()
        self._path, self._run = path, run
        self._agents: dict[str, StareAgent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, str] = {}
        self._again = False
        self._tree = 0
        self._described, self._network = described, described.network()
        self._take(described)

    def _take(self, changed: Described) -> None:
        """Takes a description: links of the tree stay in it as far as they are still there. Raises
        RoutingError, and changes nothing, if it cannot be applied."""
        network = changed.network()
        before = set(names_of(self._network, self._tree)) if self._tree else set()
        kept = sum(
            1 << edge for edge in range(network.edge_count) if set(names_of(network, 1 << edge)) & before
        )
        for node in network.switches:
            changed.place(network, node, 0)
            changed.routes(network, node, tree_of(network, 0, kept))
        first = next(iter(changed.switches.values()))
        self._described, self._network = changed, network
        self.probes = Probes(network, PortProbes(network, mac_bytes(first.mac), _address(first.ip)))
        self._tree = tree_of(network, 0, kept)
        for name in [name for name in self._agents if self._addresses[name] != self._wanted(name)]:
            self._tasks.pop(name).cancel()
            del self._agents[name]
        for name in changed.switches:
            if name not in self._agents:
                self._begin(name)
        self._move()

    def _wanted(self, name: str) -> str:
        place = self._described.switches.get(name)
        return place.p4runtime if place is not None else ""

    def _begin(self, name: str) -> None:
        address = self._addresses[name] = self._wanted(name)
        place = self._described.place(self._network, self._network.node(name), self._tree)
        agent = StareAgent(
            address,
            place,
            random.Random(),
            BETWEEN_SWITCHES,
            expire=self._described.expire,
            run=self._run,
            heard=self._heard,
        )
        self._agents[name] = agent
        self._tasks[name] = asyncio.create_task(agent.keep(AGAIN))

    def _heard(self, packet: bytes) -> bool:
        return self.probes.answer(packet)

    def _move(self) -> None:
        """Tells every switch its place in the tree."""
        network, described = self._network, self._described
        for name, agent in self._agents.items():
            node = network.node(name)
            ports = [network.ports[link] for link in network.out[node]]
            place = described.place(network, node, self._tree)
            agent.become(place, ports, described.routes(network, node, self._tree))

    async def run(self) -> None:
        waits = [asyncio.create_task(agent.ready.wait()) for agent in self._agents.values()]
        await asyncio.wait(waits, timeout=READY)
        print(f"ready {self._shown()}", flush=True)
        while not self.ended.is_set():
            if self._again:
                self._again = False
                self._read_again()
            self._round()
            await asyncio.sleep(self._described.probe)
        for task in [*self._tasks.values(), *waits]:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def read_again(self) -> None:
        self._again = True

    def _read_again(self) -> None:
        try:
            self._take(read(self._path))
        except (OSError, ValueError) as error:
            print(f"stare: {error}", file=sys.stderr, flush=True)
        else:
            print(self._shown(), flush=True)

    def _round(self) -> None:
        """Ends a round of probes, moves the tree if it must, and sends the next."""
        network, before = self._network, self.probes.down
        reached = [network.node(name) for name, agent in self._agents.items() if agent.open]
        probes = self.probes.round(reached)
        if self.probes.down != before:
            print(f"down={','.join(self.probes.names()).replace(' ', '') or 'none'}", flush=True)
            tree = tree_of(network, self.probes.down, self._tree)
            if tree != self._tree:
                self._tree = tree
                self._move()
                print(self._shown(), flush=True)
        for probe in probes:
            port = int.from_bytes(probe.frame[:2])
            self._agents[network.names[probe.node]].probe(port, probe.frame[2:])

    def _shown(self) -> str:
        return f"tree={','.join(names_of(self._network, self._tree)) or 'none'}"


def _address(text: str) -> bytes:
    try:
        return ipaddress.ip_address(text).packed
    except ValueError as error:
        raise RoutingError(f"{text!r} is no IP address") from error


def main() -> int:
    parser = argparse.ArgumentParser(prog="stare_switch.network", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    try:
        asyncio.run(_serve(parser.parse_args().file))
    except (OSError, ValueError) as error:
        print(f"stare: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(path: Path) -> None:
    network = StareNetwork(path, read(path), int(time.time()))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, network.read_again)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, network.ended.set)
    await network.run()


if __name__ == "__main__":
    sys.exit(main())
