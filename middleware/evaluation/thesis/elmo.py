"""Header sizes and rules beside Elmo's, on a Clos network.

Elmo: Source Routed Multicast for Public Clouds, Shahbaz et al., SIGCOMM 2019, and IEEE/ACM Transactions on
Networking 28(6), 2020. Its published numbers (both abstracts) are of 27,648 hosts in 12 pods of 48 racks of
48 hosts and of a million groups, so they have a row of their own: labels of 14 bits cannot name the links of
that network. The others are measured on one with a sixth of its racks in each pod, among them Elmo's own
encoding without rules in switches and without a copy too many. Its layout is that of the headers and parsers
of the authors' P4 programs (github.com/Elmo-MCast/p4-programs), without VXLAN, in bits:

    type 1
    the publisher's rack:  its hosts | its ways up | any of these 1 | a pod follows 1
    the publisher's pod:   its racks | its ways up | any of these 1 | the core follows 1
    the core:              pods
    other pods, racks:     default follows 1, and for each different bitmap
                           bitmap | another bitmap follows 1, and for each of its switches
                           id | another id follows 1

A part is left out where nothing needs it. The programs leave out the flags of the last bitmap and id that a
fixed parser has room for; here as many as a group needs share a bitmap, as in the authors' own sums
(`header_size` in github.com/Elmo-MCast/numerical-evals; these leave the flags of the upper parts out and
count all of these parts always).

Groups are drawn as these draw "WVE": 3,000 tenants of 10 to 5,000 machines, here no more than there is room
for, each with groups by its size; a group's size is of a gamma distribution over its tenant's, 5 at least, a
fiftieth of all are nearly the whole tenant. A tenant fills racks of a pod before it goes to the next, with at
most 12 machines in each; here they are on different hosts.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log2
from random import Random
from typing import Any

from ...routing.bits import members
from ...routing.network import Network, RoutingError
from ...routing.topologies import facebook_fabric
from ...routing.virtual.encoder import hop_minimal
from ...routing.virtual.rules import RuleBase
from ...routing.virtual.stacks import Request, check_ids, request
from ...routing.virtual.strategies import STRATEGIES, Knowledge, install
from ...wire.label_stack import stack_size
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, mean, rng_of
from .encoding import encoder_of

PODS, RACKS, PLANES, SPINES, MACHINES = 12, 8, 4, 4, 48
GROUPS = 10
RUNS = 3
PER_RACK = 12
TENANTS = 3000
LEAST, MOST = 10, 5000  # machines of a tenant
LIMITS = (10, 40, 160)
COLUMNS = ("encoding", "hosts", "rules/switch", "header bytes", "largest header", "links over ideal %")
PUBLISHED: Row = {
    "encoding": "Elmo, published",
    "hosts": "27,648",
    "rules/switch": "1,100 in racks",
    "header bytes": 114.0,
    "largest header": 325,
    "links over ideal %": 5.0,
}


@lru_cache(maxsize=1)
def clos() -> Network:
    return facebook_fabric(PODS, RACKS, PLANES, SPINES, MACHINES)


def groups(options: Options, run: int) -> list[Request]:
    """Groups of tenants, each of a publisher and its receivers on different machines."""
    network, rng = clos(), rng_of(options, "groups", run)
    tenants = [_tenant(rng) for _ in range(TENANTS)]
    found = []
    for machines in rng.choices(tenants, tenants, k=GROUPS):
        tenant = _placed(network, machines, rng)
        source, *receivers = rng.sample(tenant, _size(len(tenant), rng))
        found.append(request(network, source, receivers))
    return found


def _tenant(rng: Random) -> int:
    """Its machines."""
    if rng.random() < 0.02:
        return rng.randint(LEAST, MOST)
    return int(rng.expovariate(4.05) / 10 * (MOST - LEAST)) % (MOST - LEAST) + LEAST


def _size(tenant: int, rng: Random) -> int:
    if rng.random() < 0.02:
        size = tenant - int(rng.gammavariate(2, 0.1) * tenant / 15)
    else:
        size = int(rng.gammavariate(2, 0.2) * tenant / 15 + 4) % tenant + 1
    return min(tenant, max(5, size))


def _placed(network: Network, machines: int, rng: Random) -> list[int]:
    """Returns a tenant's hosts: pod after pod, there rack after rack, with a limit in each."""
    found: list[int] = []
    for racks in rng.sample(_racks(network), PODS):
        for hosts in rng.sample(racks, RACKS):
            found += rng.sample(hosts, min(PER_RACK, machines - len(found)))
    return found


def _racks(network: Network) -> list[list[list[int]]]:
    """Returns the hosts of every pod and rack."""
    found: list[list[list[int]]] = [[[] for _ in range(RACKS)] for _ in range(PODS)]
    for host in network.hosts:
        pod, rack = _place(network, network.switch_of(host))
        found[pod][rack].append(host)
    return found


