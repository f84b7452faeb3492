"""The syntax of regular expressions, parsed into a nondeterministic automaton.

Two dialects, which share all but a few constructs. `RE2` is that of Kafka's brokers (RE2/J): no look-around.
`PCRE` is what users of RabbitMQ write in policies and permissions, with look-ahead and look-behind. Neither
has back references, atomic groups or possessive quantifiers, which cannot be matched in linear time. Named
groups, lazy quantifiers and flags are supported. Source: https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError

from .regex_classes import ESCAPES, CharSet, folded, named_class, perl_class, unicode_class, union

MAX_LENGTH: Final = 4096  # characters of an expression
MAX_REPEAT: Final = 1000  # copies of one part by all repetitions around it, as in RE2
MAX_STATES: Final = 5_000
_MAX_DEPTH: Final = 200  # nested groups
_MAX_LOOKS: Final = 32
NO_CHECK: Final = 0  # assertions of a state
BEGIN: Final = 1
END: Final = 2
LINE_BEGIN: Final = 3
LINE_END: Final = 4
BOUNDARY: Final = 5
INSIDE: Final = 6  # no boundary
LOOK: Final = 7  # that of the first look-around; the others follow


class Dialect(enum.Enum):
    RE2 = "RE2"
    PCRE = "PCRE"


class Look:
    """A look-around: states `begin` to `end` match what is ahead, or what is behind, or must not."""

    __slots__ = ("begin", "behind", "end", "negated")

    def __init__(self, begin: int, end: int, behind: bool, negated: bool) -> None:
        self.begin = begin
        self.end = end
        self.behind = behind
        self.negated = negated


class Program:
    """The automaton, by number of state. A state consumes a character of `chars` (None: no character), if its
    assertion `checks` holds, and goes to one of `out`. It leads from `begin` to `end`."""

    def __init__(self) -> None:
        self.chars: list[CharSet | None] = []
        self.checks: list[int] = []
        self.out: list[list[int]] = []
        self.looks: list[Look] = []
        self.begin = self.end = 0

    def __len__(self) -> int:
        return len(self.out)

    def add(self, chars: CharSet | None, check: int) -> int:
        self.chars.append(chars)
        self.checks.append(check)
        self.out.append([])
        return len(self.out) - 1


_Fragment = tuple[int, list[int]]  # the first state, and those that lead on
_Make = Callable[[], _Fragment]  # builds a new copy, for each repetition


class _Part:
    """A parsed part. `copies`: how many copies of one of its own parts the repetitions in it make."""

    __slots__ = ("copies", "make")

    def __init__(self, make: _Make, copies: int = 1) -> None:
        self.make = make
        self.copies = copies


class InvalidRegex(TreecastError):
    """An expression that its dialect does not know, or that is too large or takes too long."""


def invalid(why: str) -> InvalidRegex:
    return InvalidRegex(Fault.INVALID_REGEX, f"the regular expression is not valid: {why}")


def parse(text: str, dialect: Dialect, ignore_case: bool) -> Program:
    """Raises INVALID_REGEX for what is no expression of the dialect, or too large."""
    if len(text) > MAX_LENGTH:
        raise invalid(f"it has more than {MAX_LENGTH} characters")
    try:
        return _Parser(text, dialect, ignore_case).parse()
    except RecursionError:
        raise invalid("too many groups in groups") from None


class _Parser:
    """A recursive descent parser. The grammar's methods return a builder of the automaton for their input."""

    def __init__(self, text: str, dialect: Dialect, ignore_case: bool) -> None:
        self._text = text
        self._dialect = dialect
        self._at = 0
        self._depth = 0
        self._program = Program()
        self._fold = ignore_case
        self._dot_all = self._many_lines = False

    def parse(self) -> Program:
        whole = self._alternatives()
        if self._at < len(self._text):
            raise invalid("a ) without its (")
        program = self._program
        program.begin, program.end = self._closed(whole)
        return program

    def _closed(self, part: _Part) -> tuple[int, int]:
        """Builds a part and returns its first and its last state."""
        begin, ends = part.make()
        end = self._state()
        self._lead(ends, end)
        return begin, end

    # --- reading

    def _more(self) -> bool:
        return self._at < len(self._text)

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if not self._more():
            raise invalid("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise invalid(f"{end} is missing")
        found, self._at = self._text[self._at : stop], stop + len(end)
        return found

    # --- grammar

    def _alternatives(self) -> _Part:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return _Part(lambda: self._either(branches), max(branch.copies for branch in branches))

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._more() and not self._peek("|") and not self._peek(")"):
            if self._take("\\Q"):
                stop = self._text.find("\\E", self._at)
                quoted = self._text[self._at :] if stop < 0 else self._text[self._at : stop]
                self._at = len(self._text) if stop < 0 else stop + 2
                parts += [self._literal(letter) for letter in quoted]
                if parts and quoted:
                    parts[-1] = self._quantified(parts[-1])
                continue
            parts.append(self._quantified(self._atom()))
        if len(parts) == 1:
            return parts[0]
        return _Part(lambda: self._chain(parts), max((part.copies for part in parts), default=1))

    def _quantified(self, part: _Part) -> _Part:
        counted = self._count()
        if counted is None:
            return part
        self._take("?")  # a lazy quantifier matches the same names
        if self._peek("*") or self._peek("+") or self._peek("?") or self._repeats():
            raise invalid("a quantifier of a quantifier")
        least, most = counted
        copies = max(least, most or 0, 1) * part.copies
        if copies > MAX_REPEAT:
            raise invalid(f"repetitions make {copies} copies of a part, {MAX_REPEAT} are allowed")
        return _Part(lambda: self._repeat(part, least, most), copies)

    def _count(self) -> tuple[int, int | None] | None:
        """Reads a quantifier and returns (least, most); None if there is none here."""
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return counts
        found = self._repeats()
        if found is None:
            return None
        least, most, self._at = found
        if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or most < least)):
            raise invalid(f"a repetition of {least} to {most}")
        return least, most

    def _repeats(self) -> tuple[int, int | None, int] | None:
        """Returns (n, m, end) of {n}, {n,} or {n,m}. Other text in braces stands for itself, as in RE2."""
        if not self._peek("{"):
            return None
        stop = self._text.find("}", self._at)
        first, comma, last = self._text[self._at + 1 : max(stop, self._at + 1)].partition(",")
        digits = all(
            not part or (part.isascii() and part.isdigit() and len(part) < 8) for part in (first, last)
        )
        if stop < 0 or not first or not digits:
            return None
        least = int(first)
        return least, (int(last) if last else None) if comma else least, stop + 1

    def _atom(self) -> _Part:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._one_of(self._class())
        if letter == ".":
            return self._one_of(CharSet.everything() if self._dot_all else CharSet.of("\n").negated())
        if letter in "^$":
            return self._assertion(_ENDS[letter, self._many_lines])
        if letter == "\\":
            return self._escape()
        if letter in "*+?":
            raise invalid(f"{letter} with nothing before it")
        return self._literal(letter)

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise invalid("too many groups in groups")
        flags = self._fold, self._dot_all, self._many_lines
        look = self._look()
        if look is not None:
            pass
        elif self._take("?P<") or (self._peek("?<") and not self._peek("?<=") and not self._peek("?<!")):
            self._take("?<")
            name = self._until(">")
            if not name or not name.replace("_", "a").isalnum():
                raise invalid(f"a group of the name {name!r}")
        elif self._take("?") and self._flags():
            self._depth -= 1  # (?i) without a colon holds to the end of the enclosing group
            return _Part(self._nothing)
        inner = self._alternatives()
        if not self._take(")"):
            raise invalid("a ( without its )")
        self._fold, self._dot_all, self._many_lines = flags
        self._depth -= 1
        return inner if look is None else _Part(lambda: self._looking(inner, *look))

    def _look(self) -> tuple[bool, bool] | None:
        """Reads the beginning of a look-around. Returns (behind, negated); None if there is none here."""
        for sign, found in _LOOKS.items():
            if self._peek(sign):
                if self._dialect is Dialect.RE2:
                    raise invalid(f"({sign}: there is no look-around in RE2")
                self._take(sign)
                return found
        return None

    def _flags(self) -> bool:
        """Reads the flags i, m, s, U and -. Returns True if they end with ), False if with :."""
        on = True
        while True:
            letter = self._next()
            if letter == ":":
                return False
            if letter == ")":
                return True
            if letter == "-":
                on = False
            elif letter == "i":
                self._fold = on
            elif letter == "s":
                self._dot_all = on
            elif letter == "m":
                self._many_lines = on
            elif letter != "U":
                raise invalid(f"(?{letter}")

    def _escape(self) -> _Part:
        letter = self._next()
        if letter in "bB":
            return self._assertion(BOUNDARY if letter == "b" else INSIDE)
        if letter in "Az" or (letter == "Z" and self._dialect is Dialect.PCRE):
            return self._assertion(BEGIN if letter == "A" else END)
        if letter == "C":
            return self._one_of(CharSet.everything())
        return self._one_of(self._escaped(letter))

    def _escaped(self, letter: str) -> CharSet:
        """Returns the set that a backslash and `letter` stand for, in a class or outside."""
        found = perl_class(letter)
        if found is not None:
            return found
        if letter in "pP":
            name = self._next()
            if name == "{":
                name = self._until("}")
            negated = (letter == "P") != name.startswith("^")
            found = unicode_class(name.removeprefix("^"))
            if found is None:
                raise invalid(f"\\{letter}{{{name}}}")
            return found.negated() if negated else found
        return self._folded(self._code(letter))

    def _code(self, letter: str) -> str:
        """Returns the character that a backslash and `letter` stand for."""
        if letter in ESCAPES:
            return ESCAPES[letter]
        if letter == "x":
            digits = self._until("}") if self._take("{") else self._next() + self._next()
            return self._character(digits, 16)
        if letter in "01234567":
            digits = letter
            while len(digits) < 3 and self._more() and self._text[self._at] in "01234567":
                digits += self._next()
            if letter != "0" and len(digits) == 1:
                raise invalid(f"\\{letter}: RE2 has no back references")
            return self._character(digits, 8)
        if letter.isalnum() and letter.isascii():
            raise invalid(f"\\{letter}")
        return letter

    def _character(self, digits: str, base: int) -> str:
        try:
            return chr(int(digits, base))
        except (ValueError, OverflowError):
            raise invalid(f"{digits!r} is no character") from None

    def _class(self) -> CharSet:
        negated, first = self._take("^"), True
        found: list[CharSet] = []
        while first or not self._take("]"):
            first = False
            if self._take("[:"):
                name = self._until(":]")
                named = named_class(name)
                if named is None:
                    raise invalid(f"[:{name}:]")
                found.append(named)
                continue
            low = self._class_item()
            if isinstance(low, CharSet):
                found.append(low)
                continue
            high = low
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                end = self._class_item()
                if isinstance(end, CharSet) or end < low:
                    raise invalid("a range in [] that has no end")
                high = end
            found.append(self._folded_range(low, high))
        chars = union(found)
        return chars.negated() if negated else chars

    def _class_item(self) -> CharSet | str:
        letter = self._next()
        if letter != "\\":
            return letter
        letter = self._next()
        if letter in "dDsSwWpP":
            return self._escaped(letter)
        return self._code(letter)

    # --- building states

    def _folded(self, letter: str) -> CharSet:
        return folded(CharSet.of(letter)) if self._fold else CharSet.of(letter)

    def _folded_range(self, low: str, high: str) -> CharSet:
        chars = CharSet(((ord(low), ord(high)),))
        return folded(chars) if self._fold else chars

    def _state(self, chars: CharSet | None = None, check: int = NO_CHECK) -> int:
        if len(self._program) >= MAX_STATES:
            raise invalid(f"it needs more than {MAX_STATES} states")
        return self._program.add(chars, check)

    def _lead(self, ends: list[int], to: int) -> None:
        for end in ends:
            self._program.out[end].append(to)

    def _literal(self, letter: str) -> _Part:
        return self._one_of(self._folded(letter))

    def _one_of(self, chars: CharSet) -> _Part:
        return _Part(lambda: self._single(chars, NO_CHECK))

    def _assertion(self, check: int) -> _Part:
        return _Part(lambda: self._single(None, check))

    def _single(self, chars: CharSet | None, check: int) -> _Fragment:
        state = self._state(chars, check)
        return state, [state]

    def _nothing(self) -> _Fragment:
        return self._single(None, NO_CHECK)

    def _looking(self, inner: _Part, behind: bool, negated: bool) -> _Fragment:
        begin, end = self._closed(inner)
        looks = self._program.looks
        if len(looks) >= _MAX_LOOKS:
            raise invalid(f"it has more than {_MAX_LOOKS} look-arounds")
        looks.append(Look(begin, end, behind, negated))
        return self._single(None, LOOK + len(looks) - 1)

    def _chain(self, parts: list[_Part]) -> _Fragment:
        if not parts:
            return self._nothing()
        begin, ends = parts[0].make()
        for part in parts[1:]:
            first, lasts = part.make()
            self._lead(ends, first)
            ends = lasts
        return begin, ends

    def _either(self, branches: list[_Part]) -> _Fragment:
        begin = self._state()
        ends: list[int] = []
        for branch in branches:
            first, lasts = branch.make()
            self._program.out[begin].append(first)
            ends += lasts
        return begin, ends

    def _repeat(self, part: _Part, least: int, most: int | None) -> _Fragment:
        if most == 0:
            return self._nothing()
        if most is None:
            parts = [part] * least
            return self._chain([*parts, _Part(lambda: self._again(part))])
        if least < most:
            return self._chain([*[part] * least, _Part(lambda: self._at_most(part, most - least))])
        return self._chain([part] * least)

    def _again(self, part: _Part) -> _Fragment:
        around = self._state()
        first, lasts = part.make()
        self._program.out[around].append(first)
        self._lead(lasts, around)
        return around, [around]

    def _at_most(self, part: _Part, most: int) -> _Fragment:
        left: list[int] = []
        ends: list[int] = []
        for _ in range(most):
            choice = self._state()
            self._lead(ends, choice)
            left.append(choice)
            first, ends = part.make()
            self._program.out[choice].append(first)
        return left[0], left + ends


_ENDS: Final = {("^", False): BEGIN, ("$", False): END, ("^", True): LINE_BEGIN, ("$", True): LINE_END}
_LOOKS: Final = {
    "?=": (False, False),
    "?!": (False, True),
    "?<=": (True, False),
    "?<!": (True, True),
}
