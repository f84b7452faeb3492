"""Consumers' assignments in their documented layout, and arbitrary bytes in their place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.daemon.consumer_assignment import assigned_partitions


def encode(topics: dict[str, list[int]], user_data: bytes = b"") -> bytes:
    """Encodes a ConsumerProtocolAssignment, version 1."""
    out = (1).to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic, partitions in topics.items():
        out += len(topic.encode()).to_bytes(2, "big") + topic.encode()
        out += len(partitions).to_bytes(4, "big") + b"".join(p.to_bytes(4, "big") for p in partitions)
    return out + len(user_data).to_bytes(4, "big") + user_data


TOPICS = st.dictionaries(st.text(max_size=20), st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=4)


@given(TOPICS, st.binary(max_size=10))
def test_topics_and_partitions(topics: dict[str, list[int]], user_data: bytes) -> None:
    found = assigned_partitions(encode(topics, user_data))
    assert {topic: list(partitions) for topic, partitions in found} == topics


@given(TOPICS, st.data())
def test_a_cut_assignment_gives_nothing(topics: dict[str, list[int]], data: st.DataObject) -> None:
    whole = encode(topics)[:-4]
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert assigned_partitions(whole[:cut]) == ()


@given(st.binary(max_size=200))
def test_arbitrary_bytes_do_no_harm(data: bytes) -> None:
    assigned_partitions(data)


def test_a_count_that_lies_is_not_believed() -> None:
    lie = (
        (1).to_bytes(2, "big")
        + (1).to_bytes(4, "big")
        + (0).to_bytes(2, "big")
        + (2**31 - 1).to_bytes(4, "big")
    )
    assert assigned_partitions(lie) == ()
