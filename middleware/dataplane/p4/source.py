"""Places in a program's text, and the display of errors. Pure.

router.p4:42:9: error: there is no field 'tll' in header 'ipv4_t'; did you mean 'ttl'?
        hdr.ipv4.tll = 64;
                 ^^^
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class Span(msgspec.Struct, frozen=True):
    """A part of one line: file name, line and column from 1, and the column after its last character.

    Text from a macro has the place of the macro's use.
    """

    file: str
    line: int
    column: int
    end: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to(self, last: Span) -> Span:
        """Returns the span from here to the end of `last`, or of its part on this line."""
        if last.file == self.file and last.line == self.line and last.end > self.end:
            return Span(self.file, self.line, self.column, last.end)
        return self


NOWHERE = Span("", 0, 0, 0)


class Diagnostic(msgspec.Struct, frozen=True):
    """One error or warning: its place and a message."""

    span: Span
    message: str
    severity: str = "error"

    def show(self, lines: Mapping[str, tuple[str, ...]]) -> str:
        """Returns the message, the line of source that it is about, and carets under the place."""
        head = f"{self.span}: {self.severity}: {self.message}" if self.span.file else f"error: {self.message}"
        source = lines.get(self.span.file, ())
        if not 1 <= self.span.line <= len(source):
            return head
        text = source[self.span.line - 1].rstrip()
        start = min(self.span.column - 1, len(text))
        carets = "^" * max(1, min(self.span.end, len(text) + 1) - self.span.column)
        padding = "".join("\t" if letter == "\t" else " " for letter in text[:start])
        return f"{head}\n{text}\n{padding}{carets}"


class P4Error(Exception):
    """A program is refused. `diagnostics` are its errors in order, at least one; the text shows them all."""

    def __init__(self, diagnostics: Iterable[Diagnostic], lines: Mapping[str, tuple[str, ...]]) -> None:
        self.diagnostics = tuple(diagnostics)
        self.lines = lines
        super().__init__("\n".join(one.show(lines) for one in self.diagnostics))
