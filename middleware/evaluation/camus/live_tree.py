"""A fat tree of emulated switches whose subscriptions come and go while packets are sent.

Each switch runs the generated program; its entries follow the rules of `routing.subscribed` write by write
(`filters.compiler.changes`). `check` compares what hosts got of a packet with the filters themselves:

- nobody misses a packet that a subscription wants which holds before and after the change that is under way
- nobody gets a packet that no subscription of the host wants, before or after it
- nobody gets two copies
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final

from msgspec import Struct

from ...control.switches import SwitchState
from ...dataplane.p4 import load_program
from ...dataplane.subscriptions.writes import Writer
from ...filters.actions import Rule
from ...filters.compiler.changes import Installed
from ...filters.compiler.live import LiveRules
from ...filters.compiler.program import program_text
from ...filters.compiler.schema import ARRIVAL, PORT_BITS, Header, HeaderField, QueryField, Schema
from ...filters.evaluate import evaluate
from ...filters.tree import And, Constraint, Field, Filter, Relation
from ...routing.fat_tree import Policy, fat_tree
from ...routing.network import Network, numbered
from ...routing.subscribed import RuleKey, SubscribedTree, down_port, up_port
from ..switched import SwitchedNetwork

STOCKS, PRICES = 4, 1000
MOST: Final = 40  # subscriptions at a time
STOCK_BYTES = 4
ORDER = (0, 1, 2)  # of the fields' tables

SCHEMA = Schema(
    (
        Header(
            "order", (HeaderField("stock", 8 * STOCK_BYTES), HeaderField("price", 16), HeaderField("n", 32))
        ),
    ),
    (),
    (
        QueryField("arrival", "port", PORT_BITS, source=ARRIVAL),
        QueryField("order", "stock", 8 * STOCK_BYTES, "exact"),
        QueryField("order", "price", 16),
    ),
)


class Order(Struct, frozen=True):
    """A message: its fields and its number."""

    stock: str
    price: int
    number: int

    def to_bytes(self) -> bytes:
        stock = self.stock.encode().ljust(STOCK_BYTES)
        return stock + self.price.to_bytes(2, "big") + self.number.to_bytes(4, "big")

    def read(self, field: Field) -> str | int | None:
        values: dict[str, str | int] = {"stock": self.stock, "price": self.price}
        return values.get(field.path[-1])


class Account(Struct):
    """Counts of packets and deliveries. `missed`, `unwanted` and `doubled` have to stay 0."""

    packets: int = 0
    wanted: int = 0
    missed: int = 0
    unwanted: int = 0
    doubled: int = 0
    copies: int = 0  # on all links
    changes: int = 0
    writes: int = 0


class LiveTree:
    """Al-Fares' fat tree of k-port switches with its hosts, k**3/4 of them."""

    def __init__(self, k: int, policy: Policy, alpha: int) -> None:
        self.hierarchy = fat_tree(k)
        self.tree = SubscribedTree(self.hierarchy, policy, alpha)
        self.wanted: dict[int, dict[int, Filter]] = {host: {} for host in range(len(self.hierarchy.access))}
        self.account = Account()
        self._switches = len(self.hierarchy.layers)
        self.network = _network(self.tree)
        self.emulated = SwitchedNetwork(load_program(program_text(SCHEMA, ORDER), "orders.p4"))
        self.emulated.become(self.network, {node: SwitchState.of() for node in range(self._switches)})
        self._rules = [LiveRules(SCHEMA, ORDER) for _ in range(self._switches)]
        self._installed = [Installed(rules) for rules in self._rules]
        self._writers = [
            Writer(installed, SCHEMA, ORDER, self.emulated.control(switch))
            for switch, installed in enumerate(self._installed)
        ]
        for writer in self._writers:
            writer.begin()
        self._there: list[dict[RuleKey, tuple[int, Rule]]] = [{} for _ in range(self._switches)]
        self._number = 0
        self._sent = 0
        for _ in self.change():
            pass

    # --- subscriptions

    def subscribe(self, host: int, tree: Filter) -> int:
        """Adds a subscription, which holds once `change` has been gone through. Returns its number."""
        self._number += 1
        self.wanted[host][self._number] = tree
        return self._number

    def unsubscribe(self, host: int, number: int) -> None:
        del self.wanted[host][number]

    def change(self) -> Iterator[int]:
        """Brings the switches to the present subscriptions. Yields the switch after each single write.

        Rules that are new come first, from the hosts upwards, so that a packet which is sent up has a way
        down; then rules that are gone, from the top down.
        """
        desired = self.tree.rules(self.wanted)
        self.account.changes += 1
        upwards = self.hierarchy.bottom_up()
        for switch in upwards:
            yield from self._wrote(switch, self._add(switch, desired[switch]))
        for switch in reversed(upwards):
            yield from self._wrote(switch, self._remove(switch, desired[switch]))

    def _add(self, switch: int, desired: Mapping[RuleKey, Rule]) -> bool:
        there = self._there[switch]
        new = {key: rule for key, rule in desired.items() if key not in there}
        numbers = self._rules[switch].add(new.values())
        there |= {key: (number, rule) for number, (key, rule) in zip(numbers, new.items(), strict=True)}
        return bool(new)

    def _remove(self, switch: int, desired: Mapping[RuleKey, Rule]) -> bool:
        there = self._there[switch]
        gone = [key for key in there if key not in desired]
        self._rules[switch].remove([there.pop(key)[0] for key in gone])
        return bool(gone)

    def _wrote(self, switch: int, changed: bool) -> Iterator[int]:
        if not changed:
            return
        for one in self._installed[switch].change():
            self._writers[switch].write(one)
            self.account.writes += 1
            yield switch

    def fail(self, low: int, high: int) -> None:
        """Goes on without the link between a switch and one above it, and brings the switches there."""
        self.tree.fail((low, high))
        for _ in self.change():
            pass

    def entries(self) -> list[int]:
        """Returns the most entries of a switch in each layer."""
        most = [0] * (max(self.hierarchy.layers) + 1)
        for switch, layer in enumerate(self.hierarchy.layers):
            most[layer] = max(most[layer], len(self.emulated.read(switch).entries))
        return most

    # --- packets

    def check(self, host: int, order: Order, before: Mapping[int, Mapping[int, Filter]]) -> None:
        """Sends a packet, and notes what is wrong with its deliveries. `before`: the subscriptions before the
        change that is under way."""
        got = self._got(host, order)
        account = self.account
        account.packets += 1
        for one in range(len(self.hierarchy.access)):
            if one == host:
                continue
            now, then = self._wants(self.wanted[one], order), self._wants(before[one], order)
            kept = {number: tree for number, tree in before[one].items() if number in self.wanted[one]}
            must = self._wants(kept, order)
            account.wanted += must
            account.missed += must and not got.get(one, 0)
            account.unwanted += bool(got.get(one, 0)) and not (now or then)
            account.doubled += got.get(one, 0) > 1

    def _got(self, host: int, order: Order) -> dict[int, int]:
        """Returns how many copies each host gets."""
        carried = self.emulated.send(self._switches + host, order.to_bytes())
        assert not carried.looped
        assert not carried.astray
        self.account.copies += carried.packets
        found: dict[int, int] = {}
        for link, frames in carried.frames.items():
            head = self.network.heads[link]
            if head >= self._switches:
                assert all(frame == order.to_bytes() for frame in frames)
                found[head - self._switches] = len(frames)
        return found

    def _wants(self, filters: Mapping[int, Filter], order: Order) -> bool:
        return any(evaluate(tree, order.read) for tree in filters.values())

    def order(self, rng: Random) -> Order:
        """Draws a message."""
        self._sent += 1
        return Order(f"S{rng.randrange(STOCKS)}", rng.randrange(PRICES), self._sent)


