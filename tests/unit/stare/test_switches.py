"""STARE over its P4 programs: vectors, both designs, changing subscriptions on bad links."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.stare.tree import CPU, PROGRAMS, StareSwitch, TreeWorld
from tests.unit.stare.world import Links

from treecast.middleware.control.stare_switch.embedded import BETWEEN_SWITCHES, EXPIRE, Place, port_set
from treecast.middleware.control.stare_switch.programming import (
    REGISTER,
    ControlDriver,
    all_groups,
    bring_up,
    embedded_state,
    register_state,
)
from treecast.middleware.dataplane.p4 import PORTS, Runner, Switch, parse_vectors
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.fabric.stare.subscriptions import SubState
from treecast.middleware.wire.stare import StareHeader, StareKind
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame

STATES = (256, 300, 301, 1000)
LONG = 60.0  # seconds of the world's clock


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("stare_*.stf")))
def test_the_vectors(name: str, interpret: bool) -> None:
    path = PROGRAMS / f"{name}.p4"
    program = load_file(path)
    switch = Switch(program, ports=PORTS, interpret=interpret)
    vectors = path.with_suffix(".stf")
    report = Runner(program, switch).run(parse_vectors(vectors.read_text(), str(vectors)))
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
    assert Runner(program, Switch(program, ports=PORTS)).run(parse_vectors(text, "wrong")).problems


def schedule(seed: int, steps: int = 60) -> list[tuple[str, int, int, bytes]]:
    rng = random.Random(seed)
    actions = ["publish"] * 3 + ["subscribe"] * 2 + ["unsubscribe"]
    return [
        (rng.choice(actions), rng.randrange(5), rng.choice(STATES), rng.randbytes(rng.choice((5, 100))))
        for _ in range(steps)
    ]


def play(world: TreeWorld, seed: int, pause: float) -> list[int]:
    """Opens five VNFs on four hosts and runs random operations; returns the VNFs' ids."""
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


@pytest.mark.parametrize("ipv6", [False, True])
def test_the_same_packets_through_both_designs_give_the_same_deliveries(ipv6: bool) -> None:
    found = []
    for design in ("register", "embedded"):
        world = TreeWorld(design, Links(), ipv6=ipv6)
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


@pytest.mark.parametrize("ipv6", [False, True])
def test_the_embedded_design_over_bad_links(ipv6: bool) -> None:
    """Everybody has the last value, and the switches hold exactly the implied ports."""
    world = TreeWorld("embedded", Links(0.2, 0.1, 0.02), seed=3, ipv6=ipv6)
    play(world, 3, 0.1)
    world.run(LONG)
    assert world.missing() == []
    assert world.held(STATES) == {}
    assert all(one.controller is not None and one.controller.settled for one in world.switches)
    for node in world.nodes.values():
        for state in STATES:
            assert node.subscription(state) in (None, SubState.REGISTERED, SubState.REGISTERING)


def test_the_register_design_over_bad_links() -> None:
    """Refreshes repair losses; a superfluous bit may stay, which costs packets but no values."""
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


def subscribed(world: TreeWorld) -> None:
    """Subscribes hosts 1, 2 and 3 to all states."""
    for host in (1, 2, 3):
        vnf = world.open(host)
        for state in STATES:
            world.subscribe(vnf, state)
    world.run(5)
    assert world.held(STATES) == {}


def test_what_a_host_left_that_died_silently_expires_in_the_embedded_design() -> None:
    """The entry expires by age at the host's own switch, and by SUB-removes at the others."""
    world = TreeWorld("embedded", Links(0.1), seed=5)
    subscribed(world)
    world.silent = {3}
    world.run(EXPIRE - 30)
    assert set(world.held(STATES)) == {(n, state) for n in (0, 2) for state in STATES}
    world.run(60)
    assert world.held(STATES) == {}
    assert [one.controller.expired for one in world.switches if one.controller] == [0, 0, len(STATES)]
    world.silent = set()  # the host is back and refreshes
    world.run(LONG)
    assert world.held(STATES) == {}
    assert world.switches[2].ports(STATES[0])


