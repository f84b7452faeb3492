"""Encoding with virtual trees against Algorithm 5.1 done with networkx' Mehlhorn, as ratios.

.venv/bin/python bench/micro_routing.py --topology VtlWavenet2008                       this one
.venv/bin/python bench/micro_routing.py --beside .venv-compiled/bin/python              and another's

88 nodes, 40 rules per switch, 30 % receivers. Both encode the same notifications in turn, so that a disturbed
machine disturbs both; CPU time is taken, and medians count. A cached encoding is compared with hashing the
receivers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
import timeit
from pathlib import Path
from random import Random

import networkx as nx
from networkx.algorithms.approximation import steiner_tree

from treecast.middleware.routing.clusters import dense_regions, k_medoids
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.topologies import from_topohub, parse_repetita
from treecast.middleware.routing.virtual import encoder as compiled_or_not
from treecast.middleware.routing.virtual import reference
from treecast.middleware.routing.virtual.cache import Stacks
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.stacks import Request, request
from treecast.middleware.routing.virtual.strategies import STRATEGIES, Knowledge, install

RULES = 40
SHARE = 0.3
NOTIFICATIONS = 12
SEED = 7


class Networkx:
    """Steiner trees by networkx' Mehlhorn, for the reference encoder."""

    def __init__(self, network: Network) -> None:
        self.graph = nx.Graph()
        self.edges = {}
        for edge, (a, b) in enumerate(network.ends):
            self.graph.add_edge(a, b, weight=1)
            self.edges[a, b] = self.edges[b, a] = edge

    def __call__(self, network: Network, terminals: list[int], costs: list[int]) -> int:
        for (a, b), edge in self.edges.items():
            self.graph[a][b]["weight"] = costs[edge]
        tree = steiner_tree(self.graph, terminals, weight="weight", method="mehlhorn")
        return sum(1 << self.edges[pair] for pair in tree.edges)


def scene(network: Network, strategy: str) -> tuple[Encoder, list[Request]]:
    """Returns a rule base of 40 rules per switch, and notifications to 30 % of the clients."""
    rng, clients = Random(SEED), network.clients
    count = round(SHARE * len(clients))
    subscribers = {}
    for publisher in rng.sample(clients, count):
        others = rng.sample([client for client in clients if client != publisher], count)
        subscribers[publisher] = {client: rng.random() for client in others}
    knowledge = Knowledge(subscribers, dense_regions(network, k_medoids(network, 4, rng), 0.6))
    rules = install(network, RULES, STRATEGIES[strategy], knowledge, rng)
    asked = []
    for _ in range(NOTIFICATIONS):
        publisher = rng.choice(sorted(subscribers))
        asked.append(request(network, publisher, sorted(subscribers[publisher])))
    return Encoder(network, rules), asked


def measure(network: Network, strategy: str, rounds: int, reference_too: bool) -> dict[str, float]:
    encoder, asked = scene(network, strategy)
    theirs, steiner = [], Networkx(network)
    ours: list[float] = []
    labels = [0, 0]
    for one in asked:
        if reference_too:
            start = time.process_time()
            found = reference.encode(network, encoder.rules, one, steiner=steiner)
            theirs.append(time.process_time() - start)
            labels[0] += found.label_count
        labels[1] += encoder.encode(one).label_count
        spent = timeit.repeat(
            "encode(one)",
            globals={"encode": encoder.encode, "one": one},
            number=1,
            repeat=rounds,
            timer=time.process_time,
        )
        ours.append(statistics.median(spent))
    stacks = Stacks(encoder, _publisher(network, asked[0]))
    bits = asked[0].receivers
    assert stacks[bits]
    hashed, cached = beside(
        timeit.Timer("hash(bits)", globals={"bits": bits}, timer=time.process_time),
        timeit.Timer("stacks[bits]", globals={"bits": bits, "stacks": stacks}, timer=time.process_time),
        4 * rounds,
    )
    found_figures = {
        "trees": float(len(encoder.numbers)),
        "encode, us": statistics.median(ours) * 1e6,
        "labels": labels[1] / len(asked),
        "hash of the receivers, ns": hashed * 1e9,
        "cached, ns": cached * 1e9,
        "cached / hash": cached / hashed,
        "compiled": float(not compiled_or_not.__file__.endswith(".py")),
    }
    if reference_too:
        found_figures["Algorithm 5.1 with networkx, us"] = statistics.median(theirs) * 1e6
        found_figures["labels of Algorithm 5.1"] = labels[0] / len(asked)
        found_figures["times faster"] = statistics.median(a / b for a, b in zip(theirs, ours, strict=True))
    return found_figures


def beside(one: timeit.Timer, other: timeit.Timer, rounds: int) -> tuple[float, float]:
    """Seconds of CPU per call of two statements, the least of some rounds; they are measured in turn."""
    number = 100_000
    pairs = [(one.timeit(number), other.timeit(number)) for _ in range(rounds)]
    return min(first for first, _ in pairs) / number, min(second for _, second in pairs) / number


def _publisher(network: Network, asked: Request) -> int:
    return asked.start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--topology", default="VtlWavenet2008")
    parser.add_argument("--topology-dir", type=Path, help="REPETITA files; without it topohub is asked")
    parser.add_argument("--strategies", default="random,frequency-relation,hybrid,partitions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", metavar="PYTHON", help="also measure the package of another Python")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.topology_dir:
        network = parse_repetita((arguments.topology_dir / f"{arguments.topology}.graph").read_text())
    else:
        network = from_topohub(arguments.topology)
    found = {name: measure(network, name, arguments.rounds, True) for name in arguments.strategies.split(",")}
    if arguments.json:
        print(json.dumps(found))
        return
    _print(found, network)
    if arguments.beside:
        command = [arguments.beside, __file__, "--json", "--topology", arguments.topology]
        command += ["--strategies", arguments.strategies, "--rounds", str(arguments.rounds)]
        command += ["--topology-dir", str(arguments.topology_dir)] if arguments.topology_dir else []
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        _print(json.loads(run.stdout), network)


def _print(found: dict[str, dict[str, float]], network: Network) -> None:
    compiled = next(iter(found.values()))["compiled"]
    print(
        f"{network.node_count} nodes, {RULES} rules per switch, {'compiled' if compiled else 'interpreted'}"
    )
    for figure in next(iter(found.values())):
        if figure != "compiled":
            print(f"{figure:34}" + "".join(f"{found[name][figure]:14,.1f}" for name in found))
    print(" " * 34 + "".join(f"{name[:13]:>14}" for name in found))


if __name__ == "__main__":
    main()