def subscription(rng: Random) -> Filter:
    """Draws `stock == S and price > P`, or one of its parts, or a range of prices."""
    stock = Constraint(Field(("order", "stock")), Relation.EQ, f"S{rng.randrange(STOCKS)}")
    low = rng.randrange(PRICES)
    price = Constraint(Field(("order", "price")), Relation.GT, low)
    top = Constraint(Field(("order", "price")), Relation.LT, low + 100)
    return rng.choice((And((stock, price)), stock, And((price, top))))


def _network(tree: SubscribedTree) -> Network:
    """Returns the emulator's network: switches as they are numbered, then hosts."""
    whole, switches = tree.whole, len(tree.whole.layers)
    names = [f"s{switch}" for switch in range(switches)] + [f"h{host}" for host in range(len(whole.access))]
    ends: list[tuple[int, int]] = []
    ports: list[int] = []
    for host, (switch, port) in enumerate(whole.access):
        ends.append((switch, switches + host))
        ports += (down_port(port), 1)
    for switch, links in enumerate(whole.up):
        for link in links:
            ends.append((switch, link.switch))
            ports += (up_port(whole, switch, link), down_port(link.port))
    return numbered(names, ends, range(switches, len(names)), ports)


def churn(tree: LiveTree, steps: int, rng: Random, every: int = 1) -> None:
    """Subscriptions come and go `steps` times, half of the most at first; packets are sent after one of
    `every` writes, and after each change."""
    hosts = [rng.randrange(len(tree.wanted)) for _ in range(MOST // 2)]
    held = [(host, tree.subscribe(host, subscription(rng))) for host in hosts]
    for _ in tree.change():
        pass
    for _ in range(steps):
        before = {host: dict(filters) for host, filters in tree.wanted.items()}
        if held and (len(held) >= MOST or rng.random() < 0.5):
            tree.unsubscribe(*held.pop(rng.randrange(len(held))))
        else:
            host = rng.randrange(len(tree.wanted))
            held.append((host, tree.subscribe(host, subscription(rng))))
        for number, _ in enumerate(tree.change()):
            if number % every == 0:
                tree.check(rng.randrange(len(tree.wanted)), tree.order(rng), before)
        settled(tree, 3, rng)


def settled(tree: LiveTree, packets: int, rng: Random) -> None:
    """Sends packets while nothing changes."""
    for _ in range(packets):
        tree.check(rng.randrange(len(tree.wanted)), tree.order(rng), tree.wanted)
