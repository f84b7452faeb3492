"""The state of an SRv6 router that follows trees: a `SwitchState` of p4/srv6_replication.p4. Pure.

A router has a locator, one SID for each replication segment, and these, which never change:

    ENDS                End: packets that are kept on a path (`routing.replication.ways`) come by it
    UNPACKS             End.DT6: the end of such a path
    HANDS_OVER + port   End.DX6 to the host at a port
    CROSSES + port      End.X over the link at a port
    CONTROLLER          End.DX6 to the controller, for probes of links (`probing`)

Segments get a multicast group, and each of their branches the number of a replica. The function of their SIDs
is (run << SEGMENT_BITS) + the segment's number. A run is one life of a controller: so a SID of an earlier
one, which packets may still carry, is never given to another segment.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from treecast.middleware.control.links.probes import CPU_PORT
from treecast.middleware.control.switches import SwitchState
from treecast.middleware.dataplane.p4 import ActionCall, Entry, ExactMatch, LpmMatch, MulticastGroup, Replica
from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.segments import LOCAL, Branch, Segment
from treecast.middleware.routing.replication.ways import Pin, Ways
from treecast.middleware.wire.srv6_sids import Layout, Sid

ENDS: Final = 1
UNPACKS: Final = 2
CONTROLLER: Final = 3
HANDS_OVER: Final = 0x1000
CROSSES: Final = 0x2000
LINK_COUNTER: Final = "Srv6Egress.links"  # packets and bytes sent, by port
SEGMENT_BITS: Final = 18  # of a segment's number; the run has those above
MOST_RUNS: Final = 1 << 32 - SEGMENT_BITS
_MOST_NUMBER: Final = 0xFFFF  # of a group, and of a replica
_INGRESS: Final = "Srv6Ingress"
_EGRESS: Final = "Srv6Egress"
_ROUTES: Final = f"{_INGRESS}.routes"

Entries = list[tuple[str, Entry]]


class Plan(Struct, frozen=True):
    """The network and its addresses. `macs` and `hosts`: of hosts, by node; `run`: from 1."""

    network: Network
    paths: Paths
    layout: Layout
    macs: Mapping[int, int]
    hosts: Mapping[int, int]  # addresses of IPv6
    run: int

    def sid(self, node: int, function: int) -> int:
        return int.from_bytes(self.layout.encode(Sid(node + 1, function)))

    def sid_of(self, branch: Branch) -> int:
        """A replication SID, or of a leaf the SID by which its router hands packets to it."""
        if branch.segment != LOCAL:
            return self.sid(branch.node, self.function(branch.segment))
        link = self.network.out[branch.node][0] ^ 1
        return self.sid(self.network.tails[link], HANDS_OVER + self.network.ports[link])

    def function(self, segment: int) -> int:
        """RoutingError where a run has made too many segments: begin another."""
        if segment >> SEGMENT_BITS:
            raise RoutingError(f"segment {segment}: a run has room for {1 << SEGMENT_BITS}; start anew")
        return (self.run << SEGMENT_BITS) + segment


class RouterState:
    """One router's. `ways` tell the present routes."""

    def __init__(self, plan: Plan, ways: Ways, node: int) -> None:
        self._plan = plan
        self._ways = ways
        self._node = node
        self._found = SwitchState()  # what it held before this run
        self._segments: dict[int, tuple[Segment, int, dict[Branch, int]]] = {}

    def hold(self, segment: Segment) -> None:
        """RoutingError where its numbers have run out."""
        numbers = self._replicas_used()
        replicas: dict[Branch, int] = {}
        for branch in segment.branches:
            replicas[branch] = _free(numbers, "branches")
            numbers.add(replicas[branch])
        groups = {group for _, group, _ in self._segments.values()} | set(self._found.groups)
        self._segments[segment.number] = segment, _free(groups, "segments"), replicas

    def drop(self, number: int) -> None:
        """It need not be there."""
        self._segments.pop(number, None)

    def keep(self, found: SwitchState) -> None:
        """Keeps what it held before this run, but for routes, until `forget`. Segments get other numbers."""
        held = [segment for segment, _, _ in self._segments.values()]
        self._segments.clear()
        self._found = found
        for segment in held:
            self.hold(segment)

    def forget(self) -> None:
        """Drops state from before this run."""
        self._found = SwitchState()

    def _replicas_used(self) -> set[int]:
        used = {number for _, _, replicas in self._segments.values() for number in replicas.values()}
        before = [replica.instance for group in self._found.groups.values() for replica in group.replicas]
        return used | set(before)

    def state(self) -> SwitchState:
        own = SwitchState.of(
            entries=[*self._routes(), *self._permanent(), *self._deliveries(), *self._replications()],
            groups=[self._group(number) for number in self._segments],
        )
        kept = {key: entry for key, entry in self._found.entries.items() if key.table != _ROUTES}
        return SwitchState(entries={**kept, **own.entries}, groups={**self._found.groups, **own.groups})

    def _routes(self) -> Entries:
        """To all routers by locators and to all hosts by addresses, as far as links lead there."""
        plan, bits = self._plan, self._plan.layout.locator_bits
        targets = [(plan.sid(node, 0), bits, node) for node in plan.network.switches if node != self._node]
        targets += [(address, 128, host) for host, address in plan.hosts.items()]
        found = [_route(plan.sid(self._node, 0), bits, ActionCall(f"{_INGRESS}.local", {}))]
        for address, length, target in targets:
            way = self._ways.path(self._node, target)
            if way is not None:
                found.append(_route(address, length, self._over("leave", way[0])))
        return found

    def _permanent(self) -> Entries:
        """The SIDs by which packets come that are kept on a path, and probes."""
        plan, found = self._plan, []
        for function, action in ((ENDS, "end"), (UNPACKS, "end_dt6")):
            found.append(_sid(plan.sid(self._node, function), ActionCall(f"{_INGRESS}.{action}", {})))
        for link in plan.network.out[self._node]:
            sid = plan.sid(self._node, CROSSES + plan.network.ports[link])
            found.append(_sid(sid, self._over("end_x", link)))
        call = ActionCall(f"{_INGRESS}.end_dx6", {"port": CPU_PORT, "own": 0, "next_hop": 0})
        return [*found, _sid(plan.sid(self._node, CONTROLLER), call)]

    def _over(self, action: str, link: int) -> ActionCall:
        port = self._plan.network.ports[link]
        return ActionCall(f"{_INGRESS}.{action}", {"port": port, **self._macs(link)})

    def _macs(self, link: int) -> dict[str, int]:
        """Routers take frames for whatever address; hosts take their own."""
        own = 0x02_5E_00_00_00_00 + (self._node << 8) + self._plan.network.ports[link]
        head = self._plan.network.heads[link]
        return {"own": own, "next_hop": self._plan.macs.get(head, 0x02_5E_00_00_00_00 + (head << 8))}

    def _deliveries(self) -> Entries:
        network, found = self._plan.network, []
        for link in network.out[self._node]:
            if network.is_host[network.heads[link]]:
                sid = self._plan.sid(self._node, HANDS_OVER + network.ports[link])
                found.append(_sid(sid, self._over("end_dx6", link)))
        return found

    def _replications(self) -> Entries:
        found: Entries = []
        for number, (_, group, replicas) in self._segments.items():
            sid = self._plan.sid(self._node, self._plan.function(number))
            found.append(_sid(sid, ActionCall(f"{_INGRESS}.end_replicate", {"group": group})))
            for branch, replica in replicas.items():
                key = {"standard.egress_rid": ExactMatch(replica)}
                found.append((f"{_EGRESS}.branches", Entry(dict(key), self._branch(branch))))
        return found

    def _branch(self, branch: Branch) -> ActionCall:
        macs = self._macs(branch.way[0])
        if len(branch.way) == 1 and branch.segment == LOCAL:
            return ActionCall(f"{_EGRESS}.deliver", macs)
        pin = self._ways.pinned(branch)
        onward = {**macs, "sid": self._plan.sid_of(branch)}
        if pin is None:
            return ActionCall(f"{_EGRESS}.onward", onward)
        return ActionCall(f"{_EGRESS}.around", {**onward, **self._around(pin, branch)})

    def _around(self, pin: Pin, branch: Branch) -> dict[str, int]:
        """The outer header that keeps a copy on its path, by two SIDs."""
        plan = self._plan
        function = ENDS if pin.link < 0 else CROSSES + plan.network.ports[pin.link]
        last = plan.sid(plan.network.switch_of(branch.node), UNPACKS)
        return {"source": plan.sid(self._node, ENDS), "via": plan.sid(pin.node, function), "last": last}

    def _group(self, number: int) -> MulticastGroup:
        _, group, replicas = self._segments[number]
        ports = self._plan.network.ports
        return MulticastGroup(
            group, tuple([Replica(ports[branch.way[0]], one) for branch, one in replicas.items()])
        )


def host_address(text: str) -> int:
    """RoutingError where it is no address of IPv6."""
    try:
        return int(ipaddress.IPv6Address(text))
    except ValueError as error:
        raise RoutingError(f"{text!r} is no address of IPv6") from error


def _route(address: int, bits: int, call: ActionCall) -> tuple[str, Entry]:
    return _ROUTES, Entry({"meta.destination": LpmMatch(address, bits)}, call)


def _sid(sid: int, call: ActionCall) -> tuple[str, Entry]:
    return f"{_INGRESS}.sids", Entry({"hdr.ipv6.dst": ExactMatch(sid)}, call)


def _free(used: set[int], what: str) -> int:
    for number in range(1, _MOST_NUMBER + 1):
        if number not in used:
            return number
    raise RoutingError(f"a router has no room for more {what}")
