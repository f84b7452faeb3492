"""Topic names: every face's spelling round-trips, and the escapes are unambiguous."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topics import TopicName, check_kafka_name

LEVEL = st.one_of(
    st.text(max_size=6),
    st.text(alphabet="-x2DE./ab", max_size=8),
).filter(lambda level: level.encode("utf-8", "ignore").decode() == level)
LEVELS = st.lists(LEVEL, min_size=1, max_size=4).map(tuple)


FACES: list[tuple[Callable[[TopicName], str], Callable[[str], TopicName]]] = [
    (TopicName.to_kafka, TopicName.from_kafka),
    (TopicName.to_amqp, TopicName.from_amqp),
    (TopicName.to_mqtt, TopicName.from_mqtt),
]


def spelling(name: TopicName, spell: Callable[[TopicName], str]) -> str | None:
    """Returns a face's spelling of the name, or None if the face refuses it."""
    try:
        return spell(name)
    except TreecastError as error:
        return None if error.fault is Fault.INVALID_TOPIC else error.detail


@given(LEVELS)
def test_every_spelling_goes_there_and_back(levels: tuple[str, ...]) -> None:
    name = TopicName(levels)
    for spell, read in FACES:
        spelled = spelling(name, spell)
        assert spelled is None or read(spelled) == name


@given(LEVELS)
def test_kafka_spellings_are_legal_topic_names(levels: tuple[str, ...]) -> None:
    spelled = spelling(TopicName(levels), TopicName.to_kafka)
    assert spelled is None or re.fullmatch(r"[A-Za-z0-9._-]{1,249}", spelled)


@given(LEVELS, LEVELS)
def test_two_names_are_never_spelled_alike(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    for spell, _ in FACES:
        first, second = spelling(TopicName(one), spell), spelling(TopicName(other), spell)
        assert one == other or first is None or first != second


@pytest.mark.parametrize(
    ("mqtt", "kafka", "amqp"),
    [
        ("a/b/c", "a.b.c", "a.b.c"),
        ("a//c", "a..c", "a..c"),
        ("a.b/c", "a-x2Eb.c", "a-x2Eb.c"),
        ("a b", "a-x20b", "a b"),
        ("ä", "-xC3-xA4", "ä"),
        ("a-x2E", "a-x2Dx2E", "a-x2Dx2E"),
        ("a-x2e", "a-x2e", "a-x2e"),
    ],
)
def test_spellings(mqtt: str, kafka: str, amqp: str) -> None:
    name = TopicName.from_mqtt(mqtt)
    assert name.to_kafka() == kafka
    assert name.to_amqp() == amqp
    assert TopicName.from_kafka(kafka) == TopicName.from_amqp(amqp) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\n"])
def test_names_that_kafka_refuses(name: str) -> None:
    with pytest.raises(TreecastError) as refused:
        check_kafka_name(name)
    assert refused.value.fault is Fault.INVALID_TOPIC


def test_an_escape_that_is_no_text_is_refused() -> None:
    with pytest.raises(TreecastError):
        TopicName.from_kafka("-xFF")
