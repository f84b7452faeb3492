"""A table in the control plane's view: entries, the default entry, direct counters and meters."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .. import ir
from .errors import ControlError, Problem
from .match import MatchTable, Row
from .meters import Meter, checked
from .profiles import Choices, Profile
from .shapes import Compiled, KeyShape, TableShape, table_shape
from .values import (
    Action,
    ActionCall,
    CounterData,
    Entry,
    ExactMatch,
    GroupRef,
    IdleEntry,
    LpmMatch,
    Match,
    Matches,
    MemberRef,
    MeterConfig,
    MeterCounts,
    OneShot,
    OptionalMatch,
    RangeMatch,
    TernaryMatch,
)


class TableState:
    """One table of a running switch. The pipeline uses `match`."""

    def __init__(self, program: ir.Program, table: ir.Table, profile: Profile | None) -> None:
        self.shape: TableShape = table_shape(program, table)
        self.profile = profile
        self.counted = table.counters is not None
        self.metered = table.meters is not None
        self.metered_by_bytes = self.metered and _meter_type(program, table) == "bytes"
        self.timed = table.support_timeout
        self._constant = table.constant_entries
        self._default_constant = table.default_constant
        self._own_default = self._program_call(program, table, table.default)
        self.match = MatchTable(self.shape.exact, self._new_row(False))
        self._users: dict[int, Choices] = {}  # by id of the row that refers to them
        if profile is not None:
            profile.actions.update(self.shape.actions)
        self._set_default(self._own_default)
        for entry in table.entries:
            self._add_own(program, table, entry)

    # --- entries

    def insert(self, entry: Entry, now: float = 0.0) -> None:
        """Inserts an entry. Raises EXISTS if one with these matches and priority exists, FULL at the table's
        size.
        """
        self._refuse_constant()
        row = self._row(entry, now)
        if row.identity in self.match.by_identity:
            raise ControlError(Problem.EXISTS, f"table {self.shape.name} has an entry with these matches")
        if len(self.match.by_identity) >= self.shape.size:
            raise ControlError(Problem.FULL, f"table {self.shape.name} has {self.shape.size} entries: full")
        self._bind(row, entry.action)
        self.match.add(row)

    def modify(self, entry: Entry, now: float = 0.0) -> None:
        """Replaces the action (and counter, meter if given) of the entry with these matches and priority."""
        self._refuse_constant()
        made = self._row(entry, now)
        row = self._need(entry.matches, entry.priority)
        self._refuse_constant_row(row)
        self._bind(row, entry.action)
        row.entry, row.seen = made.entry, now
        if entry.counter is not None:
            row.packets, row.bytes = made.packets, made.bytes
        if self.metered:
            configure(row, entry.meter, now)  # P4Runtime: left out is unset

    def delete(self, matches: Matches, priority: int = 0) -> None:
        self._refuse_constant()
        row = self._need(matches, priority)
        self._refuse_constant_row(row)
        self.match.remove(row)
        self._unbind(row)

    def entry(self, matches: Matches, priority: int = 0, now: float = 0.0) -> Entry:
        return self._reading(self._need(matches, priority), now)

    def entries(self, now: float = 0.0) -> Iterator[Entry]:
        """Yields all entries, const ones too, in the order of insertion. The default entry isn't
        among them.
        """
        return (self._reading(row, now) for row in list(self.match.by_identity.values()))

    def idle(self, now: float) -> list[IdleEntry]:
        """Returns idle entries; each is reported again after another such time."""
        found = []
        for row in self.match.by_identity.values():
            entry = row.entry
            if entry is None or entry.idle_timeout <= 0:
                continue
            if now - max(row.seen, row.told) >= entry.idle_timeout:
                row.told = now
                found.append(IdleEntry(self.shape.name, self._reading(row, now)))
        return found

    # --- the default entry

    def set_default(self, action: Action | None) -> None:
        """Sets the default action; None restores the program's own. Raises READ_ONLY if the program declares
        it const.
        """
        if self._default_constant:
            raise ControlError(Problem.READ_ONLY, f"the default action of {self.shape.name} is const")
        self._set_default(self._own_default if action is None else action)

    def is_default_set(self) -> bool:
        """Returns whether the default action is another than the program's own."""
        return self.match.miss.entry != Entry({}, self._own_default)

    def default(self) -> Entry:
        """Returns the default entry: without matches; NoAction if the program names no action."""
        return self._reading(self.match.miss, self.match.miss.seen)

    # --- direct counters and meters; matches None: the default entry

    def counter(self, matches: Matches | None, priority: int = 0) -> CounterData:
        row = self._counter_row(matches, priority)
        return CounterData(row.packets, row.bytes)

    def set_counter(self, matches: Matches | None, data: CounterData, priority: int = 0) -> None:
        row = self._counter_row(matches, priority)
        row.packets, row.bytes = data.packets, data.bytes

    def _counter_row(self, matches: Matches | None, priority: int) -> Row:
        if not self.counted:
            raise ControlError(Problem.INVALID, f"table {self.shape.name} has no direct counter")
        return self.match.miss if matches is None else self._need(matches, priority)

    def meter(self, matches: Matches | None, priority: int = 0) -> MeterConfig | None:
        """Returns the configuration; None: not configured, all packets are green."""
        return self._meter(matches, priority).config

    def set_meter(
        self, matches: Matches | None, config: MeterConfig | None, priority: int = 0, now: float = 0.0
    ) -> None:
        self._meter(matches, priority).configure(checked(config), now)

    def meter_counts(self, matches: Matches | None, priority: int = 0) -> MeterCounts:
        return self._meter(matches, priority).counts()

    def set_meter_counts(self, matches: Matches | None, counts: MeterCounts, priority: int = 0) -> None:
        self._meter(matches, priority).set_counts(counts)

    def _meter(self, matches: Matches | None, priority: int) -> Meter:
        if not self.metered:
            raise ControlError(Problem.INVALID, f"table {self.shape.name} has no direct meter")
        row = self.match.miss if matches is None else self._need(matches, priority)
        assert row.meter is not None
        return row.meter

    # --- inside

    def _refuse_constant(self) -> None:
        if self._constant:
            raise ControlError(Problem.READ_ONLY, f"the entries of table {self.shape.name} are const")

    def _refuse_constant_row(self, row: Row) -> None:
        if row.entry is not None and row.entry.is_const:
            raise ControlError(Problem.READ_ONLY, f"this entry of table {self.shape.name} is const")

    def _rank(self, compiled: Compiled, priority: int) -> int:
        if self.shape.ranked:
            if priority <= 0:
                raise ControlError(Problem.INVALID, f"entries of table {self.shape.name} need a priority")
            return priority
        if priority != 0:
            raise ControlError(Problem.INVALID, f"entries of table {self.shape.name} have no priority")
        return compiled.prefix

    def _need(self, matches: Matches, priority: int) -> Row:
        compiled = self.shape.compile(matches)
        identity = (compiled.value, compiled.mask, compiled.ranges, self._rank(compiled, priority))
        row = self.match.by_identity.get(identity)
        if row is None:
            raise ControlError(Problem.NOT_FOUND, f"table {self.shape.name} has no such entry")
        return row

    def _new_row(self, hit: bool) -> Row:
        row = Row(hit, 0, ())
        row.meter = Meter() if self.metered else None
        return row

    def _row(self, entry: Entry, now: float) -> Row:
        """Returns a row without its action."""
        if not self.shape.keys:
            raise ControlError(Problem.INVALID, f"table {self.shape.name} has no key, so no entries")
        row = self._new_row(True)
        compiled = self.shape.compile(entry.matches)
        row.value, row.mask, row.ranges = compiled.value, compiled.mask, compiled.ranges
        row.rank = self._rank(compiled, entry.priority)
        row.entry = msgspec.structs.replace(entry, counter=None, meter=None, is_const=False, idle=None)
        row.seen = row.told = now
        self._set_direct(row, entry, now)
        return row

    def _set_direct(self, row: Row, entry: Entry, now: float) -> None:
        if entry.counter is not None:
            if not self.counted:
                raise ControlError(Problem.INVALID, f"table {self.shape.name} has no direct counter")
            row.packets, row.bytes = entry.counter.packets, entry.counter.bytes
        if entry.meter is not None:
            if not self.metered:
                raise ControlError(Problem.INVALID, f"table {self.shape.name} has no direct meter")
            configure(row, entry.meter, now)
        if entry.idle_timeout and not self.timed:
            raise ControlError(Problem.INVALID, f"table {self.shape.name} keeps no idle timeouts")

    def _bind(self, row: Row, action: Action) -> None:
        """Gives the row its action; nothing is changed if that is refused."""
        if isinstance(action, ActionCall):
            self._bind_call(row, action)
        else:
            self._bind_choices(row, self._choices(action))

    def _bind_call(self, row: Row, call: ActionCall) -> None:
        if self.profile is not None and row.hit:
            raise ControlError(Problem.INVALID, f"{self.shape.name} takes members of {self.profile.name}")
        shape = self.shape.action(call.action)
        if not (shape.in_entries if row.hit else shape.as_default):
            raise ControlError(Problem.INVALID, f"{call.action} may not be used so in {self.shape.name}")
        args = shape.arguments(call)
        self._unbind(row)
        row.action, row.args, row.choices = shape.number, args, None

    def _bind_choices(self, row: Row, choices: Choices) -> None:
        self._unbind(row)
        choices.users += 1
        self._users[id(row)] = choices
        row.choices = choices.cells

    def _unbind(self, row: Row) -> None:
        choices = self._users.pop(id(row), None)
        if choices is not None:
            choices.users -= 1

    def _choices(self, action: MemberRef | GroupRef | OneShot) -> Choices:
        if self.profile is None:
            raise ControlError(Problem.INVALID, f"table {self.shape.name} has no action profile")
        if isinstance(action, MemberRef):
            return self.profile.member(action.member)
        if isinstance(action, GroupRef):
            return self.profile.group(action.group)
        return self.profile.one_shot(action)

    def _set_default(self, action: Action) -> None:
        row = self.match.miss
        self._bind(row, action)
        row.entry = Entry({}, action)

    def _reading(self, row: Row, now: float) -> Entry:
        assert row.entry is not None
        return msgspec.structs.replace(
            row.entry,
            counter=CounterData(row.packets, row.bytes) if self.counted else None,
            meter=row.meter.config if row.meter is not None else None,
            idle=max(0.0, now - row.seen) if self.timed else None,
        )

    # --- what the program brings along

    def _program_call(self, program: ir.Program, table: ir.Table, data: ir.ActionData) -> ActionCall:
        action = program.actions[table.actions[data.action].action]
        return self.shape.actions[action.name].call(tuple(int(value) for value in data.values))

    def _add_own(self, program: ir.Program, table: ir.Table, own: ir.Entry) -> None:
        matches = own_matches(self.shape.keys, own.matches)
        priority = own.priority if self.shape.ranked else 0
        entry = Entry(matches, self._program_call(program, table, own.action), priority)
        row = self._row(entry, 0.0)
        row.entry = msgspec.structs.replace(entry, is_const=own.constant)
        if row.identity in self.match.by_identity:
            return  # the first of two equal entries wins
        self._bind(row, entry.action)
        self.match.add(row)


