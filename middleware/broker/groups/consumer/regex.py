"""Regular expressions of topic subscriptions, in RE2's syntax, matched in linear time against whole names.

Kafka's brokers use RE2/J, so a client's expression cannot take up a broker's time (KIP-848). Python's `re`
backtracks. This module parses RE2's syntax into a nondeterministic automaton and runs it over names, caching
sets of states. Source: https://github.com/google/re2/wiki/Syntax. Named groups, lazy quantifiers and flags
are supported; back references, look-around and possessive quantifiers do not exist in RE2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError

from .regex_classes import ESCAPES, CharSet, folded, named_class, perl_class, unicode_class, union

MAX_LENGTH: Final = 4096  # characters of an expression
MAX_REPEAT: Final = 1000  # as in RE2
MAX_STATES: Final = 20_000
_MAX_DEPTH: Final = 200  # nested groups
_REMEMBERED: Final = 10_000  # cached transitions between sets of states
_MAX_WORK: Final = 3_000_000  # visited states; takes about a second


class _Node:
    """A state of the automaton. It consumes a character of `chars` (None: no character) and goes to `out`.

    `check`: an assertion that must hold: "^", "$", "^^", "$$", "b" or "B". Doubled: at ends of lines too.
    """

    __slots__ = ("chars", "check", "out")

    def __init__(self, chars: CharSet | None = None, check: str = "") -> None:
        self.chars = chars
        self.check = check
        self.out: list[_Node] = []


_Fragment = tuple[_Node, _Node]  # first and last state
_Make = Callable[[], _Fragment]  # builds a new copy, for each repetition


def invalid(why: str) -> TreecastError:
    return TreecastError(Fault.INVALID_REGEX, f"the regular expression is not valid RE2: {why}")


class _Parser:
    """A recursive descent parser. The grammar's methods return a builder of the automaton for their input."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._states = 0
        self._fold = self._dot_all = self._many_lines = self._swapped = False

    def parse(self) -> _Fragment:
        make = self._alternatives()
        if self._at < len(self._text):
            raise invalid("a ) without its (")
        return make()

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

    def _alternatives(self) -> _Make:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else lambda: self._either(branches)

    def _sequence(self) -> _Make:
        parts: list[_Make] = []
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
        return lambda: self._chain(parts)

    def _quantified(self, make: _Make) -> _Make:
        counted = self._count()
        if counted is None:
            return make
        self._take("?")  # a lazy quantifier matches the same names
        if self._peek("*") or self._peek("+") or self._peek("?") or self._repeats():
            raise invalid("a quantifier of a quantifier")
        least, most = counted
        return lambda: self._repeat(make, least, most)

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

    def _atom(self) -> _Make:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._one_of(self._class())
        if letter == ".":
            return self._one_of(CharSet.everything() if self._dot_all else CharSet.of("\n").negated())
        if letter in "^$":
            return self._assertion(letter if not self._many_lines else letter * 2)
        if letter == "\\":
            return self._escape()
        if letter in "*+?":
            raise invalid(f"{letter} with nothing before it")
        return self._literal(letter)

    def _group(self) -> _Make:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise invalid("too many groups in groups")
        flags = self._fold, self._dot_all, self._many_lines
        if self._take("?P<") or (self._peek("?<") and not self._peek("?<=") and not self._peek("?<!")):
            self._take("?<")
            name = self._until(">")
            if not name or not name.replace("_", "a").isalnum():
                raise invalid(f"a group of the name {name!r}")
        elif self._take("?") and self._flags():
            self._depth -= 1  # (?i) without a colon holds to the end of the enclosing group
            return self._nothing
        inner = self._alternatives()
        if not self._take(")"):
            raise invalid("a ( without its )")
        self._fold, self._dot_all, self._many_lines = flags
        self._depth -= 1
        return inner

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

    def _escape(self) -> _Make:
        letter = self._next()
        if letter in "bB":
            return self._assertion(letter)
        if letter in "Az":
            return self._assertion("^" if letter == "A" else "$")
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

    def _node(self, chars: CharSet | None = None, check: str = "") -> _Node:
        self._states += 1
        if self._states > MAX_STATES:
            raise invalid(f"it needs more than {MAX_STATES} states")
        return _Node(chars, check)

    def _literal(self, letter: str) -> _Make:
        return self._one_of(self._folded(letter))

    def _one_of(self, chars: CharSet) -> _Make:
        return lambda: self._single(self._node(chars))

    def _assertion(self, check: str) -> _Make:
        return lambda: self._single(self._node(check=check))

    def _single(self, node: _Node) -> _Fragment:
        end = self._node()
        node.out.append(end)
        return node, end

    def _nothing(self) -> _Fragment:
        node = self._node()
        return node, node

    def _chain(self, parts: list[_Make]) -> _Fragment:
        begin, end = self._nothing()
        for make in parts:
            first, last = make()
            end.out.append(first)
            end = last
        return begin, end

    def _either(self, branches: list[_Make]) -> _Fragment:
        begin, end = self._node(), self._node()
        for make in branches:
            first, last = make()
            begin.out.append(first)
            last.out.append(end)
        return begin, end

    def _repeat(self, make: _Make, least: int, most: int | None) -> _Fragment:
        begin, end = self._nothing()
        for _ in range(least):
            first, last = make()
            end.out.append(first)
            end = last
        if most is None:
            first, last = make()
            around = self._node()
            end.out.append(around)
            around.out.append(first)
            last.out.append(around)
            return begin, around
        stop = self._node()
        end.out.append(stop)
        for _ in range(most - least):
            first, last = make()
            end.out.append(first)
            last.out.append(stop)
            end = last
        return begin, stop


