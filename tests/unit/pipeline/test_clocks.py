"""Tables after each batch are those that all of the archive gives, however clocks turn out to be wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from treecast.spark_connectors.pipeline import clocks
from treecast.spark_connectors.pipeline.clocks import Boot, Clock, Clocks, Counted, Group

SECOND = 1_000_000
STEP = 60
START = 1_790_000_000 // STEP * STEP * SECOND
LENGTH = 10 * SECOND  # of an interval

Row = tuple[str, int, int, bool, int]  # host, boot, seq, whether it is the first record, the clock's error
Table = dict[int, list[Row]]  # by minute


class Interval(Struct, frozen=True, order=True):
    came: int
    host: str
    boot: int
    seq: int
    to_us: int

    @property
    def name(self) -> Boot:
        return self.host, self.boot

    def slot(self, error: int) -> int:
        return clocks.slot_of(self.to_us - LENGTH, self.to_us, self.came, error, STEP)


def differences(intervals: Iterable[Interval]) -> dict[Boot, Clock]:
    found: dict[Boot, Clock] = {}
    for one in intervals:
        clock = Clock(one.came - one.to_us, one.came, one.came)
        found[one.name] = found[one.name].joined(clock) if one.name in found else clock
    return found


def rows_of(intervals: Iterable[Interval], errors: Mapping[Boot, int]) -> Table:
    """The rule of all of the archive: each record in its minute, the first one of an interval counts."""
    table: Table = defaultdict(list)
    copies = Counter[tuple[str, int, int]]()
    for one in sorted(intervals):
        key = (*one.name, one.seq)
        copies[key] += 1
        table[one.slot(errors[one.name])].append((*key, copies[key] == 1, errors[one.name]))
    return dict(table)


def whole(archive: list[Interval]) -> Table:
    return rows_of(archive, {boot: clock.error for boot, clock in differences(archive).items()})


class Batches:
    """Tables that grow by batches, as those of `Measures`."""

    def __init__(self) -> None:
        self.archive: list[Interval] = []
        self.kept: dict[Boot, Clock] = {}
        self.table: Table = {}
        self.written = 0

    def take(self, new: list[Interval], *, dies: bool = False) -> None:
        self.archive += new
        first = min(new).came
        now = clocks.after(self.kept, differences(one for one in self.archive if one.came >= first))
        read = [0]

        def count(since: int) -> Counted:
            read[0] = since
            return clocks.counted(self._groups(now, since), first)

        counted = now.reach(first, count)
        there = rows_of(self._since(read[0]), {row[:2]: row[2] for row in now.rows(read[0])})
        self.written = len(counted.touched)
        for slot in counted.touched:
            self.table.pop(slot, None)
            if slot in there:
                self.table[slot] = there[slot]
        if not dies:
            self.kept = clocks.decode(clocks.encode(now.now)) or {}

    def _since(self, since: int) -> list[Interval]:
        return [one for one in self.archive if one.came >= since * SECOND]

    def _groups(self, now: Clocks, since: int) -> Iterable[Group]:
        errors = {row[:2]: row[2:] for row in now.rows(since)}
        for one in self._since(since):
            error, before = errors[one.name]
            was = None if before is None else one.slot(before)
            yield Group(one.slot(error), was, one.came // (3600 * SECOND), 1, one.came)


# Errors of clocks, and delays: those at the edges of a rounding and of a minute matter most.
ERRORS = st.sampled_from([0, 124_000, 125_000, 126_000, -600 * SECOND, 3000 * SECOND])
DELAYS = st.sampled_from([0, 1_000, 2_000, 30_000, 400_000, 5 * SECOND, 3700 * SECOND, 90_000 * SECOND])
PLACES = st.builds(lambda hour, n: (3600 * hour + 5 * n) * SECOND, st.integers(0, 2), st.integers(0, 60))


@st.composite
def histories(draw: st.DrawFn) -> list[list[Interval]]:
    """Batches in the order of appends, with intervals that come late, or twice."""
    behind = {(host, boot): draw(ERRORS) for host in "ab" for boot in (1, 2)}
    came: list[Interval] = []
    for seq in range(draw(st.integers(1, 25))):
        host, boot = draw(st.sampled_from(sorted(behind)))
        at, delay = START + draw(PLACES) + draw(st.integers(-2, 2)) * 1000, draw(DELAYS)
        one = Interval(at + delay, host, boot, seq, at - behind[host, boot])
        came.append(one)
        if delay <= 3700 * SECOND and draw(st.integers(0, 3)) == 0:
            again = one.came + draw(st.integers(0, 7200)) * SECOND
            came.append(Interval(again, host, boot, seq, one.to_us))
    came.sort()
    cuts = sorted(draw(st.sets(st.integers(1, len(came)), max_size=6)) | {0, len(came)})
    return [came[low:high] for low, high in pairwise(cuts)]


def at_edge(*differences: int) -> list[list[Interval]]:
    """Batches of an interval each, whose middle is a millisecond before a minute by the host's clock."""
    ends = [START + STEP * SECOND * number - 1000 + LENGTH // 2 for number in range(len(differences))]
    return [
        [Interval(end + one, "a", 1, n, end)]
        for n, (end, one) in enumerate(zip(ends, differences, strict=True))
    ]


@given(histories(), st.integers(0, 6))
@example(at_edge(2_000, 1_000, 0), 9)
@example(at_edge(126_000, 124_000, 0), 9)
@example(at_edge(3 * SECOND, SECOND, -SECOND), 1)
def test_each_batch_gives_what_all_of_the_archive_gives(batches: list[list[Interval]], dying: int) -> None:
    tables = Batches()
    for number, new in enumerate(batches):
        if number == dying:  # after it wrote tables, before it kept clocks; then it is repeated
            tables.take(new, dies=True)
            tables.archive = tables.archive[: -len(new)]
        tables.take(new)
        assert tables.table == whole(tables.archive)


def test_what_comes_faster_by_milliseconds_touches_only_its_own_minute() -> None:
    tables = Batches()
    for new in at_edge(*range(20_000, 0, -1_000)):
        tables.take(new)
        assert tables.written == 1, "all of a boot is placed anew for a millisecond"
    assert tables.table == whole(tables.archive)


def test_a_clock_that_falls_empties_the_minute_that_an_interval_was_in() -> None:
    tables = Batches()
    first, second = at_edge(3 * SECOND, 0)
    tables.take(first)
    assert list(tables.table) == [START // SECOND]
    tables.take(second)
    assert sorted(tables.table) == [START // SECOND - STEP, START // SECOND]
    assert tables.table == whole(tables.archive)


def test_kept_clocks_that_are_damaged_are_none() -> None:
    for content in (b"", b"[", b'{"a": 1}', b'[["a", 1]]'):
        assert clocks.decode(content) is None
    assert clocks.decode(clocks.encode({("a", 1): Clock(-1, 2, 3)})) == {("a", 1): Clock(-1, 2, 3)}
