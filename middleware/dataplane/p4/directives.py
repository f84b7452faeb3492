"""The preprocessor's macros and conditions, and the value of an `#if` expression. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .lexer import INTEGER, Token
from .source import Span


class Macro(msgspec.Struct, frozen=True):
    """`#define`: parameters None for an object-like one."""

    parameters: tuple[str, ...] | None
    body: tuple[Token, ...]


class Condition(msgspec.Struct):
    """An open `#if`. `active`: this branch is read; `met`: one was, or none may be; `closed`: #else was
    seen."""

    span: Span
    active: bool
    met: bool
    closed: bool = False


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise ValueError("division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        "<=": lambda a, b: int(a <= b),
        ">": lambda a, b: int(a > b),
        ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: a << min(b, 64), ">>": lambda a, b: a >> b},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": _divide, "%": lambda a, b: a - b * _divide(a, b)},
)
_DEEPEST = 200


def integer(text: str) -> int:
    """Returns the value of an integer without width: `10`, `0x1F`, `0b1_0`, `0d10`; leading zeros don't mean
    octal.
    """
    digits = text.replace("_", "").lower()
    base = {"0x": 16, "0o": 8, "0b": 2, "0d": 10}.get(digits[:2])
    return int(digits[2:], base) if base else int(digits)


def evaluate(line: Sequence[Token], place: Token) -> int:
    """Returns the value of an `#if` expression whose macros are replaced; remaining words are 0. Raises
    ValueError with the reason.
    """
    texts = _joined(line)
    if not texts:
        raise ValueError("there is no expression")
    reader = _Reader(texts)
    value = reader.choice(0)
    if reader.position != len(texts):
        raise ValueError(f"'{texts[reader.position]}' is not expected")
    return value


def _joined(line: Sequence[Token]) -> list[str]:
    """Returns the words, with `>` `>` that touch each other made one."""
    texts: list[str] = []
    last: Token | None = None
    for token in line:
        if last is not None and last.text == ">" == token.text and token.column == last.end:
            texts[-1] = ">>"
            last = None
            continue
        texts.append(token.text if token.kind != INTEGER else str(integer(token.text)))
        last = token
    return texts


class _Reader:
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.position = 0

    def _next(self) -> str:
        return self.texts[self.position] if self.position < len(self.texts) else ""

    def _accept(self, text: str) -> bool:
        if self._next() == text:
            self.position += 1
            return True
        return False

    def choice(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        value = self._level(0, depth)
        if self._accept("?"):
            yes = self.choice(depth + 1)
            if not self._accept(":"):
                raise ValueError("'?' without ':'")
            no = self.choice(depth + 1)
            return yes if value else no
        return value

    def _level(self, level: int, depth: int) -> int:
        if level == len(_LEVELS):
            return self._unary(depth)
        value = self._level(level + 1, depth)
        while self._next() in _LEVELS[level]:
            operation = _LEVELS[level][self._next()]
            self.position += 1
            value = operation(value, self._level(level + 1, depth))
        return value

    def _unary(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        text = self._next()
        self.position += 1
        if text == "(":
            value = self.choice(depth + 1)
            if not self._accept(")"):
                raise ValueError("a bracket is not closed")
            return value
        if text == "!":
            return int(not self._unary(depth + 1))
        if text in ("-", "~", "+"):
            value = self._unary(depth + 1)
            return {"-": -value, "~": ~value, "+": value}[text]
        if text[:1].isdigit():
            return int(text)
        if text[:1].isalpha() or text[:1] == "_":
            return 0
        raise ValueError(f"'{text}' is not expected" if text else "it is not complete")
