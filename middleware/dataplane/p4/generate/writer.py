"""Lines of generated Python. Assignments to variables that are never read are dropped at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_NAME = re.compile(r"[A-Za-z_]\w*")
_PLAIN = re.compile(r"[A-Za-z_]\w*\Z")
MAX_LINES = 60_000  # of one program: more is left to the interpreter


class Line:
    """Plain text, or an assignment of several targets at once whose expressions have no effects."""

    __slots__ = ("expressions", "indent", "targets", "text")

    def __init__(self, indent: int, text: str, targets: list[str], expressions: list[str]) -> None:
        self.indent = indent
        self.text = text
        self.targets = targets
        self.expressions = expressions


class Writer:
    """Collects the lines of one function's body."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append(Line(self.depth, text, [], []))

    def assign(self, target: str, expression: str) -> None:
        """Writes an assignment that may be dropped if nothing reads the target."""
        if target != expression:
            self.lines.append(Line(self.depth, "", [target], [expression]))

    def assign_all(self, targets: list[str], expressions: list[str]) -> None:
        """Writes simultaneous assignments, as in `a, b = b, a`."""
        pairs = [(t, e) for t, e in zip(targets, expressions, strict=True) if t != e]
        if pairs:
            self.lines.append(Line(self.depth, "", [t for t, _ in pairs], [e for _, e in pairs]))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Writes a block. `head` ends in a colon; an empty block gets `pass`."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def mark(self) -> int:
        """Returns a position for `changed`."""
        return len(self.lines)


def names_in(text: str) -> set[str]:
    return set(_NAME.findall(text))


def loaded_names(lines: Iterable[Line], kept: set[str]) -> set[str]:
    """Names that are read, by lines that stay. `kept`: read by others."""
    loaded = set(kept)
    waiting: dict[str, list[str]] = {}
    for line in lines:
        if not line.targets:
            loaded |= names_in(line.text)
            continue
        for target, expression in zip(line.targets, line.expressions, strict=True):
            if _PLAIN.match(target):
                waiting.setdefault(target, []).append(expression)
            else:
                loaded |= names_in(target) | names_in(expression)
    ready = [name for name in loaded if name in waiting]
    while ready:
        for expression in waiting.pop(ready.pop(), ()):
            fresh = names_in(expression) - loaded
            loaded |= fresh
            ready.extend(name for name in fresh if name in waiting)
    return loaded


def assigned_names(lines: Iterable[Line], loaded: set[str]) -> set[str]:
    """Names that lines which stay assign to."""
    return {t for line in lines for t in line.targets if _PLAIN.match(t) and t in loaded}


def shown(lines: Iterable[Line], loaded: set[str]) -> list[str]:
    """Returns the text of the lines that stay; bodies that have become empty get `pass`."""
    result: list[str] = []
    open_block = False
    depth = 0
    for line in lines:
        text = line.text or _assignment(line, loaded)
        if not text:
            continue
        if open_block and line.indent <= depth:
            result.append("    " * (depth + 1) + "pass")
        result.append("    " * line.indent + text)
        open_block, depth = text.endswith(":"), line.indent
    if open_block:
        result.append("    " * (depth + 1) + "pass")
    return result


def _assignment(line: Line, loaded: set[str]) -> str:
    pairs = [
        (t, e)
        for t, e in zip(line.targets, line.expressions, strict=True)
        if not _PLAIN.match(t) or t in loaded
    ]
    if not pairs:
        return ""
    return f"{', '.join(t for t, _ in pairs)} = {', '.join(e for _, e in pairs)}"
