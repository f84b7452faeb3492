"""The parser: a filter's text to a tree.

  filter      = conjunction { ("or" | "||" | "∨") conjunction }
  conjunction = negation { ("and" | "&&" | "∧") negation }
  negation    = ("not" | "!" | "¬") negation | "(" filter ")" | "true" | "false" | constraint
  constraint  = attribute relation constant
  attribute   = name { "." name } | name "(" attribute { "," attribute } ")"
  relation    = "==" | "=" | "!=" | "<" | "<=" | ">" | ">=" | "prefix"
  constant    = number | string | word | "true" | "false"

A name with characters other than letters, digits, `_` and `-` stands between backquotes. A string stands
between quotes or as a bare word (`stock == GOOGL`, `ip.dst == 192.168.0.1`). Keywords are case-insensitive.
"""

from __future__ import annotations

from typing import Final

from .errors import FilterError
from .tokens import Kind, Token, tokens
from .tree import (
    EVERYTHING,
    NOTHING,
    Aggregate,
    And,
    Attribute,
    Constraint,
    Field,
    Filter,
    Not,
    Or,
    Relation,
    Scalar,
)

MAX_LENGTH: Final = 65_536  # characters
MAX_DEPTH: Final = 100  # of nested brackets and negations
MAX_DIGITS: Final = 100
_RELATIONS: Final = {relation.value: relation for relation in Relation}


def parse(text: str) -> Filter:
    """Returns the filter that `text` states. Raises FilterError, which points at the character."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH:,} characters, this one {len(text):,}", text, 0)
    parser = _Parser(text)
    tree = parser.either()
    parser.must_end()
    return tree


class _Parser:
    """Recursive descent with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = next(self._tokens)
        self._depth = 0

    # --- tokens

    def _take(self) -> Token:
        taken = self._next
        if taken.kind is not Kind.END:
            self._next = next(self._tokens)
        return taken

    def _took(self, *signs: str) -> bool:
        """Takes the next token if it is one of `signs`; returns whether it did."""
        if self._next.kind is Kind.SIGN and self._next.text in signs:
            self._take()
            return True
        return False

    def _error(self, wanted: str) -> FilterError:
        found = self._next
        what = "the filter ends" if found.kind is Kind.END else f"there is {found.text!r}"
        return FilterError(f"{wanted} is wanted, but {what}", self._text, found.position)

    def must_end(self) -> None:
        if self._next.kind is not Kind.END:
            raise self._error("'and', 'or' or the end")

    # --- logic

    def either(self) -> Filter:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Filter:
        parts = [self._negation()]
        while self._took("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self) -> Filter:
        position = self._next.position
        if self._took("not"):
            tree: Filter = Not(self._deeper(position)._negation())
        elif self._took("("):
            tree = self._deeper(position).either()
            if not self._took(")"):
                raise self._error("')'")
        else:
            return self._literal()
        self._depth -= 1
        return tree

    def _deeper(self, position: int) -> _Parser:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"more than {MAX_DEPTH} parts inside one another", self._text, position)
        return self

    def _literal(self) -> Filter:
        if self._took("true"):
            return EVERYTHING
        if self._took("false"):
            return NOTHING
        return self._constraint()

    # --- constraints

    def _constraint(self) -> Constraint:
        attribute = self._attribute()
        if self._next.kind is not Kind.SIGN or self._next.text not in _RELATIONS:
            raise self._error("==, !=, <, <=, >, >= or prefix")
        relation = _RELATIONS[self._take().text]
        position = self._next.position
        constant = self._constant()
        if relation is Relation.PREFIX and not isinstance(constant, str):
            raise FilterError("a prefix is a string", self._text, position)
        if isinstance(constant, bool) and relation not in (Relation.EQ, Relation.NE):
            raise FilterError("true and false can only be equal or not", self._text, position)
        return Constraint(attribute, relation, constant)

    def _attribute(self) -> Attribute:
        name = self._name()
        if not self._took("("):
            return self._field(name)
        arguments = [self._field(self._name())]
        while self._took(","):
            arguments.append(self._field(self._name()))
        if not self._took(")"):
            raise self._error("',' or ')'")
        return Aggregate(name, tuple(arguments))

    def _field(self, first: str) -> Field:
        path = [first]
        while self._took("."):
            path.append(self._name())
        return Field(tuple(path))

    def _name(self) -> str:
        if self._next.kind is not Kind.WORD:
            raise self._error("the name of a field")
        return self._take().text

    def _constant(self) -> Scalar:
        if self._took("true"):
            return True
        if self._took("false"):
            return False
        if self._next.kind in (Kind.STRING, Kind.WORD):
            return self._take().text
        if self._next.kind is Kind.NUMBER:
            return self._number(self._take())
        raise self._error("a number or a string")

    def _number(self, token: Token) -> int | float:
        digits = token.text.lower()
        if len(digits) > MAX_DIGITS:
            raise FilterError(f"a number has at most {MAX_DIGITS} digits", self._text, token.position)
        if "x" in digits:
            return int(digits, 16)
        if not set(digits) & set(".e"):
            return int(digits)
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            raise FilterError("the number is too large", self._text, token.position)
        return number
