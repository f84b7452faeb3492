"""The driver's view of a cluster: topics, and the starts and ends of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Protocol

from ..errors import OptionError, ReadError
from .offsets import EARLIEST, LATEST, Offsets, Partition, TopicIds, names
from .options import Bound, Subscription


class Cluster(Protocol):
    """The interface. Partitions that disappeared meanwhile are left out of an answer."""

    def partitions(self, subscription: Subscription) -> list[Partition]: ...

    def topic_ids(self, partitions: Iterable[Partition]) -> TopicIds:
        """Returns the ids of these topics, from the last call of `partitions`."""

    def beyond(self, offsets: Mapping[Partition, int]) -> set[Partition]:
        """Returns partitions whose leader reports that their log ends before the offset."""

    def earliest(self, partitions: Iterable[Partition]) -> Offsets: ...

    def latest(self, partitions: Iterable[Partition]) -> Offsets: ...

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """Returns the first offset at or after a time (ms); None if there is none."""

    def close(self) -> None: ...


def resolve(cluster: Cluster, partitions: Iterable[Partition], bound: Bound, option: str) -> Offsets:
    """Returns the offset of each partition that `bound` means.

    Raises OptionError if it names partitions that are not read or only some of those that are, or a time that
    nothing is at or after.
    """
    read = list(partitions)
    _check_named(set(bound.offsets) | set(bound.times), set(read), option)
    times = dict.fromkeys(read, bound.time) if bound.time is not None else dict(bound.times)
    at_times = cluster.at_times({partition: time for partition, time in times.items() if time is not None})
    wanted = {partition: bound.offsets.get(partition, bound.everywhere) for partition in read}
    for partition in times:
        offset = at_times.get(partition)
        if offset is None and bound.strict_time:
            raise OptionError(
                f"{option}: {partition} has no record at or after {times[partition]}; set "
                f"{option}ByTimestampStrategy to latest to take its end"
            )
        wanted[partition] = LATEST if offset is None else offset
    return _numbers(cluster, wanted)


def _check_named(named: Set[Partition], read: Set[Partition], option: str) -> None:
    """A bound by partition names each one: there is no offset that is right for a forgotten one."""
    if strange := named - read:
        raise OptionError(f"{option} names {names(strange)}, which the query does not read")
    if named and (missing := read - named):
        raise OptionError(
            f"{option} does not name {names(missing)}, which the query reads: name each partition, with -2 "
            "for its earliest offset and -1 for its latest, or with a time"
        )


def _numbers(cluster: Cluster, wanted: Mapping[Partition, int]) -> Offsets:
    """Returns the offsets with EARLIEST and LATEST asked for. Raises ReadError for partitions that are not
    there any more.
    """
    found = dict(wanted)
    found.update(cluster.earliest(part for part, offset in wanted.items() if offset == EARLIEST))
    found.update(cluster.latest(part for part, offset in wanted.items() if offset == LATEST))
    if gone := {part for part, offset in found.items() if offset < 0}:
        raise ReadError(f"{names(gone)} disappeared while the read was planned; start it again")
    return found
