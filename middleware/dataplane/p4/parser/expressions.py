"""Types and expressions. Pure."""

from __future__ import annotations

from collections.abc import Callable

from .. import ast
from ..directives import integer
from ..lexer import IDENTIFIER, INTEGER, STRING, Token
from ..source import Span
from .stream import NAMES, Mistake, Stream

# How tightly binary operators bind. Unlike C's, those on bits bind tighter than comparisons.
PRECEDENCE: dict[str, int] = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 4,
    ">": 4,
    "<=": 4,
    ">=": 4,
    "|": 5,
    "^": 6,
    "&": 7,
    "<<": 8,
    ">>": 8,
    "++": 9,
    "+": 9,
    "-": 9,
    "|+|": 9,
    "|-|": 9,
    "*": 10,
    "/": 10,
    "%": 10,
}
_BASES = {"0x": 16, "0o": 8, "0b": 2}
_MOST_NESTED = 60
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "\n": ""}


def unquoted(text: str) -> str:
    """Returns the value of a string literal."""
    if "\\" not in text:
        return text[1:-1]
    letters: list[str] = []
    rest = iter(text[1:-1])
    for letter in rest:
        if letter == "\\":
            follower = next(rest, "")
            letters.append(_ESCAPES.get(follower, "\\" + follower))
        else:
            letters.append(letter)
    return "".join(letters)


def literal(token: Token) -> ast.IntegerLiteral:
    """Parses literals such as `8w0xFF`."""
    text, width, signed = token.text, None, False
    for mark in "ws":
        prefix, found, digits = text.partition(mark)
        if found and prefix.isdigit():
            text, width, signed = digits, int(prefix), mark == "s"
            break
    return ast.IntegerLiteral(integer(text), width, signed, token.span, _BASES.get(text[:2].lower(), 10))


