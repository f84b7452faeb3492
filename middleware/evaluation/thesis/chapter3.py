"""Figures 3.10 to 3.12: header size, bytes and look-ups of switch/port, switch/bitmask and switch/group.

A jellyfish of 255 switches with a host each. Neither its degree nor the construction of trees is given.
Bitmask stacks become shorter than port stacks when receivers outnumber half of the tree's switches. Among the
tried settings, 3 links per switch and shortest-path trees cross where the thesis does (4 links: at 22 %;
Steiner trees: below 20 %).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...routing.forwarding import simulate
from ...routing.network import Network
from ...routing.schemes.stored import publisher_tree
from ...routing.schemes.switch_bitmask import SwitchBitmask
from ...routing.schemes.switch_group import SwitchGroup
from ...routing.schemes.switch_port import SwitchPort
from ...routing.topologies import jellyfish
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value

SWITCHES = 255
DEGREE = 3
SHARES = tuple(range(10, 100, 10))
PAYLOADS = (50, 500)
RUNS = 10


@lru_cache(maxsize=4)
def network_of(seed: int, switches: int = SWITCHES) -> Network:
    return jellyfish(switches, DEGREE, rng_of(Options(seed=seed), "jellyfish", switches))


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(share,) for share in SHARES]


def pick(options: Options, network: Network, share: int, run: int) -> tuple[int, list[int]]:
    """Returns a publisher and its receivers: the same for every scheme."""
    source, *others = rng_of(options, "clients", share, run).sample(network.hosts, len(network.hosts))
    return source, others[: round(share / 100 * len(network.hosts))]


def work(options: Options, task: Task) -> list[Row]:
    network, share = network_of(options.seed), task.point[0]
    source, receivers = pick(options, network, share, task.run)
    tree = publisher_tree(network, source, receivers)
    schemes: dict[str, Any] = {
        "switch/port": SwitchPort(network),
        "switch/port, reactive": SwitchPort(network, predictive=False),
        "switch/bitmask": SwitchBitmask(network),
        "switch/mc-group": SwitchGroup(network),
    }
    rows = []
    for name, scheme in schemes.items():
        stack = scheme.encode(source, tree)
        outcome = simulate(network, scheme, source, stack)
        row: Row = {"receivers %": share, "scheme": name, "header bytes": scheme.size(stack)}
        for payload in PAYLOADS:
            row[f"KB, {payload} B"] = (outcome.bytes + payload * outcome.packets) / 1000
        row["look-ups"] = sum(outcome.lookups.values())
        rows.append(row)
    return rows


COLUMNS = ("receivers %", "scheme", "header bytes", "KB, 50 B", "KB, 500 B", "look-ups")


def _result(options: Options, rows: list[Row], name: str, title: str, ys: tuple[str, ...]) -> Result:
    found = averages(rows, COLUMNS[:2], COLUMNS[2:])
    checks = {"thesis-fig3.10": header_checks, "thesis-fig3.11": byte_checks, "thesis-fig3.12": lookup_checks}
    notes = [
        f"jellyfish of {SWITCHES} switches, {DEGREE} links each; shortest-path trees; a count of 2 bytes"
    ]
    plots = tuple(Plot("receivers %", y, "scheme") for y in ys)
    return Result(name, title, ("receivers %", "scheme", *ys), found, checks[name](found), notes, plots)


def header_checks(rows: list[Row]) -> list[Check]:
    shorter = [
        share
        for share in SHARES
        if value(rows, "header bytes", **{"receivers %": share, "scheme": "switch/bitmask"})
        < value(rows, "header bytes", **{"receivers %": share, "scheme": "switch/port"})
    ]
    return [
        Check(
            "switch/bitmask and switch/mc-group headers are shorter than switch/port above about 30 % only",
            bool(shorter)
            and 30 <= min(shorter) <= 40
            and shorter == list(SHARES[SHARES.index(shorter[0]) :]),
            f"shorter from {min(shorter, default=100)} % on",
        )
    ]


def byte_checks(rows: list[Row]) -> list[Check]:
    worse = [
        (share, payload)
        for share in SHARES
        for payload in PAYLOADS
        for scheme in ("switch/port, reactive", "switch/bitmask", "switch/mc-group")
        if value(rows, f"KB, {payload} B", **{"receivers %": share, "scheme": scheme})
        < value(rows, f"KB, {payload} B", **{"receivers %": share, "scheme": "switch/port"})
    ]
    return [
        Check(
            "predictive pruning sends the fewest bytes at all shares", not worse, f"{len(worse)} exceptions"
        )
    ]


def lookup_checks(rows: list[Row]) -> list[Check]:
    order = ("switch/mc-group", "switch/bitmask", "switch/port")
    seen = [
        [value(rows, "look-ups", **{"receivers %": share, "scheme": scheme}) for scheme in order]
        for share in SHARES
    ]
    holds = all(group <= bitmask < port for group, bitmask, port in seen)
    return [
        Check(
            "switch/port needs the most look-ups, switch/mc-group the fewest",
            holds,
            "at 50 %: " + ", ".join(f"{n} {v:,.0f}" for n, v in zip(order, seen[4], strict=True)),
        )
    ]


def finish_header(options: Options, rows: list[Row]) -> Result:
    return _result(options, rows, "thesis-fig3.10", "initial header size", ("header bytes",))


def finish_bytes(options: Options, rows: list[Row]) -> Result:
    return _result(options, rows, "thesis-fig3.11", "transmitted bytes", ("KB, 50 B", "KB, 500 B"))


def finish_lookups(options: Options, rows: list[Row]) -> Result:
    return _result(options, rows, "thesis-fig3.12", "table look-ups", ("look-ups",))


FIGURES = (
    Figure("thesis-fig3.10", "initial header size", RUNS, points, work, finish_header),
    Figure("thesis-fig3.11", "transmitted bytes", RUNS, points, work, finish_bytes),
    Figure("thesis-fig3.12", "table look-ups", RUNS, points, work, finish_lookups),
)
