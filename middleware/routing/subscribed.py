"""Rules of the switches of a hierarchy for the subscriptions of its hosts: Algorithm 1, down to entries.

`fat_tree.route` says which hosts each port stands for. Here ports become rules: a copy for each port that
somebody behind it wants. At the port of the subscriber itself a filter is exact; at others its numbers are
multiples of alpha. Upwards, the port by which a packet came chooses the link: that is a flow's way, and what
came down never goes up again, as no rule for it names an uplink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..filters.actions import Forward, Rule
from ..filters.loosen import loosen
from ..filters.tree import EVERYTHING, And, Constraint, Field, Filter, Relation
from .fat_tree import UP, Filters, Hierarchy, Link, Policy, route, usable

ARRIVAL: Final = Field(("arrival", "port"))
"""The query field that is the port by which a packet came."""

EVERYBODY: Final = -1  # the number of a rule that is no subscription's

RuleKey = tuple[int, int, int]
"""(port, port by which packets come or 0 for any, subscription)."""

Subscriptions = Mapping[int, Mapping[int, Filter]]
"""By host: filters by number, which no two subscriptions share."""


def down_port(port: int) -> int:
    """Returns the number at the switch of a hierarchy's port downwards: 1 and up."""
    return port + 1


def up_port(whole: Hierarchy, switch: int, link: Link) -> int:
    """Returns the number at the switch of one of its links upwards: behind those downwards."""
    return len(whole.down[switch]) + 1 + whole.up[switch].index(link)


class SubscribedTree:
    """The rules of a hierarchy. `whole` is the network as it was built; links may be missing now."""

    def __init__(self, whole: Hierarchy, policy: Policy, alpha: int) -> None:
        self.whole = whole
        self.network = whole
        self.policy = policy
        self.alpha = alpha

    def fail(self, link: tuple[int, int]) -> None:
        """Goes on without the link between a switch and one above it."""
        self.network = self.network.without(link)

    def rules(self, wanted: Subscriptions) -> list[dict[RuleKey, Rule]]:
        """Returns the rules of each switch."""
        hosts = [host for host, filters in wanted.items() if filters]
        filters = route(self.network, hosts, self.policy)
        links = usable(self.network)
        loose = {
            number: loosen(tree, self.alpha) for trees in wanted.values() for number, tree in trees.items()
        }
        return [
            {**self._down(switch, filters, wanted, loose), **self._up(switch, filters, wanted, loose, links)}
            for switch in range(len(self.network.layers))
        ]

    def _down(
        self, switch: int, filters: Filters, wanted: Subscriptions, loose: Mapping[int, Filter]
    ) -> dict[RuleKey, Rule]:
        found: dict[RuleKey, Rule] = {}
        for port in self.network.down[switch]:
            number = down_port(port)
            last = self.network.behind[switch, port] < 0
            for host in filters.get((switch, port)) or ():
                for one, tree in wanted[host].items():
                    found[number, 0, one] = Rule(tree if last else loose[one], (Forward((number,)),))
        return found

    def _up(
        self,
        switch: int,
        filters: Filters,
        wanted: Subscriptions,
        loose: Mapping[int, Filter],
        links: tuple[tuple[Link, ...], ...],
    ) -> dict[RuleKey, Rule]:
        found: dict[RuleKey, Rule] = {}
        if (switch, UP) not in filters or not links[switch]:
            return found
        hosts = filters[switch, UP]
        trees = {EVERYBODY: EVERYTHING} if hosts is None else _of_hosts(hosts, wanted, loose)
        for port in self.network.down[switch]:
            link = links[switch][port % len(links[switch])]
            number, came = up_port(self.whole, switch, link), down_port(port)
            here = Constraint(ARRIVAL, Relation.EQ, came)
            for one, tree in trees.items():
                found[number, came, one] = Rule(And((here, tree)), (Forward((number,)),))
        return found


def _of_hosts(hosts: frozenset[int], wanted: Subscriptions, loose: Mapping[int, Filter]) -> dict[int, Filter]:
    return {one: loose[one] for host in hosts for one in wanted[host]}