def own_matches(keys: tuple[KeyShape, ...], matches: tuple[ir.Match, ...]) -> Matches:
    """Returns a program's matches as the control plane would write them."""
    pairs = ((key, _own_match(key, match)) for key, match in zip(keys, matches, strict=True))
    return {key.name: match for key, match in pairs if match is not None}


def _own_match(key: KeyShape, match: ir.Match) -> Match | None:
    """Returns the match; None: anything."""
    if isinstance(match, ir.MatchAny):
        return None
    if isinstance(match, ir.MatchRange):
        return RangeMatch(match.low & key.ones, match.high & key.ones)
    if isinstance(match, ir.MatchMask):
        return _own_mask(key, match.value & match.mask & key.ones, match.mask & key.ones)
    if not isinstance(match, ir.MatchValue):
        raise TypeError("a value set is no match of an entry")
    value = int(match.value) & key.ones
    if key.kind is ir.MatchKind.EXACT:
        return ExactMatch(value)
    if key.kind is ir.MatchKind.OPTIONAL:
        return OptionalMatch(value)
    if key.kind is ir.MatchKind.RANGE:
        return RangeMatch(value, value)
    return _own_mask(key, value, key.ones)


def _own_mask(key: KeyShape, value: int, mask: int) -> Match:
    if key.kind is ir.MatchKind.LPM:
        return LpmMatch(value, mask.bit_count())
    return TernaryMatch(value, mask)


def configure(row: Row, config: MeterConfig | None, now: float) -> None:
    """Sets a row's direct meter, which stays as long as the row."""
    assert row.meter is not None
    row.meter.configure(checked(config), now)


def _meter_type(program: ir.Program, table: ir.Table) -> object:
    assert table.meters is not None
    return program.externs[table.meters].argument("type")