class Expressions:
    """The part of the parser that reads types and expressions.

    `angles` is above 0 if `>` closes a list of type arguments; brackets set it back.
    """

    angles = 0
    nested = 0

    def __init__(self, tokens: Stream) -> None:
        self._tokens = tokens

    # --- types

    def type_ref(self, of: str = "") -> ast.TypeRef:
        """Returns a type, arrays included."""
        found = self._plain_type(of)
        while self._tokens.token.kind == "[":
            self._tokens.advance()
            size = self.bracketed()
            self._tokens.expect("]", "after the size of a stack")
            found = ast.ArrayRef(found, size, self._tokens.since(found.span))
        return found

    def _plain_type(self, of: str) -> ast.TypeRef:
        token = self._tokens.token
        kind = token.kind
        if kind in ("bit", "int", "varbit"):
            return self._sized_type()
        if kind in ("bool", "string", "error", "void", "match_kind"):
            self._tokens.advance()
            return ast.PlainType(kind, token.span)
        if kind == "tuple":
            self._tokens.advance()
            elements = self.type_arguments()
            return ast.TupleRef(elements, self._tokens.since(token.span))
        if kind == "list" and self._tokens.peek().kind == "<":
            self._tokens.advance()
            elements = self.type_arguments()
            if len(elements) != 1:
                raise Mistake(token.span, "list takes one type")
            return ast.ListRef(elements[0], self._tokens.since(token.span))
        absolute = self._tokens.accept(".") is not None
        if self._tokens.token.kind != IDENTIFIER:
            raise self._tokens.mistake(f"a type{of} is expected")
        name = self._tokens.advance()
        base = ast.TypeName(name.text, absolute, token.span.to(name.span))
        if self._tokens.token.kind == "<":
            return ast.Specialized(base, self.type_arguments(), self._tokens.since(token.span))
        return base

    def _sized_type(self) -> ast.TypeRef:
        word = self._tokens.advance()
        if self._tokens.token.kind != "<":
            if word.kind == "int":
                return ast.PlainType("int", word.span)
            if word.kind == "bit":
                return ast.SizedType("bit", ast.IntegerLiteral(1, None, False, word.span), word.span)
        self._tokens.expect("<", f"after {word.kind}")
        self.angles += 1
        width = self.expression()
        self.angles -= 1
        self._tokens.expect(">", f"after the width of {word.kind}")
        return ast.SizedType(word.kind, width, self._tokens.since(word.span))

    def type_arguments(self) -> tuple[ast.TypeRef, ...]:
        """Parses `<A, B>`, which may be empty."""
        self._tokens.expect("<", "before type arguments")
        found: list[ast.TypeRef] = []
        while self._tokens.token.kind != ">":
            if self._tokens.token.text == "_":
                token = self._tokens.advance()
                found.append(ast.PlainType("_", token.span))
            else:
                found.append(self.type_ref())
            if not self._tokens.accept(","):
                break
        self._tokens.expect(">", "after type arguments")
        return tuple(found)

    # --- expressions

    def bracketed(self) -> ast.Expression:
        """Parses an expression inside brackets, where `>` is greater-than again."""
        angles, self.angles = self.angles, 0
        found = self.expression()
        self.angles = angles
        return found

    def expression(self) -> ast.Expression:
        """Parses any expression but masks and ranges."""
        self.nested += 1
        if self.nested > _MOST_NESTED:
            raise Mistake(self._tokens.token.span, f"expressions are nested more than {_MOST_NESTED} deep")
        try:
            condition = self._binary(1)
            if self._tokens.token.kind != "?":
                return condition
            self._tokens.advance()
            yes = self.expression()
            self._tokens.expect(":", "after the first branch of '?'")
            no = self.expression()
            return ast.Conditional(condition, yes, no, self._tokens.since(condition.span))
        finally:
            self.nested -= 1

    def key_set(self) -> ast.Expression:
        """Returns an expression, mask, range, `_` or `default`."""
        token = self._tokens.token
        if token.kind == "default" or (token.text == "_" and token.kind == IDENTIFIER):
            self._tokens.advance()
            return ast.DontCare(token.span)
        value = self.expression()
        if self._tokens.accept("&&&"):
            mask = self.expression()
            return ast.Mask(value, mask, self._tokens.since(value.span))
        if self._tokens.accept(".."):
            high = self.expression()
            return ast.Range(value, high, self._tokens.since(value.span))
        return value

    def _operator(self) -> str:
        """Returns the binary operator here, or "". Two `>` that touch are one."""
        kind = self._tokens.token.kind
        if kind == ">":
            if self.angles:
                return ""
            after = self._tokens.peek()
            if (
                after.kind == ">"
                and after.column == self._tokens.token.end
                and after.line == self._tokens.token.line
            ):
                return ">>"
        elif kind == ">=" and self.angles:
            return ""
        return kind if kind in PRECEDENCE else ""

    def _binary(self, least: int) -> ast.Expression:
        left = self._unary()
        while True:
            operator = self._operator()
            level = PRECEDENCE.get(operator, 0)
            if level < least:
                return left
            place = self._tokens.advance().span
            if operator == ">>":
                place = place.to(self._tokens.advance().span)
            right = self._binary(level + 1)
            left = ast.Binary(operator, left, right, place, self._tokens.since(left.span))

    def _unary(self) -> ast.Expression:
        token = self._tokens.token
        if token.kind in ("!", "~", "-", "+"):
            self._deeper()
            self._tokens.advance()
            operand = self._unary()
            self.nested -= 1
            if token.kind == "+":
                return operand
            return ast.Unary(token.kind, operand, self._tokens.since(token.span))
        if token.kind == "(" and self._tokens.starts_type(1):
            found = self._cast(token)
            if found is not None:
                return found
        return self.postfix()

    def _deeper(self) -> None:
        self.nested += 1
        if self.nested > _MOST_NESTED:
            raise Mistake(self._tokens.token.span, f"expressions are nested more than {_MOST_NESTED} deep")

    def _cast(self, token: Token) -> ast.Expression | None:
        """Parses `(type) operand`; returns None for an expression in brackets."""
        position = self._tokens.position()
        self._tokens.advance()
        angles, self.angles = self.angles, 0
        try:
            type_ = self.type_ref()
        finally:
            self.angles = angles
        if not self._tokens.accept(")"):
            self._tokens.rewind(position)
            return None
        self._deeper()
        operand = self._unary()
        self.nested -= 1
        return ast.Cast(type_, operand, self._tokens.since(token.span))

    def postfix(self) -> ast.Expression:
        """Returns a primary expression with members, indices, slices and calls."""
        found = self._primary()
        while True:
            kind = self._tokens.token.kind
            if kind == ".":
                self._tokens.advance()
                name = self._member_name()
                found = ast.Member(found, name.text, name.span, self._tokens.since(found.span))
            elif kind == "[":
                found = self._subscript(found)
            elif kind == "(":
                arguments = self.arguments()
                found = ast.Call(found, (), arguments, self._tokens.since(found.span))
            elif kind == "<" and isinstance(found, ast.Name | ast.Member):
                call = self._generic_call(found)
                if call is None:
                    return found
                found = call
            else:
                return found

    def _member_name(self) -> Token:
        if self._tokens.token.kind in NAMES:
            return self._tokens.advance()
        raise self._tokens.mistake("a member's name is expected after '.'")

    def _subscript(self, base: ast.Expression) -> ast.Expression:
        self._tokens.advance()
        first = self.bracketed()
        if self._tokens.accept(":"):
            low = self.bracketed()
            self._tokens.expect("]", "after a slice")
            return ast.Slice(base, first, low, self._tokens.since(base.span))
        if self._tokens.accept("+:"):
            width = self.bracketed()
            self._tokens.expect("]", "after a slice")
            return ast.PlusSlice(base, first, width, self._tokens.since(base.span))
        self._tokens.expect("]", "after an index")
        return ast.Index(base, first, self._tokens.since(base.span))

    def _generic_call(self, target: ast.Expression) -> ast.Expression | None:
        """Parses `f<T>(x)`; returns None if `<` is less-than."""
        if not (
            self._tokens.starts_type(1) or self._tokens.peek().text == "_" or self._tokens.peek().kind == ">"
        ):
            return None
        position, nested = self._tokens.position(), self.nested
        try:
            types = self.type_arguments()
        except Mistake:
            types = ()
        if self._tokens.token.kind != "(" or self._tokens.previous().kind != ">":
            self._tokens.rewind(position)
            self.nested = nested
            return None
        arguments = self.arguments()
        return ast.Call(target, types, arguments, self._tokens.since(target.span))

    def arguments(self) -> tuple[ast.Argument, ...]:
        """Parses `(a, b = c, _)`."""
        self._tokens.expect("(", "before arguments")
        angles, self.angles = self.angles, 0
        found: list[ast.Argument] = []
        while self._tokens.token.kind != ")":
            found.append(self._argument())
            if not self._tokens.accept(","):
                break
        self.angles = angles
        self._tokens.expect(")", "after arguments")
        return tuple(found)

    def _argument(self) -> ast.Argument:
        token = self._tokens.token
        name = None
        if token.kind in NAMES and self._tokens.peek().kind == "=":
            name = self._tokens.advance().text
            self._tokens.advance()
        if self._tokens.token.text == "_" and self._tokens.token.kind == IDENTIFIER:
            place = self._tokens.advance().span
            return ast.Argument(name, ast.DontCare(place), self._tokens.since(token.span))
        value = self.expression()
        return ast.Argument(name, value, self._tokens.since(token.span))

    def _primary(self) -> ast.Expression:
        token = self._tokens.token
        kind = token.kind
        if kind == IDENTIFIER and not self._tokens.is_type(token.text):
            self._tokens.advance()
            return ast.Name(token.text, False, token.span)
        if kind == INTEGER:
            return literal(self._tokens.advance())
        if kind == "(":
            self._tokens.advance()
            found = self.bracketed()
            self._tokens.expect(")", "after an expression in brackets")
            return found
        if kind in _SIMPLE:
            self._tokens.advance()
            return _SIMPLE[kind](token.span)
        if kind == STRING:
            self._tokens.advance()
            return ast.StringLiteral(unquoted(token.text), token.span)
        if kind == "{":
            return self._braces()
        return self._named(token)

    def _named(self, token: Token) -> ast.Expression:
        if self._tokens.starts_type() or token.kind == "error":
            found = self._plain_type("")
            return ast.TypeExpression(found, found.span)
        absolute = self._tokens.accept(".") is not None
        if self._tokens.token.kind not in NAMES:
            raise self._tokens.mistake("an expression is expected")
        name = self._tokens.advance()
        return ast.Name(name.text, absolute, token.span.to(name.span))

    def _braces(self) -> ast.Expression:
        """Parses `{a, b}` and `{a = 1, ...}`."""
        first = self._tokens.advance().span
        angles, self.angles = self.angles, 0
        if self._tokens.token.kind in NAMES and self._tokens.peek().kind == "=":
            found = self._struct_value(first)
        else:
            elements: list[ast.Expression] = []
            while self._tokens.token.kind != "}":
                elements.append(self.expression())
                if not self._tokens.accept(","):
                    break
            self._tokens.expect("}", "after a list")
            found = ast.ListValue(tuple(elements), self._tokens.since(first))
        self.angles = angles
        return found

    def _struct_value(self, first: Span) -> ast.Expression:
        elements: list[ast.NamedElement] = []
        rest = False
        while self._tokens.token.kind != "}" and not rest:
            if self._tokens.accept("..."):
                rest = True
            else:
                name = self._tokens.name("of a field")
                self._tokens.expect("=", "after a field's name")
                value = self.expression()
                elements.append(ast.NamedElement(name.text, value, self._tokens.since(name.span)))
            if not self._tokens.accept(","):
                break
        self._tokens.expect("}", "after the fields of a struct")
        return ast.StructValue(tuple(elements), rest, self._tokens.since(first))


_SIMPLE: dict[str, Callable[[Span], ast.Expression]] = {
    "true": lambda span: ast.BoolLiteral(True, span),
    "false": lambda span: ast.BoolLiteral(False, span),
    "this": ast.This,
    "...": ast.Dots,
    "{#}": ast.Invalid,
}
