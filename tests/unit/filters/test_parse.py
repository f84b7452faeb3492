"""The language: texts parse to their documented meaning, and errors point at the wrong word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.filters import filter_strategies as strategies

from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.parse import MAX_DEPTH, MAX_LENGTH, parse
from treecast.middleware.filters.text import to_text
from treecast.middleware.filters.tree import (
    EVERYTHING,
    NOTHING,
    Aggregate,
    And,
    Constraint,
    Field,
    Filter,
    Not,
    Or,
    Relation,
    aggregates,
    fields,
)


def constraint(path: str, relation: str, constant: int | float | str | bool) -> Constraint:
    return Constraint(Field(tuple(path.split("."))), Relation(relation), constant)


A, B, C = (constraint(name, "==", 1) for name in "abc")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("ip.dst == 192.168.0.1", constraint("ip.dst", "==", "192.168.0.1")),
        (
            "stock == GOOGL ∧ price > 50",
            And((constraint("stock", "==", "GOOGL"), constraint("price", ">", 50))),
        ),
        (
            "stock = 'GOOGL' AND avg(price) > 60",
            And(
                (
                    constraint("stock", "==", "GOOGL"),
                    Constraint(Aggregate("avg", (Field(("price",)),)), Relation.GT, 60),
                )
            ),
        ),
        ("a == 1 or b == 1 and c == 1", Or((A, And((B, C))))),
        ("(a == 1 || b == 1) && c == 1", And((Or((A, B)), C))),
        ("not a == 1 and b == 1", And((Not(A), B))),
        ("!(a == 1 and b == 1)", Not(And((A, B)))),
        ("x != -1.5e3", constraint("x", "!=", -1500.0)),
        ("x <= 0xFF", constraint("x", "<=", 255)),
        ("x >= 1_000", constraint("x", ">=", 1000)),
        ("x prefix '10.0.'", constraint("x", "prefix", "10.0.")),
        ("ok == true", constraint("ok", "==", True)),
        ('x == "say \\"so\\"\\n"', constraint("x", "==", 'say "so"\n')),
        ("headers.trace-id == a", constraint("headers.trace-id", "==", "a")),
        ("`two words`.`not` == 1", Constraint(Field(("two words", "not")), Relation.EQ, 1)),
        ("true", EVERYTHING),
        ("false", NOTHING),
        ("sum(a, b.c) < 3", Constraint(Aggregate("sum", (Field(("a",)), Field(("b", "c")))), Relation.LT, 3)),
    ],
)
def test_meaning(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price >", "a number or a string is wanted, but the filter ends\n  price >\n         ^"),
        ("(a == 1", "')' is wanted, but the filter ends\n  (a == 1\n         ^"),
        ("a == 1 b", "'and', 'or' or the end is wanted, but there is 'b'\n  a == 1 b\n         ^"),
        ("a ^ b", "'^' is no sign of this language; write 'and'\n  a ^ b\n    ^"),
        ("a == 'x", "the ' is not closed\n  a == 'x\n       ^"),
        ("a prefix 3", "a prefix is a string\n  a prefix 3\n           ^"),
        ("ok > true", "true and false can only be equal or not\n  ok > true\n       ^"),
        ("3 == a", "the name of a field is wanted, but there is '3'\n  3 == a\n  ^"),
        ("a\n== 1\nand", "the name of a field is wanted, but the filter ends\n  and\n     ^"),
        ("", "the name of a field is wanted, but the filter ends\n  \n  ^"),
        ("a == §", "'§' starts no token of this language\n  a == §\n       ^"),
    ],
)
def test_refused_and_pointed_at(text: str, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_a_long_line_is_shown_around_the_place() -> None:
    with pytest.raises(FilterError) as caught:
        parse("a == 1 and " * 50 + "§ and " + "b == 2 and " * 50)
    _, line, caret = str(caught.value).split("\n")
    assert len(line) < 80
    assert line[caret.index("^")] == "§"


@pytest.mark.parametrize(
    "text",
    [
        "a == 1" + " " * MAX_LENGTH,
        "(" * (MAX_DEPTH + 1) + "a == 1" + ")" * (MAX_DEPTH + 1),
        "not " * 5000 + "a == 1",
        "a == " + "9" * 5000,
        "a == 1e999",
    ],
)
def test_bombs_are_refused(text: str) -> None:
    with pytest.raises(FilterError):
        parse(text)


def test_as_deep_as_is_allowed() -> None:
    assert parse("(" * MAX_DEPTH + "a == 1" + ")" * MAX_DEPTH) == A


@given(strategies.stateless | strategies.aggregating)
def test_text_and_back(tree: Filter) -> None:
    assert parse(to_text(tree)) == tree


@given(st.text("ab.=<>!&|()'\"` 019-^xandortruef\n", max_size=40))
def test_any_text_gives_a_tree_or_an_error_inside_it(text: str) -> None:
    tree, position = read(text)
    assert (tree is None) is (0 <= position <= len(text))
    assert tree is None or parse(to_text(tree)) == tree


def read(text: str) -> tuple[Filter | None, int]:
    """Returns the tree and -1, or None and the position of the error."""
    try:
        return parse(text), -1
    except FilterError as error:
        return None, error.position


def test_what_a_filter_reads() -> None:
    tree = parse("a == 1 or not (b.c > 2 and a < 3) and avg(d) > 1 and avg(d) < 9")
    assert fields(tree) == (Field(("a",)), Field(("b", "c")), Field(("d",)))
    assert aggregates(tree) == (Aggregate("avg", (Field(("d",)),)),)
