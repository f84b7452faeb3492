"""The parser's view of the tokens, its knowledge of names, and its errors. Pure.

Parsing P4 requires knowing which names are types: `a < b > (c)` depends on it. The parser keeps scopes of
names while it advances; the checker resolves names again, with their meanings.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..lexer import BAD, END, IDENTIFIER, Token
from ..source import Diagnostic, Span

# Keywords that may be names of things all the same.
SOFT = frozenset({"actions", "apply", "entries", "key", "list", "priority", "state", "type"})
NAMES = SOFT | {IDENTIFIER}
TYPE_WORDS = frozenset({"bit", "bool", "error", "int", "string", "tuple", "varbit", "void"})


class Mistake(Exception):
    """The text isn't P4 from here on."""

    def __init__(self, span: Span, message: str) -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(span, message)


def shown(token: Token) -> str:
    """Returns how a message names a token."""
    return token.kind if token.kind == END else f"'{token.text}'"


class Stream:
    """Tokens with a position, and scopes of names: True is a type."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self.token = tokens[0]
        self._scopes: list[dict[str, bool]] = [{}]

    # --- tokens

    def advance(self) -> Token:
        """Returns the present token and advances."""
        token = self.token
        if self._position + 1 < len(self._tokens):
            self._position += 1
            self.token = self._tokens[self._position]
        return token

    def peek(self, distance: int = 1) -> Token:
        """Returns a token further on."""
        return self._tokens[min(self._position + distance, len(self._tokens) - 1)]

    def previous(self) -> Token:
        return self._tokens[max(self._position - 1, 0)]

    def position(self) -> int:
        return self._position

    def rewind(self, position: int) -> None:
        self._position = position
        self.token = self._tokens[position]

    def accept(self, kind: str) -> Token | None:
        return self.advance() if self.token.kind == kind else None

    def expect(self, kind: str, where: str) -> Token:
        """Returns the token of that kind. Raises Mistake, which states what was expected `where`."""
        if self.token.kind == kind:
            return self.advance()
        raise self.mistake(f"'{kind}' is expected {where}")

    def mistake(self, wanted: str) -> Mistake:
        token = self.token
        if token.kind == BAD:
            return Mistake(token.span, f"{token.text!r} is no character of P4")
        return Mistake(token.span, f"{wanted}, not {shown(token)}")

    def name(self, of: str) -> Token:
        """Returns a name, soft keywords included."""
        if self.token.kind in NAMES:
            return self.advance()
        raise self.mistake(f"a name {of} is expected")

    def since(self, first: Span) -> Span:
        """Returns the span from `first` to the previous token."""
        return first.to(self.previous().span)

    # --- names

    def declare(self, name: str, is_type: bool) -> None:
        self._scopes[-1][name] = is_type

    def push(self) -> None:
        self._scopes.append({})

    def pop(self) -> None:
        self._scopes.pop()

    def depth(self) -> int:
        return len(self._scopes)

    def unwind(self, depth: int) -> None:
        del self._scopes[depth:]

    def is_type(self, name: str) -> bool:
        for scope in reversed(self._scopes):
            found = scope.get(name)
            if found is not None:
                return found
        return False

    def starts_type(self, distance: int = 0) -> bool:
        """Returns whether a type starts here, judged by the next word."""
        token = self.peek(distance) if distance else self.token
        if token.kind == IDENTIFIER:
            return self.is_type(token.text)
        if token.kind == ".":
            return self.is_type(self.peek(distance + 1).text)
        if token.kind == "list":
            return self.peek(distance + 1).kind == "<"
        return token.kind in TYPE_WORDS
