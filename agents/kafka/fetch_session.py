"""`FetchSession`: what a broker is told of a fetch, and what it remembers (KIP-227). Without I/O.

A broker keeps the partitions of a session. A request then names those whose place has changed, and an answer
those with news: what is quiet costs no bytes, however many partitions there are.

    none --request of all--> begun --requests of changes--> begun      begun --refused, lost--> none
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from treecast.shims.kafka.codec_client import Asked

_LAST: Final = 0x7FFF_FFFF

# FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR, UNKNOWN_TOPIC_ID,
# INCONSISTENT_TOPIC_ID: the broker has another session in mind, or another topic
REFUSED: Final = frozenset({70, 71, 106, 100, 103})


class Named(Struct, frozen=True):
    """The fields of the next request."""

    asked: list[Asked]
    forgotten: list[Asked]
    session_id: int
    session_epoch: int


Place = tuple[bytes, str, int]


class FetchSession:
    """The session with one broker on one connection."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[Place, Asked] = {}

    def next(self, wanted: Sequence[Asked]) -> Named:
        """Returns the next request for all of `wanted`; it counts as sent."""
        places = {(one.topic_id, one.topic, one.partition): one for one in wanted}
        if not self._id:
            self._known = places
            return Named(list(wanted), [], 0, 0)
        changed = [one for place, one in places.items() if self._known.get(place) != one]
        gone = [one for place, one in self._known.items() if place not in places]
        self._known = places
        return Named(changed, gone, self._id, self._epoch)

    def answered(self, code: int, session_id: int) -> bool:
        """Takes note of an answer. Returns whether its partitions count: if not, all are asked for again.

        A broker without room for a session answers with id 0, and each request is then for all.
        """
        if code in REFUSED:
            self.forget()
            return False
        self._id = session_id
        self._epoch = self._epoch + 1 if self._epoch < _LAST else 1
        if not session_id:
            self.forget()
        return True

    def forget(self) -> None:
        """Begins a session with the next request."""
        self._id = self._epoch = 0
        self._known = {}
