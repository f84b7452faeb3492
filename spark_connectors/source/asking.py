"""`DaemonCluster`: the driver's requests, over cached links, with one call per leader."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from treecast.middleware.api.discovery import Address
from treecast.middleware.load.frames import ClusterView, LoadError

from ..errors import ReadError
from ..links import LINKS
from ..servers import Servers
from .fetch import OFFSET_OUT_OF_RANGE, Answer, fetch_request
from .offset_frames import Found, offsets_request, parse_offsets
from .offsets import EARLIEST, LATEST, Offsets, Partition, TopicIds
from .options import Subscription
from .planning import Range

FIRST_S: Final = 3.0  # for the first answer of all: nobody may be there
_INTERNAL: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
_GONE: Final = 3
_AGAIN: Final = frozenset((_GONE, 5, 6, 7, 9, 13, 74, 75, 76, 78))  # leadership moves, or is not yet known
PAUSE_S: Final = 0.1
LOOKS: Final = 3  # at the topics, before a partition counts as gone


class DaemonCluster:
    """A `Cluster` by the protocol itself: for daemons, and for other brokers.

    Raises ReadError if none of `servers` answers for `timeout` seconds.
    """

    def __init__(self, servers: Servers, *, committed: bool, timeout: float) -> None:
        self._servers = servers
        self._committed = committed
        self._timeout = timeout
        self._first = min(timeout, FIRST_S)
        self._leaders: dict[Partition, Address] = {}
        self._ids: TopicIds = {}

    def partitions(self, subscription: Subscription) -> list[Partition]:
        """Returns partitions of existing topics; a topic subscribed by name is not created."""
        named = {part.topic for part in subscription.partitions} | set(subscription.topics)
        found = [
            Partition(topic, number)
            for topic, (_, leaders) in sorted(self._view(sorted(named) or None).topics.items())
            if named or topic not in _INTERNAL
            for number in sorted(leaders)
        ]
        return [partition for partition in found if subscription.takes(partition)]

    def topic_ids(self, partitions: Iterable[Partition]) -> TopicIds:
        topics = {partition.topic for partition in partitions}
        return {topic: self._ids[topic] for topic in topics & self._ids.keys()}

    def beyond(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Returns partitions whose leader confirms that the offset is out of range; a replica may answer
        ListOffsets.
        """
        return {partition for partition, offset in offsets.items() if self._is_beyond(partition, offset)}

    def _is_beyond(self, partition: Partition, offset: int) -> bool:
        deadline = time.monotonic() + self._timeout
        frame = fetch_request(
            Range(partition, offset, offset + 1), offset, committed=False, text=None, wait_ms=0
        )
        while True:
            self._learn({partition: LATEST})
            address = self._leaders.get(partition)
            if address is None:
                return False  # the partition is gone; the next look at the topics reports it
            try:
                with LINKS.lent(address, self._timeout) as link:
                    error = Answer(link.connection.call(frame)).error
            except (OSError, LoadError) as failed:
                said = str(failed)
            else:
                if error not in _AGAIN:
                    return error == OFFSET_OUT_OF_RANGE and self._ends(partition) < offset
                said = f"error {error}"
            self._leaders.pop(partition, None)
            if time.monotonic() > deadline:
                raise ReadError(f"{partition} at {self._servers} does not answer: {said}")
            time.sleep(PAUSE_S)

    def _ends(self, partition: Partition) -> int:
        """Returns its present end, -1 if it is gone: an offset out of range may also be before the log's
        start.
        """
        return self._offsets({partition: LATEST}).get(partition, -1)

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        found = self._offsets(times)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def close(self) -> None:
        LINKS.close()

    def _view(self, topics: list[str] | None) -> ClusterView:
        """Returns the answer of the first server that answers."""
        deadline = time.monotonic() + self._first
        while True:
            for _ in self._servers:
                try:
                    with LINKS.lent_any(self._servers, self._timeout) as link:
                        return self._noted(link.metadata(topics))
                except (OSError, LoadError) as error:
                    said = error
            if time.monotonic() > deadline:
                raise ReadError(f"no Kafka face answers at {self._servers}: {said}") from said
            time.sleep(PAUSE_S)

    def _noted(self, view: ClusterView) -> ClusterView:
        self._first = self._timeout
        for topic in view.topics:
            self._ids.pop(topic, None)
        self._ids.update(view.ids)
        for topic, (_, leaders) in view.topics.items():
            for number, node in leaders.items():
                self._leaders.pop(Partition(topic, number), None)
                if node in view.brokers:
                    self._leaders[Partition(topic, number)] = Address(*view.brokers[node])
        return view

    def _offsets(self, times: Mapping[Partition, int]) -> Offsets:
        """Returns offsets of the existing partitions."""
        found: Offsets = {}
        left = dict(times)
        deadline = time.monotonic() + self._timeout
        while True:
            self._learn(left)
            said = self._asked(left, found)
            if not left:
                return found
            if time.monotonic() > deadline:
                raise ReadError(f"the cluster at {self._servers} does not answer: {said}")
            time.sleep(PAUSE_S)

    def _learn(self, left: dict[Partition, int]) -> None:
        """Finds the leaders of `left`; removes partitions that do not exist, as several answers say: one can
        come from a broker that has just started.
        """
        for attempt in range(LOOKS):
            strange = [partition for partition in left if partition not in self._leaders]
            if not strange:
                return
            view = self._view(sorted({partition.topic for partition in strange}))
            gone = [partition for partition in strange if _is_gone(view, partition)]
            if not gone:
                return
            if attempt < LOOKS - 1:
                time.sleep(PAUSE_S)
        for partition in gone:
            del left[partition]

    def _asked(self, left: dict[Partition, int], found: Offsets) -> str:
        """Asks each leader once, and moves answers from `left` to `found`. Returns the reason why some are
        left.
        """
        said = "partitions have no leader"
        by_leader: dict[Address, dict[Partition, int]] = {}
        for partition in [partition for partition in left if partition in self._leaders]:
            by_leader.setdefault(self._leaders.pop(partition), {})[partition] = left[partition]
        for address, times in by_leader.items():
            try:
                with LINKS.lent(address, self._timeout) as link:
                    frame = offsets_request(times, committed=self._committed)
                    answers = parse_offsets(link.connection.call(frame))
            except (OSError, LoadError) as error:
                said = str(error)
                continue
            for partition in times:
                answer = answers.get(partition, Found(_GONE, -1))
                if not answer.error:
                    self._leaders[partition] = address
                    found[partition] = answer.offset
                    del left[partition]
                elif answer.error in _AGAIN:
                    said = f"{partition}: error {answer.error}"
                else:
                    raise ReadError(f"{partition} at {address}: ListOffsets was answered with {answer.error}")
        return said


def _is_gone(view: ClusterView, partition: Partition) -> bool:
    error, leaders = view.topics.get(partition.topic, (_GONE, {}))
    return error == _GONE or (not error and partition.number not in leaders)
