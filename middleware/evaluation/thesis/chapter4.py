"""Figures 4.5 to 4.8: hops, hybrids of hops and stored trees, trees, destinations; and their costs of churn.

A jellyfish of 256 switches with a host each. A hybrid 80:20 reaches 80 % of the receivers by hops and 20 % by
a stored tree. Every host may publish, and stores one tree for the receivers of one notification.
"""

from __future__ import annotations

from typing import Any

from ...routing.forwarding import simulate
from ...routing.network import Network
from ...routing.schemes.destinations import Destinations
from ...routing.schemes.hops import Hops
from ...routing.schemes.stored import Hybrid, publisher_tree, replacements
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value
from .chapter3 import network_of, pick

SWITCHES = 256
SHARES = (10, 30, 60)
PAYLOADS = (50, 250, 500)
# Share of receivers that a stored tree reaches, in per cent.
HYBRIDS = {"80:20": 20, "60:40": 40, "40:60": 60, "20:80": 80}
STRATEGIES = ("HOPS", *HYBRIDS, "TREE", "DEST")
RUNS = 5
COLUMNS = ("receivers %", "strategy", "header bytes", "rules", *(f"KB, {payload} B" for payload in PAYLOADS))


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(share,) for share in SHARES]


def work(options: Options, task: Task) -> list[Row]:
    network, share = network_of(options.seed, SWITCHES), task.point[0]
    source, receivers = pick(options, network, share, task.run)
    tree = publisher_tree(network, source, receivers)
    rows = []
    for name in STRATEGIES:
        scheme, stack, rules = _scheme(network, source, receivers, tree, name)
        outcome = simulate(network, scheme, source, stack)
        row: Row = {"receivers %": share, "strategy": name, "rules": rules}
        row["header bytes"] = scheme.size(stack)
        for payload in PAYLOADS:
            row[f"KB, {payload} B"] = (outcome.bytes + payload * outcome.packets) / 1000
        rows.append(row)
    return rows


def _scheme(
    network: Network, source: int, receivers: list[int], tree: int, name: str
) -> tuple[Any, list[Any], int]:
    """Returns a scheme, its stack and the rules on all switches: for hops one per port."""
    ports = sum(len(network.out[switch]) for switch in network.switches)
    if name == "HOPS":
        hops = Hops(network)
        return hops, hops.encode(source, tree), ports
    if name == "DEST":
        destinations = Destinations(network)
        return destinations, destinations.encode(source, tree), destinations.rule_count
    hybrid = Hybrid(network)
    stable = receivers[: round(HYBRIDS.get(name, 100) / 100 * len(receivers))]
    potential = publisher_tree(network, source, receivers)
    hybrid.subscribe(source, potential, stable)
    return hybrid, hybrid.encode(source, potential), ports + hybrid.stored.rule_count


def _at(rows: list[Row], column: str, share: int, strategy: str) -> float:
    return value(rows, column, **{"receivers %": share, "strategy": strategy})


def header_checks(rows: list[Row]) -> list[Check]:
    tree = {_at(rows, "header bytes", share, "TREE") for share in SHARES}
    between = all(
        _at(rows, "header bytes", s, "TREE")
        < _at(rows, "header bytes", s, n)
        < _at(rows, "header bytes", s, "HOPS")
        for s in SHARES
        for n in ("20:80", "40:60", "60:40", "DEST")
    )
    return [
        Check(
            "the tree strategy has the shortest header, of one label whatever the receivers",
            tree == {4.0},
            f"{tree} bytes",
        ),
        Check("hybrids and destinations lie between tree and hops", between, "at 10, 30 and 60 %"),
    ]


def rule_checks(rows: list[Row]) -> list[Check]:
    most = _at(rows, "rules", 60, "DEST")
    grows = [_at(rows, "rules", share, "TREE") for share in SHARES]
    return [
        Check("destinations need a rule per switch and host: 256 * 256", most == 256 * 256, f"{most:,.0f}"),
        Check("rules of the tree strategy grow with the receivers", grows == sorted(grows), f"{grows}"),
        Check(
            "hops need the fewest",
            all(
                _at(rows, "rules", s, "HOPS") <= _at(rows, "rules", s, n) for s in SHARES for n in STRATEGIES
            ),
            f"{_at(rows, 'rules', 60, 'HOPS'):,.0f}",
        ),
    ]


