"""Figures 3.13 to 3.15: switch/port ("P4") against OpenFlow multicast, three kinds of application-layer
multicast, unicast and broadcast, on the network of figures 3.10 to 3.12.

Packets and bytes are counted on the trees; delays follow the thesis' model: 0.1 ms to feed a packet in at a
publisher or broker, 0.1 ms in a switch, 2 ms in a broker, 0.01 ms for a pass through a switch's control flow.
"""

from __future__ import annotations

from ...routing.forwarding import ETHERNET, Outcome, simulate
from ...routing.network import Network
from ...routing.rooted import distances
from ...routing.schemes.common import below
from ...routing.schemes.stored import publisher_tree
from ...routing.schemes.switch_port import SwitchPort
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, value
from .chapter3 import RUNS, SHARES, network_of, pick, points

FEED, SWITCH, BROKER, PASS = 0.1, 0.1, 2.0, 0.01
PAYLOAD = 50
COLUMNS = ("receivers %", "strategy", "packets", "KB", "worst delay ms")
ALM = ("ALM on all nodes", "ALM on fork nodes", "ALM with mc-groups")


def work(options: Options, task: Task) -> list[Row]:
    network, share = network_of(options.seed), task.point[0]
    source, receivers = pick(options, network, share, task.run)
    tree = publisher_tree(network, source, receivers)
    ports = SwitchPort(network)
    outcome = simulate(network, ports, source, ports.encode(source, tree))
    frame = ETHERNET + PAYLOAD
    far = distances(network, source)
    everyone = [host for host in network.hosts if host != source]
    broadcast = publisher_tree(network, source, everyone)
    links = tree.bit_count()
    found: dict[str, tuple[float, float, float]] = {
        "P4": (
            outcome.packets,
            outcome.bytes + PAYLOAD * outcome.packets,
            _p4_delay(network, source, tree, outcome),
        ),
        "OpenFlow multicast": (links, links * frame, FEED + SWITCH * _depth(network, source, tree)),
        "broadcast": (
            broadcast.bit_count(),
            broadcast.bit_count() * frame,
            FEED + SWITCH * _depth(network, source, broadcast),
        ),
    }
    unicast = sum(far[receiver] for receiver in receivers)
    last = max(far[receiver] for receiver in receivers) - 1
    found["unicast"] = (unicast, unicast * frame, FEED * len(receivers) + SWITCH * last)
    for name in ALM:
        extra, delay = _alm(network, source, tree, name)
        found[name] = (links + extra, (links + extra) * frame, delay)
    return [
        {"receivers %": share, "strategy": name, "packets": p, "KB": b / 1000, "worst delay ms": d}
        for name, (p, b, d) in found.items()
    ]


def _depth(network: Network, source: int, tree: int) -> int:
    """Returns the most switches on a way from the publisher."""
    return int(max(_along(network, source, tree, dict.fromkeys(network.switches, 1.0)).values()))


def _along(network: Network, source: int, tree: int, cost: dict[int, float]) -> dict[int, float]:
    """Returns, for every host of the tree, the sum of its switches' costs."""
    found: dict[int, float] = {}
    sums = {network.switch_of(source): 0.0}
    for switch, links in below(network, source, tree).items():
        so_far = sums[switch] + cost[switch]
        for link in links:
            head = network.heads[link]
            (found if network.is_host[head] else sums)[head] = so_far
    return found


def _p4_delay(network: Network, source: int, tree: int, outcome: Outcome) -> float:
    """Returns the delays. A copy leaves after one pass per entry of the received stack: those that the packet
    passed before the copy was made, and those behind that the copy passed to be pruned.
    """
    arrived = {network.heads[link]: size for link, size in outcome.link_bytes.items()}
    entries = {node: (size - ETHERNET - 2) / 2 for node, size in arrived.items()}
    cost = {switch: SWITCH + PASS * entries.get(switch, 0) for switch in below(network, source, tree)}
    return FEED + max(_along(network, source, tree, cost).values())


def _alm(network: Network, source: int, tree: int, name: str) -> tuple[int, float]:
    """Returns the packets between switches and brokers, and the worst delay."""
    cost: dict[int, float] = {}
    extra = 0
    for switch, links in below(network, source, tree).items():
        copies = len(links)
        if name != ALM[0] and copies < 2:
            cost[switch] = SWITCH
            continue
        back = 1 if name == ALM[2] else copies
        extra += 1 + back
        cost[switch] = SWITCH + BROKER + FEED * back + SWITCH
    return extra, FEED + max(_along(network, source, tree, cost).values())


