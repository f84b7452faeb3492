"""Label switches in memory that outlive tree managers, with cables between their ports, and publishers that
send by what they were told. A description may name fewer links than there are cables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from random import Random

from treecast.middleware.api.virtual_trees import read_trees, write_trees
from treecast.middleware.control.switches import LocalSwitch, SwitchRefused, SwitchState
from treecast.middleware.control.trees.manager import Store, Surroundings, TreeManager
from treecast.middleware.control.trees.wires import Named
from treecast.middleware.dataplane.p4 import Entities, Program, Schema, Switch, build_p4info
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.routing.network import Network, described, end_of
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import request
from treecast.middleware.wire.label_stack import encode_labels

PROGRAM = Path(__file__).resolve().parents[3] / "p4" / "virtual_trees.p4"
CPU = 510
LOOPING = 2000  # frames on links: more of one packet go in a circle

Place = tuple[str, int]  # a node and its port
Cable = tuple[Place, Place]


@lru_cache(maxsize=1)
def program() -> tuple[Program, Schema]:
    loaded = load_file(PROGRAM)
    return loaded, Schema(build_p4info(loaded))


class Box:
    """A switch. `open`: it answers its manager; `refuses`: it takes no writes; `works`: it forwards."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.open, self.refuses, self.works = True, False, True
        self.empty()

    def empty(self) -> None:
        """Starts it again, without what it held."""
        loaded, schema = program()
        self.switch = Switch(loaded, ports=range(1, 64), cpu_port=CPU)
        self._local = LocalSwitch(schema, Entities(schema, self.switch.control))

    async def read(self) -> SwitchState:
        self._ask()
        return self._local.read()

    async def bring_to(self, desired: SwitchState) -> int:
        self._ask()
        if self.refuses:
            raise SwitchRefused("full")
        self._plant.step()
        count = self._local.bring_to(desired)
        self._plant.check()
        return count

    def _ask(self) -> None:
        if not self.open:
            raise SwitchRefused("it is not reached")


class Dies(Exception):
    """A manager's end."""


