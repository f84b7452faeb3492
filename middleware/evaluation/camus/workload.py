"""Rule sets of Camus' evaluation, as values: what `parse_rules` would return for their text."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ...filters.actions import Forward, Rule, Rules
from ...filters.compiler.schema import Header, HeaderField, QueryField, Schema
from ...filters.tree import And, Constraint, Field, Filter, Or, Relation

SYMBOLS = 100
PRICES = 1000
HOSTS = 200

_ITCH = Header("itch", (HeaderField("stock", 64), HeaderField("price", 32)))
ITCH = Schema((_ITCH,), (), (QueryField("itch", "stock", 64, "exact"), QueryField("itch", "price", 32)))
STOCK_FIRST, PRICE_FIRST = (0, 1), (1, 0)

_STOCK, _PRICE = Field(("stock",)), Field(("price",))


def symbol(number: int) -> str:
    """Returns a stock's name, of four letters."""
    return "S" + "".join(chr(ord("A") + number // 26**place % 26) for place in range(3))


def above(stock: int, price: int, host: int) -> Rule:
    """Returns `stock == S and price > P : fwd(H)`."""
    return Rule(
        And((Constraint(_STOCK, Relation.EQ, symbol(stock)), Constraint(_PRICE, Relation.GT, price))),
        (Forward((host + 1,)),),
    )


def uniform(count: int, rng: Random) -> Rules:
    """Every part is drawn for itself: the plain reading of the paper."""
    return Rules(
        tuple(
            above(rng.randrange(SYMBOLS), rng.randrange(PRICES), rng.randrange(HOSTS)) for _ in range(count)
        )
    )


def per_symbol(count: int, rng: Random) -> Rules:
    """The host depends on the symbol: two hosts follow each."""
    return Rules(
        tuple(
            above(stock, rng.randrange(PRICES), 2 * stock + rng.randrange(2))
            for stock in (rng.randrange(SYMBOLS) for _ in range(count))
        )
    )


def grid(rng: Random) -> Rules:
    """Every symbol with every price; the host is a function of the price, drawn once."""
    hosts = [rng.randrange(HOSTS) for _ in range(PRICES)]
    return Rules(
        tuple(above(stock, price, hosts[price]) for stock in range(SYMBOLS) for price in range(PRICES))
    )


# --- after the Siena benchmark generator


def siena_schema(variables: int, values: int) -> Schema:
    """Returns a header with so many numbers."""
    width = max(1, (values - 1).bit_length())
    fields = [HeaderField(f"v{number}", width) for number in range(variables)]
    padding = -(width * variables) % 8
    padded = (*fields, HeaderField("padding", padding)) if padding else tuple(fields)
    queried = tuple(QueryField("event", field.name, field.width) for field in fields)
    return Schema((Header("event", padded),), (), queried)


ORDERINGS = (Relation.LT, Relation.GT)
MIXED = (Relation.EQ, *ORDERINGS)


def siena_filters(
    count: int,
    predicates: int,
    variables: int,
    values: int,
    rng: Random,
    relations: tuple[Relation, ...] = MIXED,
) -> Iterator[Filter]:
    """Yields conjunctions of `predicates` constraints on different variables: names, relations and
    constants are drawn evenly. The paper names its generator, but not the distributions that it was given.
    """
    for _ in range(count):
        names = rng.sample(range(variables), predicates)
        yield And(tuple(_constraint(name, values, relations, rng) for name in sorted(names)))


def _constraint(name: int, values: int, relations: tuple[Relation, ...], rng: Random) -> Filter:
    relation = rng.choice(relations)
    return Constraint(Field((f"v{name}",)), relation, rng.randrange(values))


def either(filters: list[Filter]) -> Filter:
    """Returns the union of filters."""
    return filters[0] if len(filters) == 1 else Or(tuple(filters))
