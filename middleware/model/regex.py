"""Regular expressions that users set, matched in time linear in the name, whatever the expression.

Python's `re` backtracks: a pattern of ten characters keeps it busy for ever. Here a pattern becomes an
automaton (`regex_syntax`), and matching follows all its states at once. Sets of states are numbered and their
transitions remembered, within a bound of memory, so that common patterns cost one look-up per character.

Look-arounds are decided first, for all places of a name in one run each: behind by a run forwards that begins
everywhere, ahead by one backwards. The time stays linear.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import Final

from treecast.middleware.model.logs import Log

from .regex_syntax import (
    BEGIN,
    BOUNDARY,
    END,
    INSIDE,
    LINE_BEGIN,
    LOOK,
    NO_CHECK,
    Dialect,
    InvalidRegex,
    Look,
    Program,
    invalid,
    parse,
)

_log = Log(__name__)
MAX_WORK: Final = 50_000  # states visited for one name; takes some ten milliseconds
_REMEMBERED: Final = 64 * 1024  # bytes of one expression's sets and transitions
_TRANSITION: Final = 100  # bytes

_Truths = list[int]  # by place in the name: a bit for each look-around that holds there


class Regex:
    """A compiled expression. Raises INVALID_REGEX if it is invalid.

    `work` counts the visited states so far; what is remembered costs none. Both ways to match raise
    INVALID_REGEX if one name takes more than `MAX_WORK` of it.
    """

    def __init__(self, text: str, dialect: Dialect = Dialect.RE2, *, ignore_case: bool = False) -> None:
        program = parse(text, dialect, ignore_case)
        self._program = program
        self._whole = _Run(program, program.begin, program.end, everywhere=False)
        self._anywhere = _Run(program, program.begin, program.end, everywhere=True)
        self._looks = [_Looking(program, look) for look in program.looks]

    @property
    def states(self) -> int:
        """The size of the automaton."""
        return len(self._program)

    @property
    def work(self) -> int:
        return self._whole.work + self._anywhere.work + sum(one.work for one in self._looks)

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole of `name`."""
        return self._whole.ends_at_end(name, self._truths(name))

    def found_in(self, name: str) -> bool:
        """Whether the expression matches some part of `name`."""
        return self._anywhere.ends_somewhere(name, self._truths(name))

    def _truths(self, name: str) -> _Truths | None:
        if not self._looks:
            return None
        truths = [0] * (len(name) + 1)
        for number, look in enumerate(self._looks):
            look.decide(name, truths, 1 << number)
        return truths


class _Run:
    """Runs over names from state `begin` to state `end`, forwards. `everywhere`: it may begin at each place.

    A set of states is kept before its transitions that consume nothing: which of those may be taken depends
    on the next character, with which it is looked up.
    """

    def __init__(self, program: Program, begin: int, end: int, *, everywhere: bool) -> None:
        self.work = 0
        self._program = program
        self._begin = begin
        self._end = end
        self._everywhere = everywhere
        self._checks = any(program.checks)
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[bytes, int] = {}  # of a set and of what kind of character is before it
        self._sets: list[bytes] = []
        self._rows: list[dict[tuple[str, int], tuple[int, bool]]] = []
        self._size = 0

    def ends_at_end(self, name: str, truths: _Truths | None) -> bool:
        limit = self.work + MAX_WORK
        number = self._start()
        for place, letter in enumerate(name):
            number, _ = self._step(number, letter, truths[place] if truths else 0)
            if not self._sets[number][1:]:
                return False
            if self.work > limit:
                raise too_long()
        return self._step(number, "", truths[-1] if truths else 0)[1]

    def ends_somewhere(self, name: str, truths: _Truths | None) -> bool:
        limit = self.work + MAX_WORK
        number = self._start()
        for place, letter in enumerate(name):
            number, ended = self._step(number, letter, truths[place] if truths else 0)
            if ended:
                return True
            if self.work > limit:
                raise too_long()
        return self._step(number, "", truths[-1] if truths else 0)[1]

    def mark(self, name: str, truths: _Truths, bit: int, wanted: bool) -> None:
        """Sets `bit` at each place where the run ends, or if not `wanted`, where it does not."""
        limit = self.work + MAX_WORK
        number = self._start()
        for place in range(len(name) + 1):
            number, ended = self._step(number, name[place : place + 1], truths[place])
            if ended is wanted:
                truths[place] |= bit
            if self.work > limit:
                raise too_long()

    def _start(self) -> int:
        return self._number_of([self._begin], "")

    def _step(self, number: int, letter: str, truths: int) -> tuple[int, bool]:
        """Returns the set after `letter` ("": none is left), and whether the run ends before it."""
        found = self._rows[number].get((letter, truths))
        if found is None:
            found = self._stepped(number, letter, truths)
        return found

    def _stepped(self, number: int, letter: str, truths: int) -> tuple[int, bool]:
        before = self._sets[number]
        states = array("H")
        states.frombytes(before[1:])
        closed, ended = self._closure(states, before[:1].decode("latin-1").strip("\0"), letter, truths)
        program, reached = self._program, {self._begin} if self._everywhere else set()
        if letter:
            code = ord(letter)
            for state in closed:
                chars = program.chars[state]
                if chars is not None and code in chars:
                    reached.update(program.out[state])
        after = self._number_of(sorted(reached), letter)
        if self._sets[number : number + 1] == [before]:  # it was not forgotten meanwhile
            self._rows[number][letter, truths] = after, ended
            self._size += _TRANSITION
        return after, ended

    def _closure(self, states: array[int], before: str, then: str, truths: int) -> tuple[list[int], bool]:
        """Returns the states reached without consuming anything, and whether `end` is among them."""
        program = self._program
        seen = bytearray(len(program))
        found: list[int] = []
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if seen[state]:
                continue
            seen[state] = 1
            found.append(state)
            if program.chars[state] is None:
                check = program.checks[state]
                if check == NO_CHECK or holds(check, before, then, truths):
                    waiting += program.out[state]
        self.work += len(found)
        return found, bool(seen[self._end])

    def _number_of(self, states: list[int], before: str) -> int:
        """Returns the number of a set of states behind the character `before`."""
        kept = (_kind(before) if self._checks else b"a") + array("H", states).tobytes()
        number = self._numbers.get(kept)
        if number is None:
            if self._size > _REMEMBERED:
                self._forget()
            number = self._numbers[kept] = len(self._sets)
            self._sets.append(kept)
            self._rows.append({})
            self._size += 2 * _TRANSITION + len(kept)
        return number


