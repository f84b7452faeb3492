"""Filters of subscriptions: values that test a message as a reader's filter tests the record of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.filters import filter_strategies as strategies

from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.evaluate import StatefulFilterError
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.filters.tree import Filter
from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import Wish

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.dictionaries(NAMES, st.none() | st.integers(-9, 9) | st.sampled_from(["x", "1"]))


def passes(text: str, record: Record, topic: str = "t/a") -> bool:
    return StatelessFilter(parse(text)).passes(topic, record)


@given(strategies.stateless, VALUES)
def test_it_passes_what_the_filter_of_a_reader_selects(tree: Filter, values: dict[str, object]) -> None:
    text = "{" + ",".join(f'"{name}":{_json(value)}' for name, value in values.items()) + "}"
    record = Record(b"key", text.encode(), (("h", b"v"),), 1_700_000_000_000, 7)
    assert StatelessFilter(tree).passes("t", record) == RecordFilter(tree, "t", 0).matches(record)


def _json(value: object) -> str:
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)


@pytest.mark.parametrize(
    "text",
    ['topic == "t/a"', "headers.unit == EUR", "value prefix plain", "not partition == 0", "not offset < 5"],
)
def test_fields_of_a_message(text: str) -> None:
    assert passes(text, Record(None, b"plain text", (("unit", b"EUR"),)))


@pytest.mark.parametrize(
    "text", ["partition == 0", "offset < 5", "timestamp < 5", "key == a", 'topic == "t.a"']
)
def test_a_message_has_no_place_in_a_log(text: str) -> None:
    assert not passes(text, Record(None, b"", ()))


def test_filters_of_the_same_text_are_one_wish() -> None:
    one, other = StatelessFilter(parse("a=1 && b>2")), StatelessFilter(parse("a == 1 and b > 2"))
    wishes = {Wish(("t",), one), Wish(("t",), other), Wish(("t",)), Wish(("u",), one)}
    assert (len(wishes), one.text) == (3, "a == 1 and b > 2")


def test_a_filter_that_needs_state_is_refused() -> None:
    with pytest.raises(StatefulFilterError):
        StatelessFilter(parse("avg(a) > 1"))
