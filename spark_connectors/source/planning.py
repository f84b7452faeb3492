"""Planning of a read: start and end, the amount per trigger, and the division into tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import pairwise

from msgspec import Struct

from .offsets import Offsets, Partition, Place, made_anew, names


class Range(Struct, frozen=True):
    """Offsets from `first` up to, not including, `until` of one partition."""

    partition: Partition
    first: int
    until: int

    def __len__(self) -> int:
        return self.until - self.first


def begun_again(start: Place, end: Place) -> Place:
    """Returns `start` without the offsets of recreated topics: these are read from their beginning."""
    return _without(start, set(made_anew(start.ids, end.ids)))


def begun_again_unknown(start: Place, end: Place) -> Place:
    """Returns the same for topics without an id in the checkpoint that end before the checkpoint's offset:
    they may have been recreated, so they are read completely. `end` is from leaders.
    """
    shorter = (part for part, offset in start.offsets.items() if end.offsets.get(part, offset) < offset)
    return _without(start, {part.topic for part in shorter if part.topic not in start.ids})


def _without(place: Place, topics: Set[str]) -> Place:
    offsets = {part: offset for part, offset in place.offsets.items() if part.topic not in topics}
    return Place(offsets, {topic: known for topic, known in place.ids.items() if topic not in topics})


def anew_text(start: Place, end: Place) -> list[str]:
    """Returns a line about the loss for each recreated topic."""
    return [
        f"{topic} was deleted and created again: the query has read the topic with id {start.ids[topic]},"
        f" and nothing of the present one with id {end.ids[topic]}"
        for topic in made_anew(start.ids, end.ids)
    ]


def limited(start: Mapping[Partition, int], latest: Mapping[Partition, int], max_rows: int) -> Offsets:
    """Returns the end of a trigger that takes at most `max_rows` offsets, in proportion to each partition's
    backlog, but at least one of each partition that has any: else a small one would wait until large ones are
    read, and its rows be late. So more partitions than `max_rows` exceed it.

    Rounding remainders go to the partitions that lost most by it; so the sum is `max_rows` if that many wait.
    A partition that ends before its start has lost records: it ends where it does, so that the plan notices.
    """
    begun = {partition: min(start.get(partition, 0), latest[partition]) for partition in sorted(latest)}
    waiting = {part: latest[part] - first for part, first in begun.items() if latest[part] > first}
    if sum(waiting.values()) <= max_rows:
        return dict(latest)
    more = _shared({part: count - 1 for part, count in waiting.items()}, max(0, max_rows - len(waiting)))
    return begun | {part: begun[part] + 1 + more[part] for part in waiting}


def _shared(waiting: Mapping[Partition, int], rows: int) -> dict[Partition, int]:
    """Returns the shares of `rows` in proportion to what waits, which is not less."""
    total = max(1, sum(waiting.values()))
    shares = {part: divmod(rows * count, total) for part, count in waiting.items()}
    left = rows - sum(whole for whole, _ in shares.values())
    by_loss = sorted(shares, key=lambda part: -shares[part][1])
    favoured = set(by_loss[:left])
    return {part: whole + (part in favoured) for part, (whole, _) in shares.items()}


def ranges(
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    losses: list[str],
) -> list[Range]:
    """Returns the ranges between two offsets, in order, without empty ones.

    `earliest` are the present starts of the logs. Offsets that are gone, or will never exist, are left out,
    and `losses` gets a line for each such partition.
    """
    gone = sorted(set(start) - set(end))
    if gone:
        losses.append(f"{names(gone)}: no longer there")
    found: list[Range] = []
    for partition in sorted(end):
        until = end[partition]
        log_start = earliest.get(partition, 0)
        first = start.get(partition, log_start)
        if first > until:
            losses.append(f"{partition}: read up to {first}, but it ends at {until}")
        elif first < log_start and first < until:
            losses.append(f"{partition}: offsets {first} to {min(log_start, until) - 1} are gone")
            first = log_start
        if first < until:
            found.append(Range(partition, first, until))
    return found


def unproven(
    start: Mapping[Partition, int], end: Mapping[Partition, int], known: Mapping[Partition, int]
) -> Offsets:
    """Returns ends of what is still to be read that are not within the `known` ends of the logs: those of a
    checkpoint's plan or of an option may lie beyond.
    """
    return {
        part: until
        for part, until in end.items()
        if start.get(part, 0) < until and known.get(part, -1) < until
    }


def cut_back(
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
    present: Mapping[Partition, int],
    beyond: Set[Partition],
    losses: list[str],
) -> Offsets:
    """Returns `end` without offsets that do not exist, of the partitions in `beyond`: their logs end at
    `present`, or they are not there. `losses` gets a line for each, unless the log ends before `start`, which
    `ranges` reports.
    """
    found = dict(end)
    for part in sorted(beyond):
        first, last = start.get(part, 0), present.get(part)
        found[part] = first if last is None else last
        if last is None:
            losses.append(f"{part}: to be read up to {end[part]}, but it is no longer there")
        elif first <= last:
            losses.append(f"{part}: to be read up to {end[part]}, but it ends at {last}")
    return found


def loss_text(losses: list[str]) -> str:
    """Returns a text about the loss and how to continue."""
    return (
        f"records are lost that the query has not read: {'; '.join(losses)}. Retention, DeleteRecords or a "
        "topic that was created again can be the reason. To continue without them, set failOnDataLoss to "
        "false, or start with a new checkpoint"
    )


def delayed(
    start: Mapping[Partition, int], latest: Mapping[Partition, int], min_rows: int, waited: float, most: float
) -> bool:
    """Returns whether a trigger waits for more: fewer than `min_rows` new offsets, and less than `most`
    seconds since the last one that did not wait.
    """
    new = sum(max(0, until - start.get(part, 0)) for part, until in latest.items())
    return new < min_rows and waited < most


def at_most(whole: list[Range], most: int) -> list[Range]:
    """Returns ranges of at most `most` offsets each, cut evenly; 0: as they are."""
    if not most:
        return whole
    found: list[Range] = []
    for part in whole:
        found += _cut(part, -(-len(part) // most))
    return found


def _cut(part: Range, pieces: int) -> list[Range]:
    bounds = [part.first + len(part) * number // pieces for number in range(pieces + 1)]
    return [Range(part.partition, first, until) for first, until in pairwise(bounds)]


def split(whole: list[Range], min_partitions: int) -> list[Range]:
    """Returns at least `min_partitions` ranges if there are enough offsets, by cutting large ones."""
    total = sum(len(part) for part in whole)
    if min_partitions <= len(whole) or total == 0:
        return whole
    found: list[Range] = []
    for part in whole:
        found += _cut(part, min(len(part), max(1, -(-min_partitions * len(part) // total))))
    return found
