"""STARE over its P4 programs: vectors, both designs, subscriptions that come and go on bad links."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.stare.tree import PROGRAMS, TreeWorld
from tests.unit.stare.world import CONTROLLER, Links

from treecast.middleware.control.stare_switch.programming import all_groups
from treecast.middleware.dataplane.p4.runtime import Switch
from treecast.middleware.dataplane.p4.stf.parse import parse
from treecast.middleware.dataplane.p4.stf.runner import PORTS, Runner
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.fabric.stare.subscriptions import SubState
from treecast.middleware.wire.stare import StareKind

STATES = (256, 300, 301, 1000)
LONG = 60.0  # seconds of the world's clock


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("name", ["stare_register", "stare_embedded"])
def test_the_vectors(name: str, interpret: bool) -> None:
    path = PROGRAMS / f"{name}.p4"
    program = load_file(path)
    switch = Switch(program, ports=PORTS, interpret=interpret)
    vectors = path.with_suffix(".stf")
    report = Runner(program, switch).run(parse(vectors.read_text(), str(vectors)))
    assert not report.problems
    assert report.met > 10


def test_a_vector_that_is_wrong_is_found() -> None:
    path = PROGRAMS / "stare_register.p4"
    program = load_file(path)
    text = (
        Path(path.with_suffix(".stf"))
        .read_text()
        .replace("expect 1 01005E40012C", "expect 1 01005E40012D", 1)
    )
    assert Runner(program, Switch(program, ports=PORTS)).run(parse(text, "wrong")).problems


def schedule(seed: int, steps: int = 60) -> list[tuple[str, int, int, bytes]]:
    rng = random.Random(seed)
    actions = ["publish"] * 3 + ["subscribe"] * 2 + ["unsubscribe"]
    return [
        (rng.choice(actions), rng.randrange(5), rng.choice(STATES), rng.randbytes(rng.choice((5, 100))))
        for _ in range(steps)
    ]


def play(world: TreeWorld, seed: int, pause: float) -> list[int]:
    """Five VNFs on four hosts; the VNFs' ids."""
    vnfs = [world.open(1 + n % 4) for n in range(5)]
    for action, which, state, value in schedule(seed):
        vnf = vnfs[which]
        if action == "publish":
            world.publish(vnf, state, value)
        elif action == "subscribe":
            world.subscribe(vnf, state)
        else:
            world.unsubscribe(vnf, state)
        world.run(pause)
    return vnfs


def test_the_same_packets_through_both_designs_give_the_same_deliveries() -> None:
    found = []
    for design in ("register", "embedded"):
        world = TreeWorld(design, Links())
        play(world, 1, 0.5)
        world.run(2)
        assert world.missing() == []
        assert world.held(STATES) == {}
        found.append(world.got)
    assert found[0] == found[1]


@pytest.mark.parametrize("design", ["register", "embedded"])
def test_a_publish_crosses_each_link_once_and_no_link_without_subscribers(design: str) -> None:
    world = TreeWorld(design, Links())
    one, two, three = world.open(1), world.open(2), world.open(3)
    world.publish(one, 256, b"first")  # the controller subscribes
    world.subscribe(two, 256)
    world.run(3)
    counts = [switch.switch.stats().ports for switch in world.switches]
    world.publish(one, 256, b"second")
    world.run(0.02)
    after = [switch.switch.stats().ports for switch in world.switches]
    sent = {
        (number, port): after[number][port].packets_out - counts[number][port].packets_out
        for number in range(3)
        for port in (1, 2, 3, 4)
    }
    assert {where for where, count in sent.items() if count} == {(1, 1), (1, 3), (0, 4)}
    assert set(sent.values()) == {0, 1}
    assert not world.got[three]


def test_the_embedded_design_over_bad_links() -> None:
    """Everybody has the last value, and the switches hold exactly what the subscriptions imply."""
    world = TreeWorld("embedded", Links(0.2, 0.1, 0.02), seed=3)
    play(world, 3, 0.1)
    world.run(LONG)
    assert world.missing() == []
    assert world.held(STATES) == {}
    assert all(one.controller is not None and one.controller.settled for one in world.switches)
    for node in world.nodes.values():
        for state in STATES:
            assert node.subscription(state) in (None, SubState.REGISTERED, SubState.REGISTERING)


def test_the_register_design_over_bad_links() -> None:
    """Refreshes heal what was lost on the way; a bit too much may stay, and costs packets, not values."""
    world = TreeWorld("register", Links(0.2, 0.1, 0.02), seed=4)
    play(world, 4, 0.1)
    world.run(LONG)
    assert world.missing() == []
    for held, implied in world.held(STATES).values():
        assert (held | implied).bit_count() - implied.bit_count() <= 2  # stale bits, of at most 4 ports


def test_no_request_is_sent_after_all_have_acknowledged() -> None:
    world = TreeWorld("embedded", Links())
    two = world.open(2)
    world.subscribe(two, 256)
    world.run(1)
    before = [switch.switch.stats().ports for switch in world.switches]
    world.run(4)  # less than a refresh
    after = [switch.switch.stats().ports for switch in world.switches]
    assert [{p: c.packets_out for p, c in one.items()} for one in before] == [
        {p: c.packets_out for p, c in one.items()} for one in after
    ]
    assert world.sent[StareKind.SUB_REGISTER] == 1


@pytest.mark.parametrize("data", [b"", b"\0\1", bytes(60), b"\0\1" + bytes(60), b"\xff\xff" + bytes(60)])
def test_garbage_from_the_cpu_port_is_counted(data: bytes) -> None:
    world = TreeWorld("embedded", Links())
    controller = world.switches[0].controller
    assert controller is not None
    controller.packet_in(data, 0.0)
    assert sum(controller.refused.values()) == 1
    assert controller.states == 0


def test_there_is_a_group_for_each_set_of_ports() -> None:
    groups = {one.group: {replica.port for replica in one.replicas} for one in all_groups([1, 3, 4])}
    assert len(groups) == 7
    assert groups[0b11010] == {1, 3, 4}
    with pytest.raises(ValueError, match="at most"):
        list(all_groups(range(11)))
    assert CONTROLLER == 0
