"""The character classes of regular expressions, as ranges of code points."""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

Range = tuple[int, int]  # first and last code point


class CharSet:
    """A set of characters, as sorted ranges that neither overlap nor touch."""

    __slots__ = ("_firsts", "ranges")

    def __init__(self, ranges: Iterable[Range]) -> None:
        merged: list[Range] = []
        for first, last in sorted(ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        self.ranges = tuple(merged)
        self._firsts = [first for first, _ in merged]

    @classmethod
    def of(cls, letters: str) -> CharSet:
        return cls((ord(letter), ord(letter)) for letter in letters)

    @classmethod
    def everything(cls) -> CharSet:
        return cls(((0, sys.maxunicode),))

    def __contains__(self, code: int) -> bool:
        place = bisect_right(self._firsts, code) - 1
        return place >= 0 and code <= self.ranges[place][1]

    def negated(self) -> CharSet:
        gaps, first = [], 0
        for low, high in self.ranges:
            if low > first:
                gaps.append((first, low - 1))
            first = high + 1
        if first <= sys.maxunicode:
            gaps.append((first, sys.maxunicode))
        return CharSet(gaps)


def union(sets: Iterable[CharSet]) -> CharSet:
    return CharSet(found for one in sets for found in one.ranges)


def folded(chars: CharSet) -> CharSet:
    """Returns the set with both cases of its ASCII letters, and of its only letter if it has just one."""
    ranges = list(chars.ranges)
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        letter = chr(ranges[0][0])
        ranges += [(ord(one), ord(one)) for one in (letter.lower(), letter.upper()) if len(one) == 1]
    for low, high in chars.ranges:
        for first, last, to in ((65, 90, 32), (97, 122, -32)):
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                ranges.append((begin + to, end + to))
    return CharSet(ranges)


def _letters(*pairs: str) -> CharSet:
    return CharSet((ord(pair[0]), ord(pair[-1])) for pair in pairs)


ESCAPES: Mapping[str, str] = MappingProxyType(
    {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
)
_PERL: Mapping[str, CharSet] = MappingProxyType(
    {"d": _letters("09"), "s": CharSet.of("\t\n\f\r "), "w": _letters("09", "AZ", "az", "_")}
)
_POSIX: Mapping[str, CharSet] = MappingProxyType(
    {
        "alnum": _letters("09", "AZ", "az"),
        "alpha": _letters("AZ", "az"),
        "ascii": _letters("\x00\x7f"),
        "blank": CharSet.of("\t "),
        "cntrl": _letters("\x00\x1f", "\x7f"),
        "digit": _letters("09"),
        "graph": _letters("!~"),
        "lower": _letters("az"),
        "print": _letters(" ~"),
        "punct": _letters("!/", ":@", "[`", "{~"),
        "space": CharSet.of("\t\n\v\f\r "),
        "upper": _letters("AZ"),
        "word": _letters("09", "AZ", "az", "_"),
        "xdigit": _letters("09", "AF", "af"),
    }
)


def perl_class(letter: str) -> CharSet | None:
    r"""Returns the set of \d, \s, \w or their opposites; None for other letters."""
    found = _PERL.get(letter.lower())
    return found.negated() if found is not None and letter.isupper() else found


def named_class(name: str) -> CharSet | None:
    """Returns the set of a POSIX class: `alpha` for [:alpha:], `^alpha` for [:^alpha:]; None if unknown."""
    found = _POSIX.get(name.removeprefix("^"))
    return found.negated() if found is not None and name.startswith("^") else found


_LAST_KNOWN = 0xFFFF  # the categories of higher code points are not known


@cache
def _categories() -> Mapping[str, CharSet]:
    """Returns Unicode's general categories, by their two letters and by the first letter."""
    ranges: dict[str, list[Range]] = {}
    first, kind = 0, unicodedata.category("\0")
    for code in range(1, _LAST_KNOWN + 2):
        following = unicodedata.category(chr(code)) if code <= _LAST_KNOWN else ""
        if following != kind:
            ranges.setdefault(kind, []).append((first, code - 1))
            ranges.setdefault(kind[0], []).append((first, code - 1))
            first, kind = code, following
    return {name: CharSet(found) for name, found in ranges.items()}


@cache
def unicode_class(name: str) -> CharSet | None:
    r"""Returns the set of \p{Lu} or \pL, of Any, or of the script Latin; None if unknown."""
    if name == "Any":
        return CharSet.everything()
    if name == "Latin":
        return _letters("AZ", "az")
    return _categories().get(name) if 1 <= len(name) <= 2 else None
