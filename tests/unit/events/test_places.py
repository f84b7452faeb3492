"""A topic that moves to another stream waits, at each host, for its earlier messages to that host."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.relay.events.stream import Places

HOSTS = (2, 3, 4)


class Stream:
    """The part of a stream that places use."""

    def __init__(self, *members: int) -> None:
        self.members = set(members)


def forget(places: Places, stream: Any) -> None:
    places.forget(stream)


def moves(places: Places, *streams: Stream, topic: bytes = b"t") -> list[Stream]:
    """Returns the streams that the last of these moves waits for."""
    given: Any = streams
    return [places.move(topic, stream) for stream in given][-1]


def test_a_topic_waits_for_the_stream_before_where_a_host_receives_both() -> None:
    both, two, three = Stream(2, 3), Stream(2), Stream(3)
    assert moves(Places(9), both, both) == []
    assert moves(Places(9), both, two) == [both]
    assert moves(Places(9), two, three) == []


def test_a_stream_of_other_hosts_in_between_is_no_end_of_the_wait() -> None:
    both, two, three = Stream(2, 3), Stream(2), Stream(3)
    assert moves(Places(9), both, three, two) == [both]
    assert moves(Places(9), two, three, both) == [two, three]
    assert moves(Places(9), both, three, two, both) == [three, two]


def test_a_forgotten_stream_is_not_waited_for() -> None:
    both, two, three = Stream(2, 3), Stream(2), Stream(3)
    places = Places(9)
    moves(places, both, three)
    forget(places, both)
    assert moves(places, two) == []


def test_forgotten_topics_went_by_all_that_was_in_use() -> None:
    both, two = Stream(2, 3), Stream(2)
    places = Places(2)
    moves(places, both, topic=b"a")
    moves(places, two, topic=b"b")
    moves(places, two, topic=b"c")
    assert moves(places, two, topic=b"a") == [both]


SETS = st.lists(st.sets(st.sampled_from(HOSTS), min_size=1), min_size=1, max_size=4)


@given(SETS, st.lists(st.integers(0, 3), max_size=20))
def test_waits_lead_back_to_all_that_came_to_a_host(sets: list[set[int]], order: list[int]) -> None:
    """For each host, every message of the topic waits directly or indirectly for all earlier ones."""
    streams: list[Any] = [Stream(*hosts) for hosts in sets]
    places = Places(9)
    placed: list[Any] = []
    behind: dict[int, set[int]] = {}  # by message number and host: the messages that it waits for
    for number, at in enumerate(order):
        stream = streams[at % len(streams)]
        waited = [earlier for earlier, other in enumerate(placed) if other is stream]
        for other in places.move(b"t", stream):
            waited += [earlier for earlier, one in enumerate(placed) if one is other]
        placed.append(stream)
        for host in stream.members:
            here = {one for one in waited if host in placed[one].members}
            known = here.union(*(behind.get((one * 10 + host), set()) for one in here))
            behind[number * 10 + host] = known
            assert known == {one for one in range(number) if host in placed[one].members}
