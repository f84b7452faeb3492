"""Rule sets of the switches of the paper's fat tree: what figures 13 and 14 compile.

Each of 16 hosts has subscriptions. A port's rules are those of the hosts that it stands for, discretised by
alpha everywhere but at the port of the host itself, where they have to be exact.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

from ...filters.actions import Forward, Rule, Rules
from ...filters.loosen import loosen
from ...filters.tree import EVERYTHING, Filter
from ...routing.fat_tree import UP, Filters, Hierarchy
from .workload import siena_filters

LAYERS = ("ToR", "Agg", "Core")
UP_PORT = 100
SWITCHES = 20


def subscriptions(
    hosts: int, count: int, variables: int, values: int, rng: Random
) -> dict[int, list[Filter]]:
    """Returns `count` filters on all of so many variables below `values`, spread evenly over hosts."""
    found: dict[int, list[Filter]] = defaultdict(list)
    for number, tree in enumerate(siena_filters(count, variables, variables, values, rng)):
        found[number % hosts].append(tree)
    return found


def rules_of(
    network: Hierarchy, filters: Filters, wanted: dict[int, list[Filter]], switch: int, alpha: int
) -> Rules:
    """Returns the rules of one switch."""
    rules: list[Rule] = []
    for port in (*network.down[switch], UP):
        if (switch, port) not in filters:
            continue
        hosts = filters[switch, port]
        action = (Forward((UP_PORT if port == UP else port + 1,)),)
        if hosts is None:
            rules.append(Rule(EVERYTHING, action))
            continue
        last = port != UP and network.behind[switch, port] < 0
        trees = (tree for host in sorted(hosts) for tree in wanted.get(host, ()))
        rules += [Rule(tree if last else loosen(tree, alpha), action) for tree in trees]
    return Rules(tuple(rules))
