"""Figure 13: entries at each layer of a fat tree with the policies MR and TR, and with discretisation (a to
c); the traffic that discretisation adds in the core (d).

20 switches, 16 hosts; each filter has three variables.
"""

from __future__ import annotations

from typing import Any

from ...filters.compiler.compile import compile_rules
from ...filters.evaluate import evaluate
from ...filters.loosen import loosen
from ...filters.tree import Field, Filter
from ...routing.fat_tree import Policy, UpChoice, Uplinks, deliver, fat_tree, route
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of, value
from .fat_tree_rules import LAYERS, rules_of, subscriptions
from .workload import siena_schema

VARIABLES, VALUES = 3, 1000
FILTERS = (16, 32, 48, 64)
CASES = (("MR", 1), ("TR", 1), ("MR", 100), ("TR", 100))
ALPHAS = (1, 10, 50, 100, 200)
EVENTS = 2000
KEYS = ("part", "policy", "alpha", "layer", "filters")
COLUMNS = (*KEYS, "entries", "extra core traffic %")


def points(options: Options) -> list[tuple[Any, ...]]:
    memory = [("entries", policy, alpha, count) for policy, alpha in CASES for count in FILTERS]
    return [*memory, *(("traffic", "TR", alpha, FILTERS[-1]) for alpha in ALPHAS)]


def work(options: Options, task: Task) -> list[Row]:
    part, policy, alpha, count = task.point
    network = fat_tree(4)
    rng = rng_of(options, "filters", count, task.run)
    wanted = subscriptions(len(network.access), count, VARIABLES, VALUES, rng)
    filters = route(network, range(len(network.access)), Policy(policy))
    point: Row = {"part": part, "policy": policy, "alpha": alpha, "filters": count}
    if part == "traffic":
        extra = 100 * (_core(options, task, wanted, alpha) / _core(options, task, wanted, 1) - 1)
        return [{**point, "layer": "Core", "entries": 0, "extra core traffic %": extra}]
    most = [0, 0, 0]
    for switch in range(len(network.layers)):
        rules = rules_of(network, filters, wanted, switch, alpha)
        layer = network.layers[switch]
        most[layer] = max(most[layer], compile_rules(siena_schema(VARIABLES, VALUES), rules).entries)
    return [
        {**point, "layer": name, "entries": most[layer], "extra core traffic %": 0.0}
        for layer, name in enumerate(LAYERS)
    ]


def _core(options: Options, task: Task, wanted: dict[int, list[Filter]], alpha: int) -> int:
    """Returns the copies that reach core switches, of events with values drawn evenly."""
    network = fat_tree(4)
    filters = route(network, range(len(network.access)), Policy.TRAFFIC)
    loose = {host: [loosen(tree, alpha) for tree in trees] for host, trees in wanted.items()}
    rng = rng_of(options, "events", task.run)
    uplinks = Uplinks(network, UpChoice.ECMP, rng)
    copies = 0
    for number in range(EVENTS):
        event = {Field((f"v{name}",)): rng.randrange(VALUES) for name in range(VARIABLES)}
        held = {
            host: (
                any(evaluate(t, event.get) for t in wanted[host]),
                any(evaluate(t, event.get) for t in loose[host]),
            )
            for host in wanted
        }
        source = rng.randrange(len(network.access))

        def matches(switch: int, port: int, host: int) -> bool:
            last = network.behind.get((switch, port), 0) < 0
            return held.get(host, (False, False))[0 if last else 1]  # noqa: B023  # used before the next event

        copies += deliver(network, filters, source, matches, uplinks, number).copies[2]
    return copies


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, KEYS, ("entries", "extra core traffic %"))
    memory = [row for row in found if row["part"] == "entries"]
    traffic = [row for row in found if row["part"] == "traffic"]
    last = FILTERS[-1]

    def entries(policy: str, alpha: int, layer: str) -> float:
        return value(memory, "entries", policy=policy, alpha=alpha, layer=layer, filters=last)

    lower = [(entries("MR", 1, layer), entries("TR", 1, layer)) for layer in LAYERS[:2]]
    exact, loose = entries("TR", 1, "Agg"), entries("TR", 100, "Agg")
    checks = [
        Check(
            "with MR the Agg and ToR layers need less memory than with TR",
            all(mr < tr for mr, tr in lower),
            "; ".join(
                f"{layer}: {mr:,.0f} against {tr:,.0f}"
                for layer, (mr, tr) in zip(LAYERS[:2], lower, strict=True)
            ),
        ),
        Check(
            "discretisation reduces memory",
            loose < exact,
            f"TR, Agg: {exact:,.0f}, with alpha = 100 {loose:,.0f}",
        ),
        Check(
            "it causes extra traffic in the core",
            traffic[-1]["extra core traffic %"] > 0,
            ", ".join(f"alpha {row['alpha']}: {row['extra core traffic %']:.1f} %" for row in traffic),
        ),
    ]
    shown = [{**row, "case": f"{row['policy']}, alpha = {row['alpha']}"} for row in memory]
    extra = [{**row, "traffic": row["policy"]} for row in traffic]
    plots = (
        Plot("filters", "entries", "case", panel="layer"),
        Plot("alpha", "extra core traffic %", "traffic"),
    )
    notes = ["entries: the most of any switch of the layer"]
    return Result("camus-fig13", FIGURE.title, COLUMNS, [*shown, *extra], checks, notes, plots)


FIGURE = Figure(
    "camus-fig13",
    "Camus: memory of two policies and of discretisation in a fat tree",
    3,
    points,
    work,
    finish,
)
