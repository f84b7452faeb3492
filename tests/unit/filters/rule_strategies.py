"""Random schemas, rules and packets, small enough that rules meet."""

from __future__ import annotations

from hypothesis import strategies as st

from treecast.middleware.filters.actions import Action, Custom, Drop, Forward, Rule, Rules, Update
from treecast.middleware.filters.compiler.schema import (
    Counter,
    CustomAction,
    Header,
    HeaderField,
    Next,
    QueryField,
    Schema,
)
from treecast.middleware.filters.tree import Aggregate, And, Constraint, Field, Filter, Not, Or, Relation

WIDTH = 4
HEADERS = (
    Header("first", (HeaderField("a", WIDTH), HeaderField("b", WIDTH), HeaderField("more", 8))),
    Header("second", (HeaderField("c", WIDTH), HeaderField("d", WIDTH))),
)
NUMBERS = ("a", "b", "c", "d")
KINDS = ("range", "ternary", "lpm", "exact", "low")
COUNTERS = (Counter("n", 100, 8), Counter("m", 100, 8))
NUMERIC = [relation for relation in Relation if relation is not Relation.PREFIX]


def query_field(name: str, kind: str) -> QueryField:
    header = "first" if name in "ab" else "second"
    return QueryField(header, name, WIDTH, kind, WIDTH if kind == "low" else 0)


@st.composite
def schemas(draw: st.DrawFn, counters: tuple[Counter, ...] = ()) -> Schema:
    """Four fields of two headers in any order, each matched in any way."""
    names = draw(st.permutations(NUMBERS))
    fields = tuple(query_field(name, draw(st.sampled_from(KINDS))) for name in names)
    custom = CustomAction("mark", (HeaderField("value", 8),))
    return Schema(HEADERS, (Next("first", "more", 1, "second"),), fields, counters, (custom,))


constants = st.integers(-1, 17) | st.sampled_from([2.5, 7.0])
on_fields = st.builds(
    Constraint, st.sampled_from(NUMBERS).map(lambda name: Field((name,))), st.sampled_from(NUMERIC), constants
)
numbers = st.sampled_from(NUMBERS).map(lambda name: (Field((name,)),))
aggregates = st.builds(Aggregate, st.sampled_from(["sum", "avg"]), numbers) | st.just(Aggregate("count", ()))
on_state = st.builds(
    Constraint, aggregates | st.just(Field(("n",))), st.sampled_from(NUMERIC), st.integers(-1, 20)
)


def trees(leaves: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    return st.recursive(leaves, _inner, max_leaves=4)


def _inner(parts: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return several.map(And) | several.map(Or) | parts.map(Not)


ports = st.lists(st.integers(1, 3), min_size=1, max_size=2, unique=True).map(lambda one: tuple(sorted(one)))
plain: st.SearchStrategy[Action] = ports.map(Forward) | st.just(Drop())
custom: st.SearchStrategy[Action] = st.integers(0, 255).map(lambda value: Custom("mark", (value,)))
COUNT = Update("n", "count", ())


def rules(filters: st.SearchStrategy[Filter], actions: st.SearchStrategy[Action]) -> st.SearchStrategy[Rules]:
    one = st.builds(Rule, filters, st.lists(actions, min_size=1, max_size=2).map(tuple))
    default = st.just(()) | ports.map(lambda found: (Forward(found),))
    return st.builds(Rules, st.lists(one, max_size=5).map(tuple), default)


stateless = rules(trees(on_fields), plain | custom)
stateful = rules(trees(on_fields | on_state), plain | st.just(COUNT))

values = st.integers(0, 15)
packets = st.tuples(values, values, st.none() | st.tuples(values, values))
"""a, b, and c and d if the second header is there."""


def of_schema(schema: Schema, packet: tuple[int, int, tuple[int, int] | None]) -> list[int | None]:
    """Returns a packet's values in the order of the schema's fields."""
    a, b, second = packet
    known = {"a": a, "b": b, "c": second[0] if second else None, "d": second[1] if second else None}
    return [known[field.name] for field in schema.fields]


def to_bytes(packet: tuple[int, int, tuple[int, int] | None]) -> bytes:
    a, b, second = packet
    return bytes([a << 4 | b, 1 if second else 0]) + (bytes([second[0] << 4 | second[1]]) if second else b"")
