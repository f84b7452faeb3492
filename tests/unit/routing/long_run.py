"""The long form of the property tests: a given number of random networks, rule bases and notifications.

python -m tests.unit.routing.long_run --count 2000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
from random import Random

from tests.unit.routing.networks import random_network, receivers_of
from tests.unit.routing.test_schemes import entry_schemes
from tests.unit.routing.test_strategies import knowledge_of
from tests.unit.routing.test_virtual import all_encodings, delivered

from treecast.middleware.routing.forwarding import faults, simulate
from treecast.middleware.routing.schemes.common import delivery_tree
from treecast.middleware.routing.virtual.stacks import request
from treecast.middleware.routing.virtual.strategies import STRATEGIES, install


def one(seed: int) -> list[str]:
    """Returns the violations of one network and notification."""
    rng = Random(seed)
    hosts = rng.random() < 0.5
    nodes = rng.randint(2, 40)
    network = random_network(seed, nodes, rng.randint(0, nodes), hosts=hosts)
    source, receivers = receivers_of(network, rng)
    strategy = rng.choice(sorted(STRATEGIES))
    rules = install(network, rng.randint(0, 12), STRATEGIES[strategy], knowledge_of(network, rng), rng)
    rules.check_invariants()
    asked = request(network, source, receivers)
    wrong = []
    for name, found in all_encodings(network, rules, asked).items():
        wrong += [
            f"{strategy}, {name}: {fault}" for fault in delivered(network, rules, source, receivers, found)
        ]
    if hosts and max(map(len, network.out)) <= 24:
        tree = delivery_tree(network, source, receivers)
        for name, scheme in entry_schemes(network, rng).items():
            outcome = simulate(network, scheme, source, scheme.encode(source, tree))
            wrong += [f"{name}: {fault}" for fault in faults(network, source, receivers, outcome)]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for number in range(arguments.seed, arguments.seed + arguments.count):
        wrong = one(number)
        if wrong:
            print(f"seed {number}:", *wrong, sep="\n  ")
            return 1
        if number % 100 == 0:
            print(f"{number - arguments.seed + 1} of {arguments.count}", file=sys.stderr)
    print(f"{arguments.count} networks: each receiver got one copy, no other host any")
    return 0


if __name__ == "__main__":
    sys.exit(main())
