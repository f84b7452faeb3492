"""The graph-level model of all figures, compared with the P4 programs on the embedded target.

A sample on a jellyfish: the same stacks pass both, and every packet, byte, pass and recirculation is
compared. Each receiver set is the same for all schemes.
"""

from __future__ import annotations

from typing import Any

from ...routing.forwarding import faults
from ...routing.network import Network
from ...routing.schemes.stored import Hybrid, publisher_tree
from ...routing.topologies import jellyfish
from ...routing.virtual.encoder import Encoder
from ...routing.virtual.stacks import request
from ...routing.virtual.strategies import STRATEGIES, Knowledge, install
from ..figure import Check, Figure, Options, Plot, Result, Row, Task, averages, rng_of
from ..twins import Twin, entry_twins, hybrid_twin, send, virtual_twin

SWITCHES = 24
DEGREE = 3
SHARES = (20, 50, 80)
PAYLOAD = bytes(50)
RUNS = 3
SCHEMES = ("predictive", "reactive", "bitmask", "group", "group, 2", "mixed", "hops", "destinations")
STORED = ("hybrid", "virtual trees")
MEASURED = ("packets", "bytes", "look-ups", "recirculations", "clones", "replicas", "differences")
COLUMNS = ("scheme", "receivers %", *MEASURED)


def points(options: Options) -> list[tuple[Any, ...]]:
    return [(scheme, share) for scheme in (*SCHEMES, *STORED) for share in SHARES]


def work(options: Options, task: Task) -> list[Row]:
    name, share = task.point
    network = jellyfish(SWITCHES, DEGREE, rng_of(options, "jellyfish", task.run))
    picked = rng_of(options, "clients", share, task.run).sample(network.hosts, len(network.hosts))
    source, receivers = picked[0], picked[1 : 1 + round(share / 100 * len(network.hosts))]
    twin, stack = _stack(options, network, name, source, receivers, task.run)
    sent = send(network, twin, source, stack, PAYLOAD)
    wrong = [*sent.differences, *faults(network, source, receivers, sent.outcome)]
    carried = sent.carried
    row: Row = {
        "scheme": name,
        "receivers %": share,
        "packets": carried.packets,
        "bytes": carried.bytes,
        "look-ups": sum(carried.passes.values()),
        "recirculations": carried.recirculations,
        "clones": carried.clones,
        "replicas": carried.replicas,
        "differences": len(wrong),
    }
    return [row]


def _stack(
    options: Options, network: Network, name: str, source: int, receivers: list[int], run: int
) -> tuple[Twin, Any]:
    rng = rng_of(options, name, run)
    if name == "virtual trees":
        rules = install(network, options.rules, STRATEGIES["random"], Knowledge(), rng)
        found = Encoder(network, rules).encode(request(network, source, receivers))
        return virtual_twin(network, rules), found.labels
    tree = publisher_tree(network, source, receivers)
    if name == "hybrid":
        model = Hybrid(network)
        everybody = publisher_tree(network, source, [host for host in network.hosts if host != source])
        model.subscribe(source, everybody, receivers[: len(receivers) // 2])
        return hybrid_twin(network, model), model.encode(source, tree)
    twin = entry_twins(network, rng)[name]
    return twin, twin.model.encode(source, tree)


def finish(options: Options, rows: list[Row]) -> Result:
    found = averages(rows, COLUMNS[:2], MEASURED)
    wrong = [f"{row['scheme']} at {row['receivers %']} %" for row in rows if row["differences"]]
    checks = [
        Check(
            "model and P4 programs agree on every packet, byte, pass and recirculation",
            not wrong,
            f"{len(rows)} notifications; " + ("; ".join(wrong) or "no difference"),
        )
    ]
    notes = [f"jellyfish of {SWITCHES} switches, {DEGREE} links each; all numbers are the switches' own"]
    plots = (Plot("receivers %", "look-ups", "scheme"),)
    return Result("thesis-p4", "packets through the P4 programs", COLUMNS, found, checks, notes, plots)


FIGURES = (Figure("thesis-p4", "packets through the P4 programs", RUNS, points, work, finish),)
