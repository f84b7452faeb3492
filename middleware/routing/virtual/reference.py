"""Algorithm 5.1 of the thesis: greedy encoding with virtual trees, one Steiner tree per tried tree.

`printed=True` is the printed algorithm. Its line 8 counts an edge of a virtual tree once, although a chord,
which has both ends on the delivery tree, sends copies from both: such stacks deliver twice. The mended form
counts a stop for each end. Its `sort` is not defined there; this module offers plausible orders. The text
around it tries all that are left before each choice; that is the order "steepest".
"""

from __future__ import annotations

from collections.abc import Callable

from ..bits import members
from ..network import Network, RoutingError
from ..steiner import steiner_tree
from ..steiner.common import nodes_of
from .rules import RuleBase
from .stacks import Encoding, Request, encoding

ORDERS = ("largest", "smallest", "overlap", "gain", "given")
STEEPEST = "steepest"

# network, terminals, costs per edge -> edges as bits
Steiner = Callable[[Network, list[int], list[int]], int]


def mehlhorn(network: Network, terminals: list[int], costs: list[int]) -> int:
    return steiner_tree(network, terminals, "mehlhorn", costs)


def encode(
    network: Network,
    rules: RuleBase,
    asked: Request,
    *,
    order: str = "largest",
    printed: bool = False,
    steiner: Steiner = mehlhorn,
) -> Encoding:
    """Returns the thesis' encoding of a notification. Raises RoutingError if receivers cannot be reached."""
    terminals = [asked.start, *members(asked.receivers)]
    delivery = steiner(network, terminals, [1] * network.edge_count)  # lines 2 and 3
    chosen: list[int] = []
    union, cost = 0, delivery.bit_count()

    def tried(number: int) -> tuple[int, int]:
        """Returns the labels with one more tree, and the delivery tree for them (lines 5 to 9)."""
        edges = union | rules.trees[number]
        costs = [0 if edges >> edge & 1 else 1 for edge in range(network.edge_count)]
        tree = steiner(network, terminals, costs)
        hops = (tree & ~edges).bit_count()
        stops = count_stops(network, edges & ~tree & ~asked.access, tree, asked.start, printed=printed)
        return hops + stops + len(chosen) + 1, tree

    left = sorted(rules.trees) if order == STEEPEST else sort(network, rules, asked, delivery, order)
    while left:
        # in one given order the next tree is tried, else all, of which the first of the best is taken
        found = {number: tried(number) for number in (left if order == STEEPEST else left[:1])}
        number = min(found, key=lambda one: found[one][0])
        total, tree = found[number]
        left.remove(number)
        if total < cost:
            chosen.append(number)
            delivery, union, cost = tree, union | rules.trees[number], total
        elif order == STEEPEST:
            break
    return encoding(network, rules, asked, chosen, delivery, printed=printed)


def count_stops(network: Network, away: int, tree: int, start: int, *, printed: bool = False) -> int:
    """Returns the stops for edges that lead away from a tree: one per end on it (line 8: one per edge)."""
    nodes, count = nodes_of(network, tree) | 1 << start, 0
    for edge in members(away):
        first, second = network.ends[edge]
        ends = (nodes >> first & 1) + (nodes >> second & 1)
        count += min(ends, 1) if printed else ends
    return count


def sort(network: Network, rules: RuleBase, asked: Request, initial: int, order: str) -> list[int]:
    """Returns tree ids in the order in which the algorithm tries them."""
    numbers = list(rules.trees)
    if order == "given":
        return numbers
    keys = {number: _key(network, rules.trees[number], asked, initial, order) for number in numbers}
    return sorted(numbers, key=lambda number: (-keys[number], number))


def _key(network: Network, edges: int, asked: Request, initial: int, order: str) -> int:
    if order == "largest":
        return edges.bit_count()
    if order == "smallest":
        return -edges.bit_count()
    overlap = (edges & initial).bit_count()
    if order == "overlap":
        return overlap
    if order == "gain":
        return overlap - count_stops(network, edges & ~initial & ~asked.access, initial, asked.start)
    raise RoutingError(f"no order {order!r}; there are {', '.join((*ORDERS, STEEPEST))}")