class Plant:
    """`cables`: all that there are, also of links that no description names."""

    def __init__(self, switches: list[str], hosts: list[str], cables: list[Cable], rng: Random) -> None:
        self.rng = rng
        self.hosts = hosts
        self.boxes = {name: Box(self) for name in switches}
        self.other: dict[Place, Place] = {}
        for one, another in cables:
            self.other[one], self.other[another] = another, one
        self.cut: set[frozenset[str]] = set()
        self.deaf: set[str] = set()  # publishers that do not answer
        self.told: dict[str, tuple[int, Network, RuleBase]] = {}
        self.checked = 0
        self.checks = True
        self.left = -1  # steps until the manager dies; below 0: it lives

    # --- what a manager sees

    def step(self) -> None:
        if self.left == 0:
            raise Dies
        self.left -= 1

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        self.step()
        told, rules = read_trees(write_trees(network, trees))
        missing = []
        for host in sorted(self.hosts, key=lambda _: self.rng.random()):
            if host in self.deaf:
                missing.append(host)
                continue
            before = self.told.get(host, (0, None, None))
            assert version >= before[0]
            if version == before[0]:
                assert before[1] is not None
                assert before[2] is not None
                assert (told.ends, rules.trees) == (before[1].ends, before[2].trees)
            self.told[host] = version, told, rules
            self.check()
        if missing:
            raise OSError(f"{missing} do not answer")
        self.step()

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.step()
        self.check()

    def described(self, links: list[tuple[str, str]]) -> tuple[Network, Named]:
        """Returns a description's network, and the ports that it writes out."""
        places = {end_of(text, {*self.boxes, *self.hosts})[0] for link in links for text in link}
        switches = [name for name in self.boxes if name in places]
        network = described(switches, [name for name in self.hosts if name in places], links)
        named = set()
        for link in links:
            ends = [end_of(text, {*self.boxes, *self.hosts}) for text in link]
            named |= {(frozenset(node for node, _ in ends), node) for node, port in ends if port}
        return network, frozenset(named)

    def parts(self, network: Network) -> tuple[dict[int, Box], Surroundings]:
        switches = {node: self.boxes[network.names[node]] for node in network.switches}
        return switches, Surroundings(
            macs={node: self.mac(network.names[node]) for node in network.hosts}, probed=True
        )

    def manager(self, store: Store, links: list[tuple[str, str]], limit: int = 4) -> TreeManager:
        network, named = self.described(links)
        switches, around = self.parts(network)
        return TreeManager(
            network, switches, self, store, limit=limit, around=around, named=named, sleep=self.sleep
        )

    def become(self, manager: TreeManager, links: list[tuple[str, str]]) -> None:
        network, named = self.described(links)
        switches, around = self.parts(network)
        manager.become(network, switches, around, self, named)

    # --- packets

    def mac(self, host: str) -> int:
        return 0x0200_0000_0001 + self.hosts.index(host)

    def carry(self, start: Place, frame: bytes, heard: Callable[[bytes], None] | None = None) -> Counter[str]:
        """Sends a frame into a port, as if it came over its cable. Returns the copies by host."""
        found: Counter[str] = Counter()
        waiting = [(start, frame)]
        for (node, port), data in waiting:
            assert len(waiting) < LOOPING, "frames go in a circle"
            if node in self.hosts:
                found[node] += 1
                continue
            box = self.boxes[node]
            for out in box.switch.receive(port, data, 0.0) if box.works else ():
                if out.port == CPU:
                    if heard is not None and box.open:
                        heard(out.packet)
                    continue
                other = self.other.get((node, out.port))
                if other is not None and frozenset((node, other[0])) not in self.cut:
                    waiting.append((other, out.packet))
        return found

    def send(self, host: str, frame: bytes) -> Counter[str]:
        return self.carry(self.other[host, 1], frame)

    def check(self) -> None:
        """Every publisher sends a packet by labels, which arrives once at each of its receivers and nowhere
        else."""
        for host in [host for host in self.told if self.checks and host not in self.deaf]:
            _, network, rules = self.told[host]
            at = {network.names[node]: node for node in network.hosts}
            if host not in at:
                continue
            others = [
                node
                for node in network.hosts
                if network.part[node] == network.part[at[host]] and node != at[host]
            ]
            if not others:
                continue
            receivers = self.rng.sample(others, self.rng.randint(1, len(others)))
            found = Encoder(network, rules).encode(request(network, at[host], receivers))
            frame = bytes(12) + b"\x99\x99" + encode_labels(found.labels) + b"data"
            assert self.send(host, frame) == Counter(network.names[node] for node in receivers)
            self.checked += 1

    def unicast(self, host: str, other: str) -> bool:
        """Returns whether a frame without a stack arrives; it arrives nowhere else."""
        found = self.send(host, self.mac(other).to_bytes(6) + self.mac(host).to_bytes(6) + b"\x08\x00data")
        assert found in (Counter({other: 1}), Counter())
        return bool(found)

    def joined(self) -> dict[str, int]:
        """Returns nodes' parts: equal numbers can reach each other by cables that are whole."""
        found: dict[str, int] = {}
        for number, first in enumerate([*self.boxes, *self.hosts]):
            waiting = [first] if first not in found else []
            while waiting:
                node = waiting.pop()
                if node in found or (node in self.boxes and not self.boxes[node].works):
                    continue
                found[node] = number
                for (name, _), (other, _) in self.other.items():
                    if name == node and frozenset((name, other)) not in self.cut:
                        waiting.append(other)
        return found


def random_plant(seed: int, switches: int, extra: int, hosts: int) -> Plant:
    """Returns switches in a random tree with further cables between them, and hosts at some of them."""
    rng = Random(seed)
    names = [f"s{number}" for number in range(switches)]
    used = {name: rng.randint(0, 2) for name in names}  # ports that have no cable

    def place(name: str) -> Place:
        used[name] += 1
        return name, used[name]

    pairs = [(names[rng.randrange(number)], names[number]) for number in range(1, switches)]
    for _ in range(extra):
        one, other = rng.sample(names, 2)
        if (one, other) not in pairs and (other, one) not in pairs:
            pairs.append((one, other))
    people = [f"h{number}" for number in range(hosts)]
    homes = {host: rng.choice(names) for host in people}
    cables: list[Cable] = [(place(one), place(other)) for one, other in pairs]
    cables += [((host, 1), place(homes[host])) for host in people]
    return Plant(names, people, cables, rng)


def written(
    plant: Plant, wanted: Callable[[frozenset[str]], bool], plain: set[frozenset[str]]
) -> list[tuple[str, str]]:
    """Returns a description of the cables that are wanted, in random order, with their ports. Those in
    `plain` are known, and written without."""
    found = []
    for one, other in plant.other.items():
        name = frozenset((one[0], other[0]))
        if one < other and (wanted(name) or name & set(plant.hosts)):
            ends = [one[0], other[0]] if name in plain else [f"{node}:{port}" for node, port in (one, other)]
            plant.rng.shuffle(ends)
            found.append((ends[0], ends[1]))
    plant.rng.shuffle(found)
    return found
