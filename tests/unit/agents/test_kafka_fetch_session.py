"""A fetch session against a model of a broker: each request leaves the broker with exactly what is wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.kafka.fetch_session import FetchSession
from treecast.shims.kafka.codec_client import Asked

wanted = st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=6)
happens = st.sampled_from(["answered", "refused", "no room", "lost"])


def asked(places: dict[int, int]) -> list[Asked]:
    return [Asked("t", b"", number, offset, 100) for number, offset in places.items()]


class Broker:
    """The broker's side of KIP-227: an epoch that is not the next one is refused."""

    def __init__(self) -> None:
        self.session, self.epoch, self.ids = 0, 0, 0
        self.places: dict[int, int] = {}

    def take(self, session: FetchSession, places: dict[int, int], event: str) -> dict[int, int] | None:
        """Returns the places that are read; None if the request is refused or lost."""
        named = session.next(asked(places))
        if event == "lost":
            session.forget()
            self.session = 0
            return None
        if named.session_epoch and (named.session_id, named.session_epoch) != (self.session, self.epoch):
            assert not session.answered(71, 0)
            return None
        if named.session_epoch == 0:
            self.places = {}
            self.ids += event != "no room"
            self.session, self.epoch = (0 if event == "no room" else self.ids), 0
        self.places |= {one.partition: one.offset for one in named.asked}
        for one in named.forgotten:
            del self.places[one.partition]
        self.epoch += 1
        assert session.answered(0, self.session)
        if event == "refused":
            self.session = 0
        return self.places


@given(st.lists(st.tuples(wanted, happens), max_size=20))
def test_the_broker_reads_what_is_wanted(rounds: list[tuple[dict[int, int], str]]) -> None:
    session, broker = FetchSession(), Broker()
    refused = 0
    for places, event in rounds:
        read = broker.take(session, places, event)
        refused = refused + 1 if read is None else 0
        assert read is None or read == places
        assert refused <= 1 or event == "lost"


def test_what_is_quiet_is_not_named_again() -> None:
    session = FetchSession()
    first = session.next(asked({0: 1, 1: 5}))
    assert (len(first.asked), first.session_id, first.session_epoch) == (2, 0, 0)
    session.answered(0, 9)
    later = session.next(asked({0: 1, 1: 6}))
    assert [one.partition for one in later.asked] == [1]
    assert (later.session_id, later.session_epoch) == (9, 1)
    session.answered(0, 9)
    last = session.next(asked({1: 6}))
    assert (last.asked, [one.partition for one in last.forgotten]) == ([], [0])
    assert last.session_epoch == 2
