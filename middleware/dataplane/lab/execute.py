"""Executes the steps of a plan with rtnetlink. Needs root. Every interface is created in its namespace.

Interfaces are never created in, or moved through, the machine's own namespace.
"""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

from . import namespaces
from .plan import (
    BRIDGE,
    AddNeighbour,
    AddRoute,
    AwaitUp,
    MakeBridge,
    MakeNode,
    MakePair,
    Plug,
    SetAddress,
    SetUp,
    Shape,
    Step,
    TurnOffloadsOff,
)

# In hundredths of a second. A bridge floods until its querier has stood for one response interval, which
# is ten seconds by default, and the querier takes the interval that is set when it is switched on.
_QUERY_RESPONSE = 50
_STARTUP_QUERY = 100
_QUERY_INTERVAL = 1000
_IGMP_VERSION, _MLD_VERSION = 3, 2
_QUEUE_SECONDS = 0.05  # longest queue of a shaped interface
_BURST_SECONDS = 0.01
_LEAST_BURST = 20_000
_UP_SECONDS = 15.0
_NO_DAD = 0x02  # IFA_F_NODAD
_PERMANENT = 0x80  # NUD_PERMANENT

Names = Callable[[str], str]  # from a node's name to its namespace's


def carry_out(steps: Iterable[Step], names: Names) -> None:
    """Does the steps in order; those that follow one another in a node share a visit there."""
    for node, group in itertools.groupby(steps, key=lambda step: step.node):
        todo = list(group)
        if isinstance(todo[0], MakeNode):
            namespaces.create(names(node))
        namespaces.inside(names(node), lambda todo=todo: _visit(todo, names))  # type: ignore[misc]


def _visit(steps: list[Step], names: Names) -> None:
    from pyroute2.netlink.exceptions import NetlinkError  # an extra of the package

    with _route() as route:
        for step in steps:
            try:
                _do(step, route, names)
            except NetlinkError as error:
                raise OSError(error.code, f"{step}: {error}") from error


@contextmanager
def _route() -> Iterator[Any]:
    """Yields rtnetlink of the thread's namespace. pyroute2 has no types."""
    from pyroute2 import IPRoute  # here: it is an extra of the package, and takes 0.1 s to load

    with IPRoute() as route:
        yield route


def interface_counters(interface: str) -> dict[str, int]:
    """Returns the kernel's 64-bit counters (`rx_packets`, `tx_bytes`, ...) of an interface in the thread's
    namespace.
    """
    with _route() as route:
        found: dict[str, int] = route.link("get", ifname=interface)[0].get("stats64")
        return found


def _index(route: Any, interface: str) -> int:
    found: list[int] = route.link_lookup(ifname=interface)
    return found[0]


@singledispatch
def _do(step: object, route: Any, names: Names) -> None:
    raise TypeError(f"no step of a network: {step!r}")


@_do.register
def _(step: MakeNode, route: Any, names: Names) -> None:
    for family in ("all", "default"):
        ipv6, ipv4 = f"net/ipv6/conf/{family}", f"net/ipv4/conf/{family}"
        namespaces.write_setting(f"{ipv6}/disable_ipv6", "1" if step.quiet else "0")
        for silent in ("accept_dad", "accept_ra", "autoconf", "router_solicitations"):
            namespaces.write_setting(f"{ipv6}/{silent}", "0")
        namespaces.write_setting(
            f"{ipv4}/rp_filter", "0"
        )  # packets may arrive by another interface than replies leave by
        namespaces.write_setting(f"{ipv6}/forwarding", "1" if step.forward else "0")
    namespaces.write_setting("net/ipv4/ip_forward", "1" if step.forward else "0")
    route.link("set", index=_index(route, "lo"), state="up")


@_do.register
def _(step: MakeBridge, route: Any, names: Names) -> None:
    route.link(
        "add",
        ifname=BRIDGE,
        kind="bridge",
        br_forward_delay=0,
        br_mcast_snooping=int(step.snooping),
        br_mcast_hash_max=step.hash_max,
        br_mcast_igmp_version=_IGMP_VERSION,
        br_mcast_mld_version=_MLD_VERSION,
        br_mcast_query_response_intvl=_QUERY_RESPONSE,
        br_mcast_startup_query_intvl=_STARTUP_QUERY,
        br_mcast_query_intvl=_QUERY_INTERVAL,
    )
    route.link("set", index=_index(route, BRIDGE), kind="bridge", br_mcast_querier=int(step.querier))


@_do.register
def _(step: MakePair, route: Any, names: Names) -> None:
    with namespaces.path_of(names(step.peer)).open() as peer_namespace:
        peer: dict[str, object] = {"ifname": step.peer_interface, "mtu": step.mtu}
        mine: dict[str, object] = {"ifname": step.interface, "mtu": step.mtu}
        for settings, mac in ((peer, step.peer_mac), (mine, step.mac)):
            if mac:
                settings["address"] = mac
        route.link("add", kind="veth", peer={**peer, "net_ns_fd": peer_namespace.fileno()}, **mine)


@_do.register
def _(step: TurnOffloadsOff, route: Any, names: Names) -> None:
    namespaces.turn_offloads_off(step.interface)


@_do.register
def _(step: Shape, route: Any, names: Names) -> None:
    bytes_per_second = step.rate // 8
    burst = max(_LEAST_BURST, int(bytes_per_second * _BURST_SECONDS))
    limit = burst + max(_LEAST_BURST, int(bytes_per_second * _QUEUE_SECONDS))
    index = _index(route, step.interface)
    route.tc("replace", "tbf", index, rate=bytes_per_second, burst=burst, limit=limit)


@_do.register
def _(step: Plug, route: Any, names: Names) -> None:
    namespaces.write_setting(f"net/ipv6/conf/{step.interface}/disable_ipv6", "1")  # a port is not a host
    route.link("set", index=_index(route, step.interface), master=_index(route, BRIDGE))


@_do.register
def _(step: SetAddress, route: Any, names: Names) -> None:
    address, _, length = step.address.partition("/")
    # Without the flag an IPv6 address cannot be bound before the kernel has noticed that the link is up.
    more = {"flags": _NO_DAD} if ":" in address else {}
    route.addr("add", index=_index(route, step.interface), address=address, prefixlen=int(length), **more)


@_do.register
def _(step: AddNeighbour, route: Any, names: Names) -> None:
    index = _index(route, step.interface)
    route.neigh("add", dst=step.address, lladdr=step.mac, ifindex=index, state=_PERMANENT)


@_do.register
def _(step: SetUp, route: Any, names: Names) -> None:
    route.link("set", index=_index(route, step.interface), state="up")


@_do.register
def _(step: AwaitUp, route: Any, names: Names) -> None:
    deadline = time.monotonic() + _UP_SECONDS
    while missing := [i for i in step.interfaces if route.link("get", ifname=i)[0].get("operstate") != "UP"]:
        if time.monotonic() > deadline:
            raise OSError(errno.ENETDOWN, f"{', '.join(missing)} of {step.node} have no carrier")
        time.sleep(0.01)


@_do.register
def _(step: AddRoute, route: Any, names: Names) -> None:
    where = {"gateway": step.via} if step.via else {}
    route.route("add", dst=step.destination, oif=_index(route, step.interface), **where)
