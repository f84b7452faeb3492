"""Match engines. A table's key is one number: its fields side by side, the first one highest.

Every entry is a value under a mask of that number, plus a list of ranges if the table has range fields. So
one engine serves every kind of table: exact entries share one mask, those of a longest prefix match have one
mask per prefix length, ternary ones any (tuple space search; Srinivasan, Suri, Varghese 1999).
"""

from __future__ import annotations

from collections.abc import Iterable

from .meters import Meter
from .values import Entry

MAX_CACHED = 1 << 16  # cached results by key, for tables that are not exact


class Cell:
    """An action with its arguments: a member of an action profile, or one choice of a one-shot."""

    __slots__ = ("action", "args")

    def __init__(self, action: int, args: tuple[int, ...]) -> None:
        self.action = action
        self.args = args


class Row:
    """The result of a look-up. It is changed in place when the entry is modified, so that caches stay valid.

    `action` is an index into `Program.actions`, `args` its control plane parameters. `choices`: for a table
    with an action profile or selector, the cells to choose from by hash; empty: the default action.
    """

    __slots__ = (
        "action",
        "args",
        "bytes",
        "choices",
        "entry",
        "hit",
        "mask",
        "meter",
        "order",
        "packets",
        "ranges",
        "rank",
        "seen",
        "told",
        "value",
    )

    def __init__(self, hit: bool, action: int, args: tuple[int, ...]) -> None:
        self.hit = hit
        self.action = action
        self.args = args
        self.choices: list[Cell] | None = None
        self.packets = 0
        self.bytes = 0
        self.meter: Meter | None = None
        self.entry: Entry | None = None
        self.value = 0
        self.mask = 0
        self.ranges: tuple[tuple[int, int, int, int], ...] = ()  # shift, mask, low, high
        self.rank = 0  # priority, or prefix length
        self.order = 0
        self.seen = 0.0  # last hit, of tables with idle timeouts
        self.told = 0.0  # last time that its idleness was reported

    def fits(self, key: int) -> bool:
        """Defines a match."""
        if key & self.mask != self.value:
            return False
        return all(low <= (key >> shift) & mask <= high for shift, mask, low, high in self.ranges)

    @property
    def identity(self) -> tuple[int, int, tuple[tuple[int, int, int, int], ...], int]:
        """The identity of an entry, unique within its table."""
        return self.value, self.mask, self.ranges, self.rank


def better(row: Row, other: Row | None) -> bool:
    """Returns whether `row` wins: by rank, and among equals the older one."""
    return other is None or (row.rank, -row.order) > (other.rank, -other.order)


def find_linear(rows: Iterable[Row], key: int) -> Row | None:
    """Finds a row by checking all; the reference."""
    best: Row | None = None
    for row in rows:
        if row.fits(key) and better(row, best):
            best = row
    return best


class Group:
    """The rows of one mask, by masked key. `top` is at least the highest rank among them."""

    __slots__ = ("mask", "rows", "top")

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.top = 0
        self.rows: dict[int, list[Row]] = {}

    def add(self, row: Row) -> None:
        bucket = self.rows.setdefault(row.value, [])
        place = len(bucket)
        while place and better(row, bucket[place - 1]):
            place -= 1
        bucket.insert(place, row)
        self.top = max(self.top, row.rank)

    def remove(self, row: Row) -> None:
        bucket = self.rows[row.value]
        bucket.remove(row)
        if not bucket:
            del self.rows[row.value]


class TupleSpace:
    """Rows by mask, groups that may hold the best first."""

    __slots__ = ("_by_mask", "_groups")

    def __init__(self) -> None:
        self._by_mask: dict[int, Group] = {}
        self._groups: list[Group] = []

    def add(self, row: Row) -> None:
        group = self._by_mask.get(row.mask)
        if group is None:
            group = self._by_mask[row.mask] = Group(row.mask)
            self._groups.append(group)
        elif row.rank <= group.top:
            group.add(row)
            return
        group.add(row)
        self._groups.sort(key=_top, reverse=True)

    def remove(self, row: Row) -> None:
        group = self._by_mask[row.mask]
        group.remove(row)
        if not group.rows:
            del self._by_mask[row.mask]
            self._groups.remove(group)

    def find(self, key: int) -> Row | None:
        best: Row | None = None
        for group in self._groups:
            if best is not None and best.rank > group.top:
                break
            for row in group.rows.get(key & group.mask, ()):
                if (not row.ranges or row.fits(key)) and better(row, best):
                    best = row
                    break
        return best


def _top(group: Group) -> int:
    return group.top


class MatchTable:
    """The rows of one table, and the look-up by key.

    `cache` maps keys to rows. For a table of exact keys it holds all rows, otherwise recent results;
    generated code checks it first and calls `find` on a miss. `miss` is the default entry.
    """

    __slots__ = ("_order", "_space", "by_identity", "cache", "exact", "hits", "miss", "misses")

    def __init__(self, exact: bool, miss: Row) -> None:
        self.exact = exact
        self.miss = miss
        self.hits = 0
        self.misses = 0
        self.cache: dict[int, Row] = {}
        self.by_identity: dict[tuple[object, ...], Row] = {}
        self._space = TupleSpace()
        self._order = 0

    def find(self, key: int) -> Row:
        """Returns the row for a key, the default entry's if none fits."""
        row = self.cache.get(key)
        if row is not None:
            return row
        if self.exact:
            return self.miss
        found = self._space.find(key) or self.miss
        if len(self.cache) >= MAX_CACHED:
            self.cache.clear()
        self.cache[key] = found
        return found

    def find_linear(self, key: int) -> Row:
        """Returns the reference of `find`."""
        return find_linear(self.by_identity.values(), key) or self.miss

    def add(self, row: Row) -> None:
        """Adds a row. The caller has checked that no row has its identity."""
        row.order = self._order
        self._order += 1
        self.by_identity[row.identity] = row
        if self.exact:
            self.cache[row.value] = row
        else:
            self._space.add(row)
            self.cache.clear()

    def remove(self, row: Row) -> None:
        del self.by_identity[row.identity]
        if self.exact:
            del self.cache[row.value]
        else:
            self._space.remove(row)
            self.cache.clear()
