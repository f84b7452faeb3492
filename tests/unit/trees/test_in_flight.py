"""Make before break under the emulator's clock. Packets are in flight while rules are written, publishers are
told and rules are removed, and links take their time. Every packet arrives once at each of its receivers and
nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import random_network
from tests.unit.routing.test_virtual import random_rules

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.dataplane.emulator import LinkSettings
from treecast.middleware.evaluation.twins import FRAME, switched
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import request
from treecast.middleware.wire.label_stack import encode_labels

SLOWEST = 0.2  # maximum seconds on a link


class Traffic:
    """Publishers that send at random moments, by what they know then; switches and control are slow too."""

    def __init__(self, network: Network, rng: Random) -> None:
        self.network, self.rng = network, rng
        self.run = switched("virtual_trees")
        links = {
            link: LinkSettings(delay=0.01 + (SLOWEST - 0.01) * rng.random())
            for link in range(len(network.tails))
        }
        self.run.become(network, {switch: SwitchState.of() for switch in network.switches}, links)
        self.told: dict[int, dict[int, int]] = {}
        self.sent: list[tuple[int, list[int]]] = []
        self.under_way = 0

    @property
    def life(self) -> float:
        """Returns the maximum time in flight: no path passes a node twice."""
        return SLOWEST * self.network.node_count

    def pass_time(self, seconds: float, packets: int = 3) -> None:
        emulator = self.run.emulator
        for _ in range(packets if self.told else 0):
            emulator.at(emulator.now + seconds * self.rng.random(), self.publish)
        emulator.run(seconds)
        self.under_way = max(self.under_way, emulator.under_way)

    def publish(self) -> None:
        source = self.rng.choice(sorted(self.told))
        others = [host for host in self.network.hosts if host != source]
        receivers = sorted(self.rng.sample(others, self.rng.randint(1, len(others))))
        rules = RuleBase(self.network, 1 << 20)
        rules.trees = self.told[source]
        found = Encoder(self.network, rules).encode(request(self.network, source, receivers))
        payload = len(self.sent).to_bytes(4)
        self.sent.append((source, receivers))
        self.run.put(source, FRAME + encode_labels(found.labels) + payload)

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        for source in network.hosts:
            self.told[source] = dict(trees)
            self.pass_time(0.1)

    async def sleep(self, seconds: float) -> None:
        self.pass_time(seconds, packets=10)

    def faults(self) -> list[str]:
        """Returns for every wrong packet its receivers and its intended receivers."""
        got: dict[int, list[int]] = {number: [] for number in range(len(self.sent))}
        for link, frames in self.run.carried.frames.items():
            payloads = [int.from_bytes(frame[-4:]) for frame in frames]
            if self.network.is_host[self.network.heads[link]]:
                for number in payloads:
                    got[number].append(self.network.heads[link])
            elif len(set(payloads)) < len(payloads):
                return [f"a packet goes twice over {self.network.link_name(link)}"]
        return [
            f"packet {number} of {source} for {receivers} came to {sorted(got[number])}"
            for number, (source, receivers) in enumerate(self.sent)
            if sorted(got[number]) != receivers
        ]


class SlowSwitch:
    """Time passes before and after its rules are written."""

    open = True

    def __init__(self, traffic: Traffic, number: int) -> None:
        self._traffic, self._number = traffic, number

    async def read(self) -> SwitchState:
        return self._traffic.run.read(self._number)

    async def bring_to(self, desired: SwitchState) -> int:
        self._traffic.pass_time(0.1)
        count = self._traffic.run.bring(self._number, desired)
        self._traffic.pass_time(0.05)
        return count


async def updates(traffic: Traffic, limit: int, life: float, wanted: Callable[[], list[int]]) -> None:
    """Applies three rule bases one after the other, then lets all packets in flight arrive."""
    switches = {number: SlowSwitch(traffic, number) for number in traffic.network.switches}
    manager = TreeManager(
        traffic.network, switches, traffic, MemoryStore(), limit=limit, life=life, sleep=traffic.sleep
    )
    await manager.start()
    for _ in range(3):
        (await manager.update(wanted())).check_invariants()
    traffic.run.emulator.drain()
    traffic.run.emulator.check_invariants()


def run(seed: int, nodes: int, limit: int, *, drained: bool = True) -> Traffic:
    """Runs traffic on a random network whose trees change three times."""
    rng = Random(seed)
    network = random_network(seed, nodes, nodes // 2, hosts=True)
    traffic = Traffic(network, rng)
    life = traffic.life if drained else 0.0
    asyncio.run(updates(traffic, limit, life, lambda: list(random_rules(network, rng, 6).trees.values())))
    return traffic


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(3, 6), limit=st.integers(1, 4))
def test_no_packet_in_flight_is_lost_or_goes_round(seed: int, nodes: int, limit: int) -> None:
    traffic = run(seed, nodes, limit)
    assert traffic.faults() == []
    assert traffic.run.carried.astray == []


def test_without_the_wait_packets_are_lost() -> None:
    """The check above fails if old rules are removed before packets have drained."""
    traffic = run(3, 4, 2)
    assert traffic.under_way > 0
    assert traffic.faults() == []
    assert any(run(seed, 4, 2, drained=False).faults() for seed in range(3, 12))
