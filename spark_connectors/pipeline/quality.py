"""Findings about an epoch's data, as rows of the table `quality`. Pure.

| check | value |
| --- | --- |
| `host missing` | 1: a host of the network without an interval in the window |
| `intervals lost` | numbers that are missing between a boot's first and last |
| `intervals repeated` | records that an earlier record of the same interval precedes |
| `clock differs` | seconds by which a host's clock is ahead of the broker's; more than a minute |
| `late` | the same, below zero: a clock that is behind, or intervals that waited |
| `too late` | intervals that ended before the window, and count for no advice |
| `sampled` | the least share of receiver sets that was listed; below 1 |
| `impossible` | records that cannot be read, or whose values cannot be |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

CLOCK_SECONDS: Final = 60.0


class Boot(Struct, frozen=True):
    """The intervals of one boot of a host within a window. `ahead`, `behind`: the most seconds between the
    end of an interval by the host's clock and its append by the broker's.
    """

    host: str
    boot: int
    first: int
    last: int
    different: int
    records: int
    ahead: float
    behind: float
    sampled: float


class Finding(Struct, frozen=True, order=True):
    check: str
    host: str
    value: float
    text: str


def missing(expected: Iterable[str], seen: Iterable[str]) -> list[str]:
    """Returns the hosts of a network that have said nothing."""
    return sorted(set(expected) - set(seen))


def findings(
    boots: Iterable[Boot],
    faults: Iterable[tuple[str, str]],
    absent: Iterable[str],
    late: Mapping[tuple[str, int], int] | None = None,
) -> list[Finding]:
    """Returns all that is wrong. `faults`: (host, text) of each record that cannot be; `absent`: hosts;
    `late`: records by (host, boot) that ended before the window.
    """
    found = [Finding("host missing", host, 1.0, f"{host} has no interval in this window") for host in absent]
    for one in boots:
        found += _of_boot(one)
    for (host, boot), count in (late or {}).items():
        text = f"{host}, boot {boot}: {count} intervals ended before this window, and count for no advice"
        found.append(Finding("too late", host, float(count), text))
    by_text: dict[tuple[str, str], int] = {}
    for fault in faults:
        by_text[fault] = by_text.get(fault, 0) + 1
    found += [Finding("impossible", host, float(count), text) for (host, text), count in by_text.items()]
    return sorted(found)


def _of_boot(one: Boot) -> list[Finding]:
    found = []
    where = f"{one.host}, boot {one.boot}"
    lost = one.last - one.first + 1 - one.different
    if lost:
        text = f"{where}: {lost} of {one.last - one.first + 1} intervals are missing"
        found.append(Finding("intervals lost", one.host, float(lost), text))
    repeated = one.records - one.different
    if repeated:
        text = f"{where}: {repeated} records are repetitions"
        found.append(Finding("intervals repeated", one.host, float(repeated), text))
    if one.ahead > CLOCK_SECONDS:
        text = f"{where}: its clock is {one.ahead:.0f} s ahead of the broker's"
        found.append(Finding("clock differs", one.host, one.ahead, text))
    if one.behind > CLOCK_SECONDS:
        text = f"{where}: intervals arrive {one.behind:.0f} s after their end by its clock"
        found.append(Finding("late", one.host, -one.behind, text))
    if one.sampled < 1.0:
        text = f"{where}: {one.sampled:.4g} of its receiver sets are listed"
        found.append(Finding("sampled", one.host, one.sampled, text))
    return found
