"""How a read is cut: where it begins and ends, how much a trigger takes, which task reads what. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from msgspec import Struct

from ..errors import DataLossError
from .offsets import Offsets, Partition, names


class Range(Struct, frozen=True):
    """Offsets from `first` up to, not including, `until` of one partition."""

    partition: Partition
    first: int
    until: int

    def __len__(self) -> int:
        return self.until - self.first


def limited(start: Mapping[Partition, int], latest: Mapping[Partition, int], max_rows: int) -> Offsets:
    """Where a trigger ends that takes `max_rows` offsets at most: of each partition by what waits.

    What rounding leaves goes to those that lost most by it; so the sum is `max_rows` where so many wait.
    """
    waiting = {partition: max(0, latest[partition] - start.get(partition, 0)) for partition in sorted(latest)}
    total = sum(waiting.values())
    if total <= max_rows:
        return {partition: max(latest[partition], start.get(partition, 0)) for partition in waiting}
    shares = {partition: divmod(max_rows * count, total) for partition, count in waiting.items()}
    left = max_rows - sum(whole for whole, _ in shares.values())
    by_loss = sorted(shares, key=lambda partition: -shares[partition][1])
    favoured = set(by_loss[:left])
    return {
        partition: start.get(partition, 0) + whole + (partition in favoured)
        for partition, (whole, _) in shares.items()
    }


def ranges(
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
    earliest: Mapping[Partition, int],
    *,
    fail_on_data_loss: bool,
) -> list[Range]:
    """What is to be read between two offsets, in order, without empty ranges.

    `earliest` are the starts of the logs now. DataLossError where offsets between the two are gone, or never
    will be; without `fail_on_data_loss` they are left out.
    """
    losses: list[str] = []
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
    if losses and fail_on_data_loss:
        raise DataLossError(loss_text(losses))
    return found


def loss_text(losses: list[str]) -> str:
    """What is lost, and how to go on."""
    return (
        f"records are lost that the query has not read: {'; '.join(losses)}. Retention, DeleteRecords or a "
        "topic made anew can be the reason. To go on without them set failOnDataLoss to false, or begin anew "
        "with another checkpoint"
    )


def split(whole: list[Range], min_partitions: int) -> list[Range]:
    """At least `min_partitions` ranges where there are so many offsets: large ones are cut."""
    total = sum(len(part) for part in whole)
    if min_partitions <= len(whole) or total == 0:
        return whole
    found: list[Range] = []
    for part in whole:
        pieces = min(len(part), max(1, -(-min_partitions * len(part) // total)))
        bounds = [part.first + len(part) * number // pieces for number in range(pieces + 1)]
        found += [Range(part.partition, first, until) for first, until in pairwise(bounds)]
    return found
