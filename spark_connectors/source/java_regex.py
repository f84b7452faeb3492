"""Java's regular expressions as Python's, for `subscribePattern`. Pure.

Both are alike in all that patterns of topic names usually have. Translated are quotations `\\Q...\\E`,
named groups `(?<name>...)` and `\\k<name>`, the ends `\\z` and `\\Z`, and classes such as `\\p{Alpha}`,
which mean ASCII letters (java.util.regex.Pattern). Classes within classes and all other `\\p{...}` are
refused, as Python would read them as something else.
"""

from __future__ import annotations

import re
from typing import Final

_CLASSES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "L": "a-zA-Z",  # topic names are ASCII
    "Lu": "A-Z",
    "Ll": "a-z",
    "N": "0-9",
}
_PART: Final = re.compile(
    r"""(?P<quoted>\\Q(?P<text>.*?)(?:\\E|$))
    |(?P<named>\(\?<(?=[A-Za-z]))
    |(?P<back>\\k<(?P<name>[A-Za-z][A-Za-z0-9]*)>)
    |(?P<end>\\[zZ])
    |(?P<kind>\\(?P<sign>[pP])(?:\{(?P<class>[^}]*)\}|(?P<letter>.)))
    |(?P<escaped>\\.)
    |(?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)


def python_regex(pattern: str) -> str:
    """Returns the pattern for Python's `re`. Raises ValueError for a part that Python does not have."""
    found: list[str] = []
    inside = 0  # from where a class of characters is open, plus 1; 0: none is
    for part in _PART.finditer(pattern):
        kind = part.lastgroup if part.lastgroup in _PLAIN else _kind_of(part)
        text = part[0]
        if kind == "quoted":
            text = re.escape(part["text"])
        elif kind == "named":
            text = text if inside else "(?P<"
        elif kind == "back":
            text = f"(?P={part['name']})"
        elif kind == "end":
            text = r"\Z"
        elif kind == "kind":
            text = _class(part, bool(inside))
        elif kind == "plain":
            inside = _inside(pattern, part.start(), inside)
        found.append(text)
    return "".join(found)


_PLAIN: Final = ("escaped", "plain")


def _kind_of(part: re.Match[str]) -> str:
    return next(name for name in ("quoted", "named", "back", "end", "kind") if part[name] is not None)


def _class(part: re.Match[str], inside: bool) -> str:
    name = part["class"] or part["letter"]
    if name not in _CLASSES or (inside and part["sign"] == "P"):
        raise ValueError(f"{part[0]} is not known here; of such classes there are {', '.join(_CLASSES)}")
    if inside:
        return _CLASSES[name]
    return f"[{'^' if part['sign'] == 'P' else ''}{_CLASSES[name]}]"


def _inside(pattern: str, place: int, inside: int) -> int:
    """Returns whether a class is open behind a character. Raises ValueError for a class within a class."""
    sign = pattern[place]
    if not inside:
        return place + 1 if sign == "[" else 0
    if sign == "[" or pattern.startswith("&&", place):
        raise ValueError(
            f"a class within a class, at {pattern[place : place + 8]!r}, is not known here; write it as one"
        )
    first = pattern[inside:place].lstrip("^") == ""
    return inside if sign != "]" or first else 0