class _Looking:
    """Decides one look-around."""

    def __init__(self, program: Program, look: Look) -> None:
        self._program = program
        self._look = look
        self._behind = _Run(program, look.begin, look.end, everywhere=True) if look.behind else None
        self._into: list[list[int]] = [[] for _ in range(0 if look.behind else len(program))]
        if not look.behind:
            for state, outs in enumerate(program.out):
                for out in outs:
                    self._into[out].append(state)
        self._work = 0

    @property
    def work(self) -> int:
        return self._behind.work if self._behind is not None else self._work

    def decide(self, name: str, truths: _Truths, bit: int) -> None:
        """Sets `bit` at each place of `name` where the look-around holds."""
        wanted = not self._look.negated
        if self._behind is not None:
            self._behind.mark(name, truths, bit, wanted)
            return
        limit = self._work + MAX_WORK
        after: set[int] = set()
        for place in range(len(name), -1, -1):
            after = self._reaching(name, place, truths[place], after)
            if (self._look.begin in after) is wanted:
                truths[place] |= bit
            if self._work > limit:
                raise too_long()

    def _reaching(self, name: str, place: int, truths: int, after: set[int]) -> set[int]:
        """Returns the states from which the end can be reached by what follows `place`; `after` are those of
        the next place."""
        program = self._program
        before, then = name[place - 1 : place] if place else "", name[place : place + 1]
        found: set[int] = set()
        waiting = [self._look.end]
        for state in after:
            for source in self._into[state]:
                chars = program.chars[source]
                if chars is not None and ord(then) in chars:
                    waiting.append(source)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            for source in self._into[state]:
                if program.chars[source] is None and holds(program.checks[source], before, then, truths):
                    waiting.append(source)
        self._work += len(found)
        return found


class Known:
    """Compiled patterns of PCRE's dialect: those used lately, within bounds of number and size."""

    def __init__(self, most: int = 1024, most_states: int = 100_000) -> None:
        self._most = most
        self._most_states = most_states
        self._known: OrderedDict[str, Regex | None] = OrderedDict()
        self._states = 0

    def found(self, pattern: str, name: str) -> bool:
        """Whether `pattern` matches some part of `name`.

        A pattern that is invalid, or takes too long, matches nothing: an earlier version has accepted it.
        """
        try:
            regex = self._regex(pattern)
            return regex is not None and regex.found_in(name)
        except InvalidRegex as error:
            _log.warning("pattern cannot be used", pattern=pattern, error=error)
            return False

    def _regex(self, pattern: str) -> Regex | None:
        if pattern in self._known:
            self._known.move_to_end(pattern)
            return self._known[pattern]
        regex = None
        try:
            regex = Regex(pattern, Dialect.PCRE)
            self._states += regex.states
        except InvalidRegex as error:
            _log.warning("pattern cannot be used", pattern=pattern, error=error)
        self._known[pattern] = regex
        while len(self._known) > 1 and (len(self._known) > self._most or self._states > self._most_states):
            _, oldest = self._known.popitem(last=False)
            self._states -= oldest.states if oldest is not None else 0
        return regex


def too_long() -> InvalidRegex:
    return invalid("it takes too long to match; write it with fewer repetitions")


def _is_word(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter == "_")


def _kind(letter: str) -> bytes:
    """Returns a character that stands for all that assertions do not tell from `letter`."""
    if letter in ("", "\n"):
        return letter.encode() or b"\0"
    return b"a" if _is_word(letter) else b"-"


def holds(check: int, before: str, then: str, truths: int) -> bool:
    """Whether an assertion holds between two characters; "" is an end of the name."""
    if check >= LOOK:
        return bool(truths >> (check - LOOK) & 1)
    if check == NO_CHECK:
        return True
    if check in (BEGIN, END):
        return not (before if check == BEGIN else then)
    if check in (BOUNDARY, INSIDE):
        return (_is_word(before) != _is_word(then)) == (check == BOUNDARY)
    return (before if check == LINE_BEGIN else then) in ("", "\n")
