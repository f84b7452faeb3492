"""Rules that don't fit their headers are refused at their place; contradictions are told; sizes are
bounded.
"""

from __future__ import annotations

from random import Random

import pytest

from treecast.middleware.filters.compiler.boxes import MAX_BOXES, Box, TooManyBoxes, product
from treecast.middleware.filters.compiler.compile import compile_rules
from treecast.middleware.filters.compiler.diagram import DiagramTooLarge
from treecast.middleware.filters.compiler.schema import Counter, Header, HeaderField, QueryField, Schema
from treecast.middleware.filters.compiler.statistics import combinations, one_big_table, sizes
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.rules import parse_rules

FIELDS = (HeaderField("stock", 64), HeaderField("price", 32), HeaderField("flag", 1), HeaderField("dst", 32))
SCHEMA = Schema(
    (Header("itch", FIELDS),),
    (),
    (
        QueryField("itch", "stock", 64, "exact"),
        QueryField("itch", "price", 32),
        QueryField("itch", "flag", 1),
        QueryField("itch", "dst", 32, "lpm"),
    ),
)
STATEFUL = Schema(SCHEMA.headers, (), SCHEMA.fields, (Counter("n", 100, 2),))


@pytest.mark.parametrize(
    ("text", "reason", "line", "column"),
    [
        ("price > 1 : drop\npric > 5 : drop", "there is no query field pric", 2, 1),
        ("price > 1 and stock == ABCDEFGHI : drop", "has 9 bytes, and stock holds 8", 1, 24),
        ("flag == 'x' : drop", "flag has 1 bits and holds no strings", 1, 1),
        ("price == true : drop", "price has 32 bits and is compared with true or false", 1, 1),
        ("dst == 10.0.0.256 : drop", "is no address for dst", 1, 8),
        ("dst prefix 10.0.0.0/33 : drop", "is no address prefix for dst", 1, 12),
        ("dst prefix 2001:db8::/32 : drop", "has another length than dst", 1, 12),
        ("price > 1 : go(1)", "there is no action go; there are fwd, drop", 1, 13),
        ("price > 1 : fwd(1)\navg(price) > 3 : drop", "declare a query_counter", 1, 1),
        ("stock > ABC : fwd(1)", "matched exactly, but values", 1, 1),
    ],
)
def test_refusals(text: str, reason: str, line: int, column: int) -> None:
    with pytest.raises(FilterError) as caught:
        compile_rules(SCHEMA, parse_rules(text))
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("max(price) > 3 : drop", "there is no function max"),
        ("sum() > 3 : drop", "sum takes a field"),
        ("count(price) > 3 : drop", "count takes no field"),
        ("sum(price, dst) > 3 : drop", "sum takes one field"),
        ("n == GO : drop", "n is a number"),
        ("price > 1 : m <- count()", "there is no counter m; the header description declares n"),
        ("price > 1 : n <- count()\nprice > 2 : n <- sum(price)", "n is updated in two ways"),
        ("count() > 1 and sum(price) > 1 : drop", "more state variables than there are counters"),
    ],
)
def test_refusals_of_state(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason.replace("(", r"\(")):
        compile_rules(STATEFUL, parse_rules(text))


def test_state_of_packets_that_never_meet_shares_a_block() -> None:
    rules = parse_rules("stock == A and count() > 1 : drop\nstock == B and sum(price) > 1 : fwd(1)")
    compiled = compile_rules(STATEFUL, rules)
    assert [(one.block, one.cell) for one in compiled.terms.variables] == [(0, 0), (0, 1)]


def test_contradictions_are_told() -> None:
    rules = parse_rules("price > 5 : fwd(1)\nprice > 5 and price < 3 : fwd(2)\nprice == 1.5 : fwd(3)")
    compiled = compile_rules(SCHEMA, rules)
    assert [rules.text.count("\n", 0, position) + 1 for position, _ in compiled.terms.warnings] == [2, 3]
    assert {effect.ports for effect in compiled.leaves} == {(), (1,)}


def test_a_diagram_that_explodes_is_refused() -> None:
    """Independent ranges of every field for every port."""
    rng = Random(1)
    fields = tuple(QueryField("h", f"v{n}", 16) for n in range(4))
    schema = Schema((Header("h", tuple(HeaderField(f"v{n}", 16) for n in range(4))),), (), fields)
    text = "".join(
        " and ".join(f"v{n} > {rng.randrange(60000)}" for n in range(4)) + f" : fwd({port})\n"
        for port in range(60)
    )
    with pytest.raises(DiagramTooLarge, match=r"more than 5,000 states at h\.v"):
        compile_rules(schema, parse_rules(text), max_states=5000)


def test_a_normal_form_that_explodes_is_refused() -> None:
    either = " and ".join(f"(price == {n} or dst == {n})" for n in range(40))
    wide = " and ".join(f"(v{n} > {n} or w{n} > {n})" for n in range(20))
    fields = tuple(QueryField("h", f"{name}{n}", 16) for name in "vw" for n in range(20))
    schema = Schema((Header("h", tuple(HeaderField(field.name, 16) for field in fields)),), (), fields)
    with pytest.raises(FilterError, match=f"more than {MAX_BOXES:,} terms"):
        compile_rules(schema, parse_rules(f"{wide} : fwd(1)"))
    assert compile_rules(SCHEMA, parse_rules(f"{either} : fwd(1)")).entries == 0


@pytest.mark.parametrize(("kind", "words"), [("range", 6), ("ternary", 3), ("lpm", 3), ("exact", 3)])
def test_ranges_as_prefixes_are_counted(kind: str, words: int) -> None:
    """[1, 14] of 4 bits is the worst case: a range of 2 * 4 - 2 prefixes; cheaper are 0, 15 and the rest."""
    header = Header("h", (HeaderField("v", 4), HeaderField("rest", 4)))
    schema = Schema((header,), (), (QueryField("h", "v", 4, kind),))
    compiled = compile_rules(schema, parse_rules("v >= 1 and v <= 14 : fwd(1)"))
    assert sum(one.words for one in sizes(compiled) if one.table != "leaf") == words


def test_one_big_table() -> None:
    """Three nested boxes: three regions, but seven sets of rules that meet; boxes apart add up."""
    compiled = compile_rules(
        SCHEMA, parse_rules("price > 1 : fwd(1)\nprice > 2 : fwd(2)\nprice > 3 : fwd(3)")
    )
    boxes = [term.box for term in compiled.terms.terms]
    assert one_big_table(boxes, 100) == 3
    assert combinations(boxes, 100) == 7
    crossed = compile_rules(SCHEMA, parse_rules("price > 1 : fwd(1)\ndst == 1.2.3.4 : fwd(2)"))
    assert one_big_table([term.box for term in crossed.terms.terms], 100) == 3
    assert one_big_table(boxes, 2) is None
    assert combinations(boxes, 2) is None


def test_pairs_of_boxes_are_bounded_before_they_are_formed() -> None:
    first: list[Box] = [((0, (number, number + 1)),) for number in range(1_000)]
    second: list[Box] = [((0, (number, number + 1)),) for number in range(1_000, 2_000)]
    assert product(first[:10], second) == []
    with pytest.raises(TooManyBoxes):
        product(first, second)