def load_checks(rows: list[Row]) -> list[Check]:
    seen = {name: _at(rows, "KB, 50 B", 30, name) for name in STRATEGIES}
    mixed = [seen[name] for name in HYBRIDS]
    text = ", ".join(f"{name} {amount:.1f}" for name, amount in seen.items())
    return [
        Check("the tree strategy has the lowest load", seen["TREE"] == min(seen.values()), text + " KB"),
        Check("the hybrid 80:20 has the highest load", seen["80:20"] == max(seen.values()), text + " KB"),
        Check(
            "hybrids load less the more receivers the tree reaches",
            mixed == sorted(mixed, reverse=True),
            text,
        ),
    ]


def _finish(options: Options, rows: list[Row], name: str, title: str, ys: tuple[str, ...]) -> Result:
    found = averages(rows, COLUMNS[:2], COLUMNS[2:])
    checks = {"thesis-fig4.5": header_checks, "thesis-fig4.6": rule_checks, "thesis-fig4.7": load_checks}
    shown = found if name != "thesis-fig4.7" else [row for row in found if row["receivers %"] == 30]
    plots = tuple(Plot("receivers %", y, "strategy", kind="bars") for y in ys)
    return Result(name, title, (*COLUMNS[:2], *ys), shown, checks[name](found), [], plots)


def finish_header(options: Options, rows: list[Row]) -> Result:
    return _finish(options, rows, "thesis-fig4.5", "initial header size", ("header bytes",))


def finish_rules(options: Options, rows: list[Row]) -> Result:
    return _finish(options, rows, "thesis-fig4.6", "installed flow rules", ("rules",))


def finish_load(options: Options, rows: list[Row]) -> Result:
    ys = tuple(f"KB, {payload} B" for payload in PAYLOADS)
    return _finish(options, rows, "thesis-fig4.7", "network traffic at 30 % receivers", ys)


CHANGED = tuple(range(10, 101, 10))


def churn_points(options: Options) -> list[tuple[Any, ...]]:
    return [("HEAD",), ("RULE",), ("RAND",)]


def churn_work(options: Options, task: Task) -> list[Row]:
    """Measures one 30:70 hybrid, all of whose subscribers are replaced one after another."""
    network, order = network_of(options.seed, SWITCHES), task.point[0]
    rng = rng_of(options, "churn", task.run)
    source, *others = rng.sample(network.hosts, len(network.hosts))
    count = round(0.3 * len(network.hosts))
    subscribers, newcomers = others[:count], others[count : 2 * count]
    stable = round(0.7 * count)
    places = list(range(count))
    if order == "HEAD":
        places = [*places[stable:], *places[:stable]]
    elif order == "RAND":
        rng.shuffle(places)
    # Every place gets the same newcomer whatever the order, so that all end with the same subscribers.
    arriving = [newcomers[place] for place in places]
    spent = replacements(network, source, subscribers[:stable], arriving, places)
    return [
        {"changed %": share, "order": order, "changed rules": spent[round(share / 100 * count) - 1]}
        for share in CHANGED
    ]


def churn_finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, ("changed %", "order"), ("changed rules",))
    at = {
        (share, order): value(found, "changed rules", **{"changed %": share, "order": order})
        for share in CHANGED
        for order in ("HEAD", "RULE", "RAND")
    }
    between = all(at[s, "HEAD"] <= at[s, "RAND"] <= at[s, "RULE"] for s in CHANGED[:-1])
    ends = [at[100, order] for order in ("HEAD", "RULE", "RAND")]
    checks = [
        Check("HEAD changes no rules up to 30 %", at[30, "HEAD"] == 0, f"{at[30, 'HEAD']:.0f} at 30 %"),
        Check(
            "RAND lies between HEAD and RULE",
            between,
            f"at 30 %: {at[30, 'RAND']:.0f} of {at[30, 'RULE']:.0f}",
        ),
        Check("all three come to about the same", max(ends) <= 1.05 * min(ends), f"{ends}"),
    ]
    plots = (Plot("changed %", "changed rules", "order"),)
    return Result(
        "thesis-fig4.8",
        "modified flow rules",
        ("changed %", "order", "changed rules"),
        found,
        checks,
        [],
        plots,
    )


FIGURES = (
    Figure("thesis-fig4.5", "initial header size", RUNS, points, work, finish_header),
    Figure("thesis-fig4.6", "installed flow rules", RUNS, points, work, finish_rules),
    Figure("thesis-fig4.7", "network traffic", RUNS, points, work, finish_load),
    Figure(
        "thesis-fig4.8",
        "modified flow rules on subscriber changes",
        RUNS,
        churn_points,
        churn_work,
        churn_finish,
    ),
)
