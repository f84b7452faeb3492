"""Figure 6.9: installation strategies on three networks of the Internet Topology Zoo, without migration."""

from __future__ import annotations

from typing import Any

from ...routing.network import Network
from ...routing.virtual.rules import RuleBase
from ...routing.virtual.stacks import Request
from ...routing.virtual.strategies import STRATEGIES, install
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, mean, rng_of, value
from ..population import SHARE, Population, notifications, scenario
from ..topologies import counts_note, load, named
from .encoding import encoder_of

NETWORKS = ("Litnet", "Dfn", "VtlWavenet2008")
COMPARED = ("hops", "random", "cycles", "frequency-relation", "hybrid", "clusters", "partitions")
LIMITS = (5, 10, 20, 30, 40)
RUNS = 3
NOTIFICATIONS = 5
LABELS = ("hops", "stops", "trees")
COLUMNS = ("network", "strategy", "rules/switch", "labels", *LABELS, "links")


def networks(options: Options) -> tuple[str, ...]:
    """Returns those that are asked for, else the three that the thesis looks at closely."""
    return named(options.topologies, options.topology_dir) or NETWORKS


def measure(
    options: Options,
    network: Network,
    name: str,
    limit: int,
    known: Population,
    asked: list[Request],
    what: object,
) -> Row:
    """Returns the labels per notification of a strategy that knows a population."""
    return encoded(options, network, trees_of(options, network, name, limit, known, what), asked)


def trees_of(
    options: Options, network: Network, name: str, limit: int, known: Population, what: object
) -> RuleBase:
    """Returns the trees of a strategy that knows a population."""
    return install(network, limit, STRATEGIES[name], known.knowledge, rng_of(options, "trees", name, what))


def encoded(options: Options, network: Network, rules: RuleBase, asked: list[Request]) -> Row:
    """Returns the labels per notification with these trees."""
    encode = encoder_of(options.encoder, network, rules)
    found = [encode(one) for one in asked]
    return {
        "labels": sum(one.label_count for one in found) / len(found),
        "hops": sum(len(one.hops) for one in found) / len(found),
        "stops": sum(len(one.stops) for one in found) / len(found),
        "trees": sum(len(one.trees) for one in found) / len(found),
        "links": sum(one.edges.bit_count() for one in found) / len(found),
    }


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(network, name, limit) for network in networks(options) for name in COMPARED for limit in LIMITS]


def work(options: Options, task: Task) -> list[Row]:
    place, name, limit = task.point
    network = load(place, options.topology_dir)
    before, _ = scenario(network, "nearby", SHARE, rng_of(options, "population", place, task.run))
    asked = notifications(network, before, NOTIFICATIONS, rng_of(options, "asked", place, task.run))
    row = measure(options, network, name, limit, before, asked, (place, limit, task.run))
    return [{"network": place, "strategy": name, "rules/switch": limit, **row}]


def _labels(rows: list[Row], network: str, strategy: str, limit: int = 40) -> float:
    return value(rows, "labels", network=network, strategy=strategy, **{"rules/switch": limit})


def checks_of(rows: list[Row], places: tuple[str, ...]) -> list[Check]:
    found = []
    vt_used = {p: value(rows, "trees", network=p, strategy="random", **{"rules/switch": 40}) for p in places}
    text = ", ".join(f"{place} {count:.1f}" for place, count in vt_used.items())
    found.append(
        Check(
            "random uses about one VT per stack (here: 0.5 to 1.5)",
            all(0.5 <= c <= 1.5 for c in vt_used.values()),
            text,
        )
    )
    for place in places:
        found += _rules_checks(rows, place)
        labels = {name: _labels(rows, place, name) for name in COMPARED}
        text = ", ".join(
            f"{name} {count:.1f}" for name, count in sorted(labels.items(), key=lambda item: item[1])
        )
        others = [labels[n] for n in COMPARED if n not in ("frequency-relation", "hybrid")]
        found.append(
            Check(
                f"{place}: frequency-relation beats every strategy but hybrid",
                labels["frequency-relation"] <= min(others),
                text,
            )
        )
        if place == "VtlWavenet2008":
            second = sorted(labels.values())[2]
            found.append(
                Check(
                    f"{place}: random is strong (here: among the best three)",
                    labels["random"] <= second,
                    text,
                )
            )
            found.append(
                Check(
                    f"{place}: cycles, made for rings, does worse than random",
                    labels["cycles"] > labels["random"],
                    text,
                )
            )
        elif place in NETWORKS:
            weak = labels["random"] > labels["clusters"]
            found.append(Check(f"{place}: random is weak (here: behind clusters)", weak, text))
    return found


def _rules_checks(rows: list[Row], place: str) -> list[Check]:
    """Returns checks of the thesis' statements about hops, and about more rules."""
    others = [name for name in COMPARED if name != "hops"]
    hops, most = _labels(rows, place, "hops"), max(_labels(rows, place, name) for name in others)
    few, many = (mean([_labels(rows, place, name, limit) for name in others]) for limit in (LIMITS[0], 40))
    return [
        Check(f"{place}: hops need the most labels", hops > most, f"{hops:.1f}, the others up to {most:.1f}"),
        Check(f"{place}: more rules, fewer labels", many < few, f"{few:.1f} with 5, {many:.1f} with 40"),
    ]


def finish(options: Options, rows: list[Row]) -> Result:
    places = networks(options)
    found = averages(rows, COLUMNS[:3], COLUMNS[3:])
    sizes = [counts_note(place, load(place, options.topology_dir)) for place in places]
    notes = [f"encoder: {options.encoder}", *filter(None, sizes)]
    plots = (Plot("rules/switch", "labels", "strategy", "network"),)
    return Result(
        "thesis-fig6.9",
        "labels per notification, static",
        COLUMNS,
        found,
        checks_of(found, places),
        notes,
        plots,
    )


FIGURES = (Figure("thesis-fig6.9", "labels per notification, static", RUNS, points, work, finish),)