def _at(rows: list[Row], column: str, share: int, strategy: str) -> float:
    return value(rows, column, **{"receivers %": share, "strategy": strategy})


def packet_checks(rows: list[Row]) -> list[Check]:
    least = all(
        _at(rows, "packets", s, "P4") == _at(rows, "packets", s, "OpenFlow multicast") for s in SHARES
    )
    until = [
        s for s in SHARES if _at(rows, "packets", s, "unicast") < _at(rows, "packets", s, "ALM on all nodes")
    ]
    order = all(
        _at(rows, "packets", s, ALM[2]) <= _at(rows, "packets", s, ALM[1]) <= _at(rows, "packets", s, ALM[0])
        for s in SHARES
    )
    return [
        Check("P4 and OpenFlow multicast both send the fewest packets", least, "equal at all shares"),
        Check(
            "unicast sends fewer packets than ALM on all nodes below 80 %",
            until == [*SHARES[:7]],
            f"at {until}",
        ),
        Check("of the ALM kinds mc-groups send the fewest and all nodes the most", order, "at all shares"),
    ]


def byte_checks(rows: list[Row]) -> list[Check]:
    ratios = [_at(rows, "KB", s, "P4") / _at(rows, "KB", s, "OpenFlow multicast") for s in SHARES]
    gaps = [_at(rows, "KB", s, "P4") - _at(rows, "KB", s, "OpenFlow multicast") for s in SHARES]
    return [
        Check(
            "P4 sends more bytes than OpenFlow multicast, the more the more receivers there are",
            gaps[0] > 0 and gaps == sorted(gaps),
            f"{gaps[0]:.1f} KB more at {SHARES[0]} %, {gaps[-1]:.1f} KB more at {SHARES[-1]} %",
        ),
        Check(
            "P4 sends marginally more bytes than OpenFlow multicast (here: no more than 1.5 times)",
            max(ratios) <= 1.5,
            f"at most {max(ratios):.2f} times, payload {PAYLOAD} B",
        ),
    ]


def delay_checks(rows: list[Row]) -> list[Check]:
    best = all(
        _at(rows, "worst delay ms", s, "OpenFlow multicast") <= _at(rows, "worst delay ms", s, "P4")
        for s in SHARES
    )
    worst = all(
        _at(rows, "worst delay ms", s, ALM[0]) > max(_at(rows, "worst delay ms", s, n) for n in ALM[1:])
        for s in SHARES
    )
    below_alm = [
        s
        for s in SHARES
        if _at(rows, "worst delay ms", s, "unicast") < min(_at(rows, "worst delay ms", s, n) for n in ALM)
    ]
    eighty = _at(rows, "worst delay ms", 80, "unicast")
    return [
        Check("OpenFlow multicast is faster than P4", best, "at all shares"),
        Check("ALM on all nodes is the slowest ALM", worst, "at all shares"),
        Check(
            "unicast is faster than all ALM kinds below 50 %", below_alm == [*SHARES[:4]], f"at {below_alm}"
        ),
        Check(
            "at 80 % unicast feeds 204 packets in for 20.4 ms", 20.4 <= eighty < 22, f"{eighty:.1f} ms in all"
        ),
    ]


def _finish(options: Options, rows: list[Row], name: str, title: str, y: str) -> Result:
    found = averages(rows, COLUMNS[:2], COLUMNS[2:])
    checks = {"packets": packet_checks, "KB": byte_checks, "worst delay ms": delay_checks}[y](found)
    notes = [f"payload {PAYLOAD} B; no cable delays and no queues, as in the thesis"]
    return Result(name, title, (*COLUMNS[:2], y), found, checks, notes, (Plot("receivers %", y, "strategy"),))


def finish_packets(options: Options, rows: list[Row]) -> Result:
    return _finish(options, rows, "thesis-fig3.13", "transmitted packets", "packets")


def finish_bytes(options: Options, rows: list[Row]) -> Result:
    return _finish(options, rows, "thesis-fig3.14", "transmitted bytes", "KB")


def finish_delay(options: Options, rows: list[Row]) -> Result:
    return _finish(options, rows, "thesis-fig3.15", "worst-case delay", "worst delay ms")


FIGURES = (
    Figure("thesis-fig3.13", "transmitted packets", RUNS, points, work, finish_packets),
    Figure("thesis-fig3.14", "transmitted bytes", RUNS, points, work, finish_bytes),
    Figure("thesis-fig3.15", "worst-case delay", RUNS, points, work, finish_delay),
)
