"""Random filters and values that are likely to match."""

from __future__ import annotations

from hypothesis import strategies as st

from treecast.middleware.filters.tree import (
    Aggregate,
    And,
    Constraint,
    Field,
    Filter,
    Not,
    Or,
    Relation,
    Scalar,
)

NAMES = ["price", "stock", "ip", "dst", "a-b", "not", "two words", "größe"]

names = st.sampled_from(NAMES)
numbers = st.integers(-3, 3) | st.sampled_from([-1.5, 0.0, 0.5, 2.0, 1e22])
strings = st.sampled_from(["", "G", "GO", "GOOGL", 'a"b\\', "192.168.0.1"])
scalars: st.SearchStrategy[Scalar] = st.booleans() | numbers | strings
fields = st.lists(names, min_size=1, max_size=3).map(lambda path: Field(tuple(path)))


@st.composite
def constraints(draw: st.DrawFn) -> Constraint:
    constant = draw(scalars)
    relations = list(Relation)
    if isinstance(constant, bool):
        relations = [Relation.EQ, Relation.NE]
    elif not isinstance(constant, str):
        relations.remove(Relation.PREFIX)
    return Constraint(draw(fields), draw(st.sampled_from(relations)), constant)


def _inner(parts: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(parts, max_size=3).filter(lambda found: len(found) != 1).map(tuple)
    return several.map(And) | several.map(Or) | parts.map(Not)


stateless: st.SearchStrategy[Filter] = st.recursive(constraints(), _inner, max_leaves=8)

aggregating = st.builds(
    Constraint,
    st.builds(
        Aggregate, st.sampled_from(["avg", "count"]), st.lists(fields, min_size=1, max_size=2).map(tuple)
    ),
    st.just(Relation.GT),
    numbers,
)
