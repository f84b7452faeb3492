"""Rule files: what they say, and where they are wrong."""

from __future__ import annotations

import pytest

from treecast.middleware.filters.actions import Custom, Drop, Forward, Update
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.rules import parse_rules
from treecast.middleware.filters.tree import EVERYTHING, Constraint, Field

FILE = """
# of the papers
stock == GOOGL: fwd(1)
stock == GOOGL : fwd(3,2,2,1);
x > 10 ∧ x < 20 ∧ y > 30 and y < 40
    and spd > 55: fwd(1);  // may go over several lines
name == h105: answerDNS(10.0.0.105)
ip.dst == 192.168.0.1:drop
ip.dst prefix 2001:db8::/32 : drop()
stock == GOOGL and avg(price) > 60 : fwd(1), seen <- count(), total <- sum(price)
count() > 3: mark(1, "two", true)
true : drop
default : fwd(9)
"""


def test_a_file() -> None:
    found = parse_rules(FILE)
    assert [rule.actions for rule in found.rules] == [
        (Forward((1,)),),
        (Forward((1, 2, 3)),),
        (Forward((1,)),),
        (Custom("answerDNS", ("10.0.0.105",)),),
        (Drop(),),
        (Drop(),),
        (Forward((1,)), Update("seen", "count", ()), Update("total", "sum", (Field(("price",)),))),
        (Custom("mark", (1, "two", True)),),
        (Drop(),),
    ]
    assert found.default == (Forward((9,)),)
    assert found.rules[2].filter == parse("x > 10 and x < 20 and y > 30 and y < 40 and spd > 55")
    assert found.rules[-1].filter == EVERYTHING
    assert [FILE.count("\n", 0, rule.position) + 1 for rule in found.rules] == [3, 4, 5, 7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("a == 10.0.0.1:fwd(1)", "10.0.0.1"),
        ("a == 2001:db8::1:fwd(1)", None),
        ("a == fe80::1 : fwd(1)", "fe80::1"),
        ("a == 00:1b:21:00:00:01 : fwd(1)", "00:1b:21:00:00:01"),
    ],
)
def test_addresses_beside_the_colon_of_an_action(text: str, constant: str | None) -> None:
    """An address may end in a colon, so that one right behind it is not an action's."""
    if constant is None:
        with pytest.raises(FilterError):
            parse_rules(text)
        return
    tree = parse_rules(text).rules[0].filter
    assert isinstance(tree, Constraint)
    assert tree.constant == constant


def test_default_is_a_field_too() -> None:
    found = parse_rules("default == 3 : fwd(1)")
    assert found.default == ()
    assert len(found.rules) == 1


@pytest.mark.parametrize(
    ("text", "reason", "line", "column"),
    [
        ("a > 1", "':' and an action is wanted, but the filter ends", 1, 6),
        ("a > 1 : fwd()", "fwd needs a port", 1, 9),
        ("a > 1 :\n  fwd(511)", "511 is no port: a number from 0 to 510", 2, 3),
        ("a > 1 : fwd(x)", "x is no port", 1, 9),
        ("a > 1 : fwd(1", "',' or ')' is wanted, but the filter ends", 1, 14),
        ("a > 1 : fwd(1)\nb > : drop", "a number or a string is wanted, but there is ':'", 2, 5),
        ("a > 1 : n <- max(b)", "count, sum or avg is wanted", 1, 14),
        ("a > 1 : n <- avg()", "avg takes a field", 1, 14),
        ("a > 1 : n <- count(b)", "count takes no field", 1, 14),
        (": drop", "`true` matches every packet", 1, 1),
        ("default: drop\ndefault: drop", "two default rules", 2, 1),
        ("a > 1 : 5", "an action, such as fwd(1) is wanted", 1, 9),
        ("a > 1 :\n\n   @", "starts no token", 3, 4),
        ("a > 1 : drop\nb > 1" + " and b > 1" * 7000 + ": drop", "a filter has at most 65,536", 2, 1),
    ],
)
def test_errors_name_line_and_column(text: str, reason: str, line: int, column: int) -> None:
    with pytest.raises(FilterError) as caught:
        parse_rules(text)
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)
