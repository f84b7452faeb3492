"""Text to tokens, by one regular expression. Pure.

A token's `kind` is the word or the operator itself for keywords and operators, else IDENTIFIER, INTEGER,
STRING, END, or BAD: a character that P4 does not have, which is an error only if it is used. `>` is always a
separate token, since `>>` also closes two lists of type arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .source import Span

IDENTIFIER, INTEGER, BAD, END = "identifier", "integer", "bad", "end of file"
STRING = "string literal"  # `string` is the keyword

KEYWORDS = frozenset(
    {
        "abstract",
        "action",
        "actions",
        "apply",
        "bit",
        "bool",
        "break",
        "const",
        "continue",
        "control",
        "default",
        "else",
        "entries",
        "enum",
        "error",
        "exit",
        "extern",
        "false",
        "for",
        "header",
        "header_union",
        "if",
        "in",
        "inout",
        "int",
        "key",
        "list",
        "match_kind",
        "out",
        "package",
        "parser",
        "priority",
        "return",
        "select",
        "state",
        "string",
        "struct",
        "switch",
        "table",
        "this",
        "transition",
        "true",
        "tuple",
        "type",
        "typedef",
        "value_set",
        "varbit",
        "void",
    }
)

_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\r\f\v]|\\\r?\n)+)
  | (?P<newline>\n)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<integer>(?:[0-9]+[ws])?(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|0[dD][0-9_]+|[0-9][0-9_]*))
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<operator>\|\+\|=?|\|-\|=?|<<=?|&&&|\.\.\.|\.\.|\+\+|\+:|&&|\|\||==|!=|<=|>=
                |\+=|-=|\*=|/=|%=|&=|\|=|\^=|\{\#\}|\#\#|[-+*/%&|^~!<>=?:;,.(){}\[\]@\#])
  | (?P<bad>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token:
    """A word of the text. `row` numbers logical lines (continued ones are one); `hidden`: macros that may
    not expand it."""

    __slots__ = ("column", "end", "file", "hidden", "kind", "line", "row", "text")

    def __init__(self, kind: str, text: str, file: str, line: int, column: int, end: int, row: int) -> None:
        self.kind = kind
        self.text = text
        self.file = file
        self.line = line
        self.column = column
        self.end = end
        self.row = row
        self.hidden: frozenset[str] = frozenset()

    @property
    def span(self) -> Span:
        return Span(self.file, self.line, self.column, self.end)

    def moved(self, place: Token, hidden: frozenset[str]) -> Token:
        """Returns the same word at the place of `place`."""
        token = Token(self.kind, self.text, place.file, place.line, place.column, place.end, place.row)
        token.hidden = hidden
        return token

    def __repr__(self) -> str:
        return f"Token({self.text!r}, {self.span})"


def tokens(text: str, file: str) -> Iterator[Token]:
    """Yields all tokens of a file but END, without comments and line continuations; `#` is a token."""
    line, start, row = 1, 0, 1
    for found in _TOKEN.finditer(text):
        group = found.lastgroup
        word = found.group()
        if group == "space" or group == "comment":
            breaks = word.count("\n")
            if breaks:
                line += breaks
                start = found.start() + word.rindex("\n") + 1
            continue
        if group == "newline":
            line += 1
            row += 1
            start = found.end()
            continue
        if group == "word":
            kind = word if word in KEYWORDS else IDENTIFIER
        elif group == "operator":
            kind = word
        elif group == "integer":
            kind = INTEGER
        elif group == "string":
            kind = STRING
        else:
            kind = BAD
        column = found.start() - start + 1
        yield Token(kind, word, file, line, column, column + len(word.split("\n", 1)[0]), row)
        if kind == STRING and "\n" in word:
            line += word.count("\n")
            start = found.start() + word.rindex("\n") + 1
