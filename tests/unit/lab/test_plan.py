"""Addresses, routes and steps, without a namespace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link, Router, Switch
from treecast.middleware.dataplane.lab.plan import (
    AddNeighbour,
    AddRoute,
    AwaitUp,
    MakeNode,
    MakePair,
    Plan,
    Shape,
    StartRelay,
    StartSwitch,
    TurnOffloadsOff,
    make_plan,
)


def lab(hosts: str, links: list[str], routers: str = "", bridges: str = "", **options: int | bool) -> Plan:
    return make_plan(
        Description(
            hosts=dict.fromkeys(hosts, Host()),
            routers=dict.fromkeys(routers, Router()),
            bridges=dict.fromkeys(bridges, Bridge()),
            links=tuple(Link((pair[0], pair[1]), **options) for pair in links),  # type: ignore[arg-type]
        )
    )


def addresses(plan: Plan) -> dict[str, list[str]]:
    return {node: [str(i.ipv4) for i in plan.of(node)] for node in plan.description.nodes}


def routes(plan: Plan, node: str) -> dict[str, str]:
    found = (step for step in plan.steps if isinstance(step, AddRoute) and step.node == node)
    return {step.destination: step.via for step in found if ":" not in step.destination and step.via}


def test_two_hosts_share_a_network() -> None:
    plan = lab("ab", ["ab"])
    assert addresses(plan) == {"a": ["10.64.0.1/24"], "b": ["10.64.0.2/24"]}
    assert str(plan.of("b")[0].ipv6) == "fd54:7265:6563::2/64"
    assert plan.of("b")[0].mac == "02:54:00:00:00:02"


def test_joined_bridges_are_one_network() -> None:
    plan = lab("abc", ["ax", "yb", "xy", "cx"], bridges="xy")
    assert addresses(plan)["a"] == ["10.64.0.1/24"]
    assert addresses(plan)["b"] == ["10.64.0.2/24"]
    assert addresses(plan)["c"] == ["10.64.0.3/24"]
    assert addresses(plan)["x"] == []


def test_routes_lead_over_the_fewest_routers() -> None:
    plan = lab("ab", ["ar", "rs", "st", "tb", "rt"], routers="rst")
    # networks: a-r 0, r-s 1, s-t 2, t-b 3, r-t 4
    assert routes(plan, "a") == dict.fromkeys(
        ("10.64.1.0/24", "10.64.4.0/24", "10.64.2.0/24", "10.64.3.0/24"), "10.64.0.2"
    )
    assert routes(plan, "r")["10.64.3.0/24"] == "10.64.4.2"
    assert routes(plan, "s")["10.64.0.0/24"] == "10.64.1.1"


def test_hosts_do_not_forward() -> None:
    plan = lab("abc", ["ab", "bc"])
    assert routes(plan, "a") == {}
    assert {step.node for step in plan.steps if isinstance(step, MakeNode) and step.forward} == set()


def test_a_relayed_link_has_a_node_of_its_own() -> None:
    plan = lab("ab", ["ab"], relay=True)
    assert plan.nodes == ("a", "b", "relay.0")
    pairs = [(s.node, s.interface, s.peer, s.peer_interface) for s in plan.steps if isinstance(s, MakePair)]
    assert pairs == [("a", "eth0", "relay.0", "end0"), ("b", "eth0", "relay.0", "end1")]
    offloads = {(s.node, s.interface) for s in plan.steps if isinstance(s, TurnOffloadsOff)}
    assert offloads == {("a", "eth0"), ("b", "eth0"), ("relay.0", "end0"), ("relay.0", "end1")}
    assert [step.link for step in plan.steps if isinstance(step, StartRelay)] == ["a=b"]


def test_the_lab_is_up_when_every_interface_is() -> None:
    steps = make_plan(
        Description(
            hosts=dict.fromkeys("ab", Host()),
            bridges={"x": Bridge()},
            links=(Link(("a", "x"), relay=True), Link(("x", "b"))),
        )
    ).steps
    awaited = {step.node: step.interfaces for step in steps if isinstance(step, AwaitUp)}
    assert awaited == {
        "a": ("eth0",),
        "b": ("eth0",),
        "x": ("port0", "port1", "br0"),
        "relay.0": ("end0", "end1"),
    }


def test_a_rate_holds_both_ways() -> None:
    shaped = [step for step in lab("a", ["ax"], bridges="x", rate=10**6).steps if isinstance(step, Shape)]
    assert shaped == [Shape("a", "eth0", 10**6), Shape("x", "port0", 10**6)]


pairs = st.tuples(st.sampled_from("abcdrstx"), st.sampled_from("abcdrstx")).filter(
    lambda pair: pair[0] != pair[1]
)


@given(st.lists(pairs, max_size=12))
def test_any_lab_has_distinct_addresses_and_routes_that_arrive(links: list[tuple[str, str]]) -> None:
    plan = lab("abcd", ["".join(pair) for pair in links], routers="rst", bridges="x")
    for attribute in ("ipv4", "ipv6", "mac"):
        values = [str(getattr(interface, attribute)) for interface in plan.interfaces]
        assert len(values) == len(set(values))
    for node in "abcdrst":
        for destination in routes(plan, node):
            assert _arrives(plan, node, destination)


def _arrives(plan: Plan, node: str, destination: str) -> bool:
    """Follows the routes from node to node, as packets would."""
    for _ in plan.description.nodes:
        if any(str(i.ipv4.network) == destination for i in plan.of(node)):
            return True
        via = routes(plan, node)[destination]
        hop = next(i for i in plan.interfaces if str(i.ipv4.ip) == via)
        assert any(i.network == hop.network for i in plan.of(node))
        assert hop.node in plan.description.routers
        node = hop.node
    return False


def switched(hosts: str, switches: str, links: list[str], **options: bool) -> Plan:
    return make_plan(
        Description(
            hosts=dict.fromkeys(hosts, Host()),
            switches=dict.fromkeys(switches, Switch("x.p4", 100)),
            links=tuple(Link((pair[0], pair[1]), **options) for pair in links),
        )
    )


def test_a_switch_has_its_links_as_ports_and_no_address() -> None:
    plan = switched("ab", "st", ["as", "st", "tb"])
    assert addresses(plan) == {"a": ["10.64.0.1/24"], "b": ["10.64.0.2/24"], "s": [], "t": []}
    started = [step for step in plan.steps if isinstance(step, StartSwitch)]
    assert started == [
        StartSwitch("s", "x.p4", 100, ((1, "port0"), (2, "port1"))),
        StartSwitch("t", "x.p4", 100, ((1, "port0"), (2, "port1"))),
    ]
    assert MakeNode("s", quiet=True) in plan.steps


def test_hosts_on_a_switch_know_each_other() -> None:
    plan = switched("abc", "s", ["as", "bs", "ac"])
    neighbours = [step for step in plan.steps if isinstance(step, AddNeighbour) and "." in step.address]
    assert [(one.node, one.interface, one.address, one.mac) for one in neighbours] == [
        ("a", "eth0", "10.64.0.2", "02:54:00:00:00:02"),
        ("b", "eth0", "10.64.0.1", "02:54:00:00:00:01"),
    ]


def test_frames_at_a_switch_are_those_of_a_wire() -> None:
    plan = switched("a", "s", ["as"])
    off = {(step.node, step.interface) for step in plan.steps if isinstance(step, TurnOffloadsOff)}
    assert off == {("a", "eth0"), ("s", "port0")}


def test_switches_may_be_joined_in_rings() -> None:
    plan = switched("a", "stu", ["as", "st", "tu", "us"])
    assert len([step for step in plan.steps if isinstance(step, StartSwitch)]) == 3
