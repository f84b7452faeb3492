"""Annotations: bodies are kept as literals if possible, and as text. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import ast
from ..directives import evaluate
from ..ir.annotations import Annotation, Scalar
from ..lexer import END, INTEGER, STRING, Token, tokens
from ..source import Span
from .expressions import Expressions, literal, unquoted
from .stream import NAMES, Mistake, Stream

_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Annotations:
    """The part of the parser that reads annotations.

    `constants` are those declared so far, for the expressions in structured annotations (`@a[1 + N]`).
    """

    def __init__(self, tokens: Stream) -> None:
        self._tokens = tokens
        self.constants: dict[str, Scalar] = {}

    def annotations(self) -> tuple[Annotation, ...]:
        """Parses all annotations here."""
        found: list[Annotation] = []
        while self._tokens.token.kind == "@":
            found.append(self._annotation())
        return tuple(found)

    def _annotation(self) -> Annotation:
        first = self._tokens.advance()
        name = self._tokens.token
        if not (name.text[:1].isalpha() or name.text[:1] == "_"):
            raise self._tokens.mistake("a name is expected after '@'")
        self._tokens.advance()
        if name.text == "pragma":
            return self._pragma(first, name)
        if self._tokens.token.kind in ("(", "["):
            structured = self._tokens.token.kind == "["
            body = self._body()
            return annotation(name.text, body, structured, self._tokens.since(first.span), self.constants)
        return Annotation(name.text, span=self._tokens.since(first.span))

    def _pragma(self, first: Token, word: Token) -> Annotation:
        """Parses `@pragma name body`, to the end of the line."""
        name, body = self._tokens.token, []
        if name.row != word.row:
            raise Mistake(word.span, "@pragma needs a name")
        self._tokens.advance()
        while self._tokens.token.row == word.row and self._tokens.token.kind != END:
            body.append(self._tokens.advance())
        return annotation(name.text, body, False, first.span.to(name.span))

    def _body(self) -> list[Token]:
        """Returns the tokens between brackets."""
        opening = self._tokens.advance()
        awaited = [_CLOSING[opening.kind]]
        body: list[Token] = []
        while True:
            token = self._tokens.token
            if token.kind == END:
                raise Mistake(opening.span, "the annotation's bracket is not closed")
            self._tokens.advance()
            if token.kind == awaited[-1]:
                awaited.pop()
                if not awaited:
                    return body
            elif token.kind in _CLOSING:
                awaited.append(_CLOSING[token.kind])
            body.append(token)


def annotation(
    name: str,
    body: Sequence[Token],
    structured: bool,
    span: Span,
    constants: Mapping[str, Scalar] | None = None,
) -> Annotation:
    """Returns an annotation from the tokens of its body."""
    known = constants if structured else None
    parts = _split(body)
    pairs = [part for part in parts if len(part) > 2 and part[0].kind in NAMES and part[1].kind == "="]
    text = _text(body)
    if pairs and len(pairs) == len(parts):
        named = tuple((part[0].text, _scalar(part[2:], known)) for part in parts)
        return Annotation(name, (), named, text, structured, span)
    return Annotation(name, tuple(_scalar(part, known) for part in parts), (), text, structured, span)


def _split(body: Sequence[Token]) -> list[list[Token]]:
    """Splits the body at commas outside brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in body:
        depth += (token.kind in _CLOSING) - (token.kind in _CLOSING.values())
        if token.kind == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _scalar(part: Sequence[Token], constants: Mapping[str, Scalar] | None = None) -> Scalar:
    """Returns a literal; in a structured annotation the value of an expression, if it can be known; else the
    text.
    """
    if constants is not None:
        found = _value(part, constants)
        if found is not None:
            return found
    if all(token.kind == STRING for token in part):
        return "".join(unquoted(token.text) for token in part)
    if len(part) == 1:
        token = part[0]
        if token.kind == INTEGER:
            return literal(token).value
        if token.kind in ("true", "false"):
            return token.kind == "true"
        return token.text
    # `bit<8` is not a comparison
    words = any(token.kind in NAMES or token.text[:1].isalpha() for token in part)
    if any(token.kind == INTEGER for token in part) and not words:
        try:
            return evaluate(part, part[0])
        except ValueError:
            pass
    return _text(part)


def value_of(text: str, constants: Mapping[str, Scalar]) -> Scalar | None:
    """Returns the value of an annotation's text as an expression; None if it is not one, or unknown."""
    part = list(tokens(text, ""))
    return _value(part, constants) if part else None


def _value(part: Sequence[Token], constants: Mapping[str, Scalar]) -> Scalar | None:
    end = part[-1]
    stream = Stream([*part, Token(END, "", end.file, end.line, end.end, end.end, end.row)])
    try:
        node = Expressions(stream).expression()
        return known_value(node, constants) if stream.token.kind == END else None
    except (Mistake, TypeError, ArithmeticError, ValueError):
        return None


_OPERATIONS: dict[str, Callable[[Any, Any], Scalar]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "++": operator.add,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&&": lambda one, other: bool(one and other),
    "||": lambda one, other: bool(one or other),
}


def known_value(node: ast.Expression, constants: Mapping[str, Scalar]) -> Scalar | None:
    """Returns the value of an expression over literals and constants; None for any other."""
    match node:
        case ast.IntegerLiteral(value=value) | ast.StringLiteral(value=value) | ast.BoolLiteral(value=value):
            return value
        case ast.Name(name=name):
            return constants.get(name)
        case ast.Member(base=ast.Name(name=base), name=name):
            return constants.get(f"{base}.{name}")
        case ast.Unary(operator=sign, operand=operand):
            inner = known_value(operand, constants)
            if sign == "!" and isinstance(inner, bool):
                return not inner
            return -inner if sign == "-" and isinstance(inner, int) else None
        case ast.Binary(operator=sign, left=left, right=right):
            one, other = known_value(left, constants), known_value(right, constants)
            operation = _OPERATIONS.get(sign)
            return None if one is None or other is None or operation is None else operation(one, other)
    return None


def _text(body: Sequence[Token]) -> str:
    """Returns the tokens as written, with single blanks for space between them."""
    words: list[str] = []
    last: Token | None = None
    for token in body:
        if last is not None and (token.line != last.line or token.column > last.end):
            words.append(" ")
        words.append(token.text)
        last = token
    return "".join(words)
