"""One line of a vector file as words, and errors that show their place in it."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from .statements import Value


class VectorError(ValueError):
    """A vector file contains something that cannot be read or done. The text has the file, the line and a
    caret.
    """

    def __init__(self, message: str, *, name: str, line: int, column: int, text: str) -> None:
        self.message, self.line, self.column = message, line, column
        shown = text.replace("\t", " ")
        super().__init__(f"{name}:{line}:{column}: {message}\n  {shown}\n  {' ' * (column - 1)}^")


class Word(Struct, frozen=True):
    """A token: `name`, `number`, or the punctuation itself; `column` counts from 1."""

    kind: str
    text: str
    column: int


# A float before a number, and `..` before a dot. Names hold `$`, as in `hdr$0` and `$valid$`.
_WORD: Final = re.compile(
    r"""
    (?P<skip>[ \t\r]+|\#.*)
  | (?P<number>
        0[xX][0-9a-fA-F*_]+ | 0[bB][01*_]+ | 0[oO][0-7*_]+
      | [0-9]+\.[0-9]+(?:[eE]-?[0-9]+)? | [0-9]+(?![A-Za-z_$])
    )
  | (?P<name>[A-Za-z_$][A-Za-z_$0-9]*)
  | "(?P<quoted>[^"]+)"
  | (?P<mark>&&&|\.\.|==|!=|<=|>=|[<>=:,.()\[\]/$])
    """,
    re.VERBOSE,
)


class Line:
    """The words of one line, read from left to right."""

    def __init__(self, text: str, number: int, name: str) -> None:
        self.text, self.number, self.name = text, number, name
        self.words = self._cut(text)
        self.at = 0

    def _cut(self, text: str) -> list[Word]:
        words, position = [], 0
        while position < len(text):
            found = _WORD.match(text, position)
            if found is None:
                raise self.error(f"unexpected character {text[position]!r}", position + 1)
            kind = found.lastgroup or ""
            if kind != "skip":
                written = found[kind]
                kinds = {"mark": written, "quoted": "name"}
                words.append(Word(kinds.get(kind, kind), written, position + 1))
            position = found.end()
        return words

    def error(self, message: str, column: int | None = None) -> VectorError:
        """Returns an error at that column, or at the next word."""
        return VectorError(
            message, name=self.name, line=self.number, column=column or self.column, text=self.text
        )

    @property
    def column(self) -> int:
        """The column of the next word, or of the line's end."""
        return self.words[self.at].column if self.at < len(self.words) else len(self.text.rstrip()) + 1

    def peek(self, ahead: int = 0) -> str:
        """Returns the kind of the word that comes, or an empty string at the end."""
        return self.words[self.at + ahead].kind if self.at + ahead < len(self.words) else ""

    def take(self, kind: str, what: str) -> Word:
        """Returns the next word, which must be of that kind."""
        if self.peek() != kind:
            found = f", not {self.words[self.at].text!r}" if self.at < len(self.words) else ""
            raise self.error(f"{what} is expected here{found}")
        self.at += 1
        return self.words[self.at - 1]

    def took(self, kind: str) -> bool:
        """Returns whether the next word was of that kind; then it is consumed."""
        if self.peek() != kind:
            return False
        self.at += 1
        return True

    def end(self) -> None:
        """Raises an error if anything follows."""
        if self.at < len(self.words):
            raise self.error(f"nothing is expected after this, found {self.words[self.at].text!r}")

    def integer(self, what: str) -> int:
        """Returns a plain number, in any base."""
        word = self.take("number", what)
        value = number(word.text)
        if value is None or value.stars:
            raise self.error(f"{what} is a whole number without `*`", word.column)
        return value.number

    def real(self, what: str) -> float:
        """Returns a number that may have a fraction."""
        word = self.take("number", what)
        value = number(word.text)
        return float(word.text) if value is None else float(value.number)

    def qualified(self, what: str) -> str:
        """Returns a name with its dots and indexes: `a.b[0].c`; quotes may hold any of it."""
        parts = [self.take("name", what).text]
        while self.peek() in (".", "["):
            if self.took("["):
                parts.append(f"[{self.integer('an index')}]")
                self.take("]", "`]`")
            elif self.took("."):
                parts.append(f".{self.take('name', 'a name').text}")
        return "".join(parts)


_BASES: Final = {"0x": (16, 4), "0b": (2, 1), "0o": (8, 3)}


def number(text: str) -> Value | None:
    """Returns a number's value; stars are zero bits outside `digits`. None if it has a fraction."""
    base, width = _BASES.get(text[:2].lower(), (10, 0))
    if base == 10:
        return None if "." in text else Value(int(text))
    digits = text[2:].replace("_", "")
    top = "f" if base == 16 else "7" if base == 8 else "1"
    mask = "".join("0" if digit == "*" else top for digit in digits)
    return Value(
        int(digits.replace("*", "0"), base), int(mask, base), len(digits) * width, stars="*" in digits
    )
