"""The deltas of an interval: packets by set of receivers, records by stream and receiver.

    tally = Tally(most=256)
    tally.add(hosts, packets, size, header)     # per burst
    taken = tally.take()                        # the interval's counts; the next interval begins

Both are bounded. Of more than `most` sets a share is kept: a half, a quarter and so on, chosen by a hash of
the set, so that a kept set is counted in full (adaptive sampling; Flajolet, On adaptive sampling, 1990).
`sampled` is that share; the totals always count everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

Hosts = tuple[int, ...]

SETS: Final = 256  # receiver sets listed per interval
STREAMS: Final = 1024  # pairs of stream and receiver listed per interval
_LEAST_SHARE: Final = 30  # halvings


class Header(Struct, frozen=True):
    """The stack of one packet to a set: labels by kind, and the trees' ids."""

    size: int = 0  # bytes
    hops: int = 0
    stops: int = 0
    trees: tuple[int, ...] = ()
    version: int = 0  # of the trees


class SetCount(Struct):
    """Packets to one set of receivers with one header. `size`: bytes of segments."""

    header: Header
    packets: int = 0
    size: int = 0


class Taken(Struct, frozen=True):
    """The counts of an interval. `sets`: (receivers, count)."""

    packets: int = 0
    size: int = 0
    sampled: float = 1.0
    sets: tuple[tuple[Hosts, SetCount], ...] = ()


class Tally:
    """The present interval of one carrier. `most`: limit of listed sets."""

    def __init__(self, most: int = SETS) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._packets = 0
        self._size = 0
        self._halvings = 0
        self._sets: dict[tuple[Hosts, int], SetCount] = {}

    def add(self, hosts: Hosts, packets: int, size: int, header: Header) -> None:
        """Counts a burst to a set of hosts, which are in ascending order."""
        self._packets += packets
        self._size += size
        if not self._is_kept(hosts):
            return
        key = (hosts, header.version)
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = SetCount(header)
        found.packets += packets
        found.size += size
        while len(self._sets) > self._most and self._halvings < _LEAST_SHARE:
            self._halvings += 1
            self._sets = {key: one for key, one in self._sets.items() if self._is_kept(key[0])}

    def _is_kept(self, hosts: Hosts) -> bool:
        # Python hashes numbers alike in every process; the upper bits differ for neighbouring numbers too.
        return not self._halvings or not hash(hosts) >> 8 & (1 << self._halvings) - 1

    def take(self) -> Taken:
        """Returns the counts since the last call."""
        sets = tuple([(hosts, count) for (hosts, _), count in sorted(self._sets.items())])
        taken = Taken(self._packets, self._size, 0.5**self._halvings, sets)
        self._begin()
        return taken


class Standing(Struct, frozen=True):
    """Records of a stream for a receiver since the account began. `repaired`, `replayed`: of `received`."""

    addressed: int = 0
    received: int = 0
    filtered: int = 0
    lost: int = 0
    repaired: int = 0
    replayed: int = 0

    def plus(self, other: Standing) -> Standing:
        return Standing(
            self.addressed + other.addressed,
            self.received + other.received,
            self.filtered + other.filtered,
            self.lost + other.lost,
            self.repaired + other.repaired,
            self.replayed + other.replayed,
        )

    def since(self, before: Standing) -> Standing:
        """Returns the growth. An account that has fallen was lost, and counts from here on."""
        if self.addressed < before.addressed:
            return Standing()
        return Standing(
            self.addressed - before.addressed,
            max(0, self.received - before.received),
            max(0, self.filtered - before.filtered),
            max(0, self.lost - before.lost),
            max(0, self.repaired - before.repaired),
            max(0, self.replayed - before.replayed),
        )

    @property
    def moved(self) -> bool:
        return bool(self.addressed or self.received or self.filtered or self.lost)


Pair = tuple[str, str]  # stream, receiver


class Moved(Struct, frozen=True):
    """The growth of accounts in an interval; the busiest are listed."""

    pairs: tuple[tuple[Pair, Standing], ...] = ()
    left_out: int = 0
    records_left_out: int = 0


class Growth:
    """Turns cumulative accounts into deltas. `most`: limit of listed pairs.

    The first accounts are only noted: they may be those of earlier runs.
    """

    def __init__(self, most: int = STREAMS) -> None:
        self._most = most
        self._before: dict[Pair, Standing] | None = None

    def take(self, now: Iterable[tuple[Pair, Standing]]) -> Moved:
        """Takes the present accounts; a pair that is given twice is added up."""
        present: dict[Pair, Standing] = {}
        for pair, standing in now:
            known = present.get(pair)
            present[pair] = standing if known is None else known.plus(standing)
        before, self._before = self._before, present
        return Moved() if before is None else self._moved(before, present)

    def _moved(self, before: Mapping[Pair, Standing], present: Mapping[Pair, Standing]) -> Moved:
        grown = [(pair, one.since(before.get(pair, Standing()))) for pair, one in present.items()]
        grown = [(pair, one) for pair, one in grown if one.moved]
        if len(grown) > self._most:
            grown.sort(key=lambda item: (-item[1].addressed, item[0]))
        rest = grown[self._most :]
        return Moved(
            tuple(sorted(grown[: self._most], key=lambda item: item[0])),
            len(rest),
            sum(one.addressed for _, one in rest),
        )