def test_what_a_host_left_that_died_silently_stays_in_the_register_design() -> None:
    """One bit of each state stays at each switch on the tree: the trees are too long, but nothing is
    missing."""
    world = TreeWorld("register", Links(), seed=5)
    subscribed(world)
    world.silent = {3}
    world.run(2 * EXPIRE)
    stale = world.held(STATES)
    assert set(stale) == {(n, state) for n in (0, 2) for state in STATES}
    assert all(
        held & implied == implied and (held & ~implied).bit_count() == 1 for held, implied in stale.values()
    )


def test_an_entry_without_age_stays() -> None:
    world = TreeWorld("embedded", Links(), expire=0.0)
    subscribed(world)
    world.silent = {1, 2, 3}
    world.run(2 * EXPIRE)
    assert len(world.held(STATES)) == 3 * len(STATES)  # the controller stays subscribed


@pytest.mark.parametrize("which", [0, 2])
def test_a_switch_that_begins_anew_is_told_all_again(which: int) -> None:
    """Its hosts refresh, and its neighbours repeat their requests in a round."""
    world = TreeWorld("embedded", Links(0.1), seed=6)
    subscribed(world)
    world.switches[which] = StareSwitch(which, "embedded", 77, EXPIRE)
    world.run(60)
    if which == 0:
        assert world.held(STATES)  # its only host is the replica controller
    world.run(2 * BETWEEN_SWITCHES.round)
    assert world.held(STATES) == {}


def test_there_is_a_group_for_each_set_of_ports() -> None:
    groups = {one.group: {replica.port for replica in one.replicas} for one in all_groups([1, 3, 4])}
    assert len(groups) == 7
    assert groups[0b11010] == {1, 3, 4}
    assert len(list(all_groups(range(12)))) == 4095
    with pytest.raises(ValueError, match="at most"):
        list(all_groups(range(13)))
    with pytest.raises(ValueError, match="port 16"):
        list(all_groups([16]))


def test_where_banks_have_several_ports_there_is_a_group_for_each_set_of_banks() -> None:
    groups = {one.group: {r.port for r in one.replicas} for one in all_groups([1, 2, 9, 127], width=128)}
    assert groups[0b1] == {1, 2}
    assert groups[0b11] == {1, 2, 9}
    assert groups[0x8001] == {1, 2, 127}
    assert len(groups) == 7
    assert len(list(all_groups(range(96), width=128))) == 4095
    with pytest.raises(ValueError, match="at most"):
        list(all_groups(range(97), width=128))


@pytest.mark.parametrize("design", ["register", "embedded"])
def test_a_switch_of_96_ports(design: str) -> None:
    """Every third port has a subscriber; a publish from any port reaches exactly these, except its own."""
    program = load_file(PROGRAMS / f"stare_{design}_wide.p4")
    switch = Switch(program, ports=range(96), cpu_port=CPU)
    here = Place(frozenset(), bytes([2, 0, 0, 0, 0, 254]), bytes([10, 0, 0, 254]))
    state = {"register": register_state, "embedded": embedded_state}[design](here, range(96), width=128)
    bring_up(switch.control, state)
    subscribers = set(range(0, 96, 3))
    if design == "register":
        switch.control.register(REGISTER).write(300, port_set(subscribers))
    else:
        ControlDriver(switch.control, 128).write(300, port_set(subscribers))
    mac, address = bytes([2, 0, 0, 0, 0, 1]), bytes([10, 0, 0, 1])
    publish = encode_frame(StareFrame(StareHeader(StareKind.PUBLISH, 300, 5), mac, address, b"value"))
    for port in (0, 1, 95):
        outs = switch.receive(port, publish, 0.0)
        assert sorted(out.port for out in outs) == sorted(subscribers - {port})
        assert {decode_frame(out.packet).payload for out in outs} == {b"value"}