def _is_word(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter == "_")


class Regex:
    """A compiled expression. Raises INVALID_REGEX if it is invalid. Matching takes linear time."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise invalid(f"it has more than {MAX_LENGTH} characters")
        try:
            self._begin, self._end = _Parser(text).parse()
        except RecursionError:
            raise invalid("too many groups in groups") from None
        self._words = "\\b" in text or "\\B" in text  # transitions depend on the following character
        self._work = 0
        self._next: dict[tuple[frozenset[_Node], str, str], frozenset[_Node]] = {}

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole of `name`.

        Raises INVALID_REGEX if matching all names so far has taken too long. Cached transitions do not count.
        """
        states = self._closure([self._begin], "", name[:1])
        for place, letter in enumerate(name):
            states = self._step(states, letter, name[place + 1 : place + 2])
            if not states:
                return False
        return self._end in states

    def _step(self, states: frozenset[_Node], letter: str, then: str) -> frozenset[_Node]:
        key = states, letter, then if self._words or then in ("", "\n") else "-"
        found = self._next.get(key)
        if found is None:
            code = ord(letter)
            taken = [
                node
                for state in states
                if state.chars is not None and code in state.chars
                for node in state.out
            ]
            found = self._closure(taken, letter, then)
            if len(self._next) >= _REMEMBERED:
                self._next.clear()
            self._next[key] = found
        return found

    def _closure(self, nodes: list[_Node], before: str, then: str) -> frozenset[_Node]:
        """Returns all states reachable from `nodes` between two characters. "" is an end of the name."""
        found: set[_Node] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node in found:
                continue
            found.add(node)
            if node.chars is None and (not node.check or _holds(node.check, before, then)):
                waiting += node.out
        self._work += len(found)
        if self._work > _MAX_WORK:
            raise invalid("it takes too long to match; name topics, or write it with fewer repetitions")
        return frozenset(found)


def _holds(check: str, before: str, then: str) -> bool:
    if check in ("^", "$"):
        return not (before if check == "^" else then)
    if check in ("^^", "$$"):
        return (before if check == "^^" else then) in ("", "\n")
    boundary = _is_word(before) != _is_word(then)
    return boundary == (check == "b")
