"""The tree manager at work follows advice, lets `adapt` only watch meanwhile, and goes on while the daemon
with the topics is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.trees.test_advice import LIMIT, NETWORK, Topics, advice, some_trees

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.control.advice.place import AdvicePlace
from treecast.middleware.control.trees.controller import Controller
from treecast.middleware.control.trees.description import Described, HostPlace
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.publishers import Daemons
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.evaluation.label_network import LabelNetwork


class Publishers(Daemons):
    """Daemons in the emulator."""

    def __init__(self, cloud: LabelNetwork) -> None:
        super().__init__({})
        self.cloud = cloud
        self.looks = 0

    async def announce(self, version: int, network: Any, trees: Any) -> None:
        await self.cloud.announce(version, network, trees)

    async def observed(self) -> dict[str, dict[tuple[str, ...], int]]:
        self.looks += 1
        return self.cloud.observed()


def controller(folder: Path, own: Topics, adapt: float = 0.0) -> tuple[Controller, Publishers]:
    """Returns one whose switches are those of the emulator."""
    cloud = LabelNetwork(NETWORK, 5)
    cloud.wanted = [(NETWORK.hosts[0], NETWORK.hosts[2:6]), (NETWORK.hosts[7], NETWORK.hosts[1:3])]
    publishers = Publishers(cloud)
    described = Described(
        links=[(NETWORK.names[one], NETWORK.names[other]) for one, other in NETWORK.ends],
        switches={NETWORK.names[node]: "" for node in NETWORK.switches},
        hosts={NETWORK.names[node]: HostPlace() for node in NETWORK.hosts},
        limit=LIMIT,
        strategy="hops",
        probe=0.0,
        adapt=adapt,
        advice=AdvicePlace(kafka="in memory", network="lab", every=0.0),
    )
    made = Controller(
        folder / "net.toml",
        described,
        MemoryStore(),
        lambda _: publishers,
        now=1,
        nonce=b"n" * 8,
        opened=lambda _: own,
    )
    made.manager = TreeManager(
        NETWORK, cloud.switches(), publishers, MemoryStore(), limit=LIMIT, life=0.1, sleep=cloud.sleep
    )
    made._advised = made._follower(described)
    return made, publishers


def told(own: Topics, epoch: int, **changed: Any) -> None:
    base: pb.NetworkTopology = own.topology()
    given = {"base_rule_version": base.rule_version, "topology_version": base.version, "valid_until": 2**62}
    own.put(topics.ADVICE, "lab", topics.encode(advice(epoch, some_trees(epoch), **(given | changed))))


async def test_it_follows_advice_and_goes_on_while_the_daemon_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Topics()
    one, publishers = controller(tmp_path, own)
    await one._look()
    told(own, 1)
    own.away = True
    await one._look()
    await one._look()
    own.away = False
    await one._look()
    assert set(one.manager.rules.trees.values()) == set(some_trees(1))
    own.put(topics.ADVICE, "lab", b"\xff\xff")
    await one._look()
    assert [each.decision for each in own.applied()] == ["applied", "refused"]
    assert set(one.manager.rules.trees.values()) == set(some_trees(1))
    assert publishers.cloud.got() == publishers.cloud.sent
    out, err = capsys.readouterr()
    assert err.count("advice waits: nobody answers") == 1  # said once while it lasts
    assert "advice epoch=1 applied: it saves 50.0 % of labels" in out


async def test_the_description_names_the_operators_strategy(tmp_path: Path) -> None:
    own = Topics()
    one, _ = controller(tmp_path, own)
    one._described.strategy = "hybrid"
    one._advised = one._follower(one._described)
    await one._look()
    assert len(one.manager.rules.trees) > 0  # those of `random`, for the time being
    assert own.topology().strategy == "hybrid"
    told(own, 1, strategy="learned")
    await one._look()
    told(own, 2, strategy="hybrid")
    await one._look()
    assert [each.decision for each in own.applied()] == ["refused", "applied"]
    assert set(one.manager.rules.trees.values()) == set(some_trees(2))


async def test_adapt_only_watches_while_advice_is_valid(tmp_path: Path) -> None:
    own = Topics()
    one, publishers = controller(tmp_path, own, adapt=1e-9)
    await one._look()
    told(own, 1)
    await one._look()
    for _ in range(3):
        publishers.cloud.pass_time(1.0, 300)
        await one._look()
    assert publishers.looks >= 3
    assert set(one.manager.rules.trees.values()) == set(some_trees(1))
    own.put(topics.ADVICE, "lab", None)  # the kill switch: `adapt` may act again
    for _ in range(3):
        publishers.cloud.pass_time(1.0, 300)
        await one._look()
    assert set(one.manager.rules.trees.values()) != set(some_trees(1))
    assert [each.decision for each in own.applied()] == ["applied", "off"]