def elmo_bytes(asked: Request) -> int:
    """Returns the size of Elmo's header for a group on the Clos network, all of it in the packet."""
    network = clos()
    racks: dict[int, int] = {}  # by switch, its machines as bits
    for host in members(asked.receivers):
        switch = network.switch_of(host)
        racks[switch] = racks.get(switch, 0) | 1 << network.ports[network.out[host][0] ^ 1]
    pods: dict[int, int] = {}
    for rack in racks:
        if rack != asked.start:
            pod, number = _place(network, rack)
            pods[pod] = pods.get(pod, 0) | 1 << number
    own = _place(network, asked.start)[0]
    bits = 1 + MACHINES + PLANES + 2
    if pods:
        bits += RACKS + SPINES + 2
    below = {pod: ports for pod, ports in pods.items() if pod != own}
    if below:
        bits += PODS + _shared(list(below.values()), RACKS, PODS)
    if pods:
        others = [ports for rack, ports in racks.items() if rack != asked.start]
        bits += _shared(others, MACHINES, PODS * RACKS)
    return ceil(bits / 8)


def _place(network: Network, rack: int) -> tuple[int, int]:
    """Returns a rack's pod, and its number there."""
    pod, number = network.names[rack].removeprefix("tor").split(".")
    return int(pod), int(number)


def _shared(bitmaps: list[int], ports: int, switches: int) -> int:
    """Bits of a layer's rules: each different bitmap once, with the ids of its switches behind it."""
    return 1 + len(set(bitmaps)) * (ports + 1) + len(bitmaps) * (ceil(log2(switches)) + 1)


def points(options: Options) -> list[tuple[Any, ...]]:
    return [("Elmo's encoding", 0), ("hops", 0), *(("virtual trees", limit) for limit in LIMITS)]


def work(options: Options, task: Task) -> list[Row]:
    name, limit = task.point
    network, asked = clos(), groups(options, task.run)
    ideal = [hop_minimal(network, one).bit_count() for one in asked]
    if name == "Elmo's encoding":
        return [_row(name, limit, one, elmo_bytes(one), 0.0) for one in asked]
    rng = rng_of(options, "trees", limit, task.run)
    rules = install(network, limit, STRATEGIES["topological"], Knowledge(), rng) if limit else None
    encode = encoder_of("ours", network, rules or RuleBase(network, 0))
    found = [encode(one) for one in asked]
    return [
        _row(name, limit, group, stack_size(one.label_count), 100 * (one.edges.bit_count() / least - 1))
        for group, one, least in zip(asked, found, ideal, strict=True)
    ]


def _row(name: str, limit: int, group: Request, size: int, longer: float) -> Row:
    return {
        "encoding": name,
        "rules/switch": limit,
        "receivers": group.receivers.bit_count(),
        "header bytes": size,
        "links over ideal %": longer,
    }


def finish(options: Options, rows: list[Row]) -> Result:
    found = [_summed(name, limit, rows) for name, limit in points(options)]
    best = min(found[2:], key=lambda row: row["header bytes"])
    elmo, hops = found[0], found[1]
    whole = facebook_fabric(PODS, 48, PLANES, SPINES, 48)
    checks = [
        Check(
            "virtual trees need fewer bytes than Elmo's encoding of the same groups",
            best["header bytes"] < elmo["header bytes"],
            f"{best['header bytes']:.0f} with {best['rules/switch']} rules, {elmo['header bytes']:.0f}",
        ),
        Check(
            "virtual trees need fewer bytes than hops",
            best["header bytes"] < hops["header bytes"],
            f"{best['header bytes']:.0f} and {hops['header bytes']:.0f}",
        ),
        Check("labels can name the links of Elmo's whole network", not _refusal(whole), _refusal(whole)),
    ]
    notes = [
        "published: in the abstracts, SIGCOMM 2019 and, of the largest, ToN 28(6) 2020; a million groups",
        f"all others: {len(clos().switches)} switches, {len(rows) // len(found)} groups of "
        f"{mean([row['receivers'] for row in rows]):.0f} receivers on average; our encoder",
        "Elmo's encoding: laid out as in github.com/Elmo-MCast/p4-programs, no rules, no copies too many",
    ]
    plots = (Plot("encoding", "header bytes", "encoding", kind="bars"),)
    shown = [PUBLISHED, *found]
    return Result("thesis-elmo", "headers and rules beside Elmo's", COLUMNS, shown, checks, notes, plots)


def _refusal(network: Network) -> str:
    try:
        check_ids(network)
    except RoutingError as error:
        return str(error)
    return ""


def _summed(name: str, limit: int, rows: list[Row]) -> Row:
    its = [row for row in rows if (row["encoding"], row["rules/switch"]) == (name, limit)]
    sizes = [row["header bytes"] for row in its]
    return {
        "encoding": f"{name}, {limit} rules" if limit else name,
        "hosts": f"{len(clos().hosts):,}",
        "rules/switch": str(limit),
        "header bytes": round(mean(sizes), 1),
        "largest header": max(sizes),
        "links over ideal %": round(mean([row["links over ideal %"] for row in its]), 1),
    }


FIGURES = (Figure("thesis-elmo", "headers and rules beside Elmo's", RUNS, points, work, finish),)
