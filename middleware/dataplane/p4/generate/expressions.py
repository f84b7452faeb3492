"""Expressions as Python text. Parts that are not one expression are written as lines before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .. import ir
from ..bits import shift_left
from .base import Draft, has_effects
from .layout import Layout, Unsupported
from .packing import Packing
from .stores import Group, Header, Scalar, SliceOf, Stack, Store, Union
from .texts import cast, inside, signed, type_of, unsigned, wrap
from .writer import Line

_ATOM = re.compile(r"-?\w+\Z")


class Expressions:
    """`value` returns a store whose texts have no effects; `text` is for scalars."""

    def __init__(self, draft: Draft, packing: Packing) -> None:
        self._draft = draft
        self._packing = packing
        self.kinds: dict[type, Callable[[Any], Store]] = {
            ir.Literal: self._literal,
            ir.Variable: self._variable,
            ir.Member: self._member,
            ir.Element: self._element,
            ir.TupleElement: self._tuple_element,
            ir.Next: self._next,
            ir.Last: self._last,
            ir.LastIndex: self._last_index,
            ir.Slice: self._slice,
            ir.Unary: self._unary,
            ir.Binary: self._binary,
            ir.Conditional: self._conditional,
            ir.Cast: self._cast,
            ir.StructValue: self._struct_value,
            ir.HeaderValue: self._header_value,
            ir.StackValue: self._stack_value,
            ir.Default: self._default,
            ir.IsValid: self._is_valid,
            ir.PacketLength: self._packet_length,
        }

    def text(self, e: ir.Expression) -> str:
        return self._draft.scalar(self.value(e))

    def atom(self, e: ir.Expression) -> str:
        """Returns text that may be repeated."""
        return self.hold(self.text(e))

    def hold(self, text: str) -> str:
        if _ATOM.match(text):
            return text
        name = self._draft.temp()
        self._draft.writer.assign(name, text)
        return name

    def value(self, e: ir.Expression) -> Store:
        return self.kinds[type(e)](e)

    def place(self, e: ir.Expression) -> Store:
        """Returns an l-value."""
        if isinstance(e, ir.Slice):
            base = self.place(e.base)
            if isinstance(base, SliceOf):
                return SliceOf(base.base, base.low + e.high, base.low + e.low)
            assert isinstance(base, Scalar)
            return SliceOf(base, e.high, e.low)
        return self.value(e)

    # --- leaves

    def _literal(self, e: ir.Literal) -> Store:
        return Scalar(repr(e.value), e.type)

    def _variable(self, e: ir.Variable) -> Store:
        return self._draft.store_of(e.index)

    def _default(self, e: ir.Default) -> Store:
        return self._draft.default(e.type)

    def _packet_length(self, e: ir.PacketLength) -> Store:
        return Scalar("L", e.type)

    # --- parts

    def _member(self, e: ir.Member) -> Store:
        path: list[int] = [e.index]
        at = e.base
        while isinstance(at, ir.Member) and isinstance(at.type, ir.StructType):
            if isinstance(at.base.type, ir.HeaderType):
                path.insert(0, at.index)
                return self._field(self.value(at.base), tuple(path), e.type)
            path.insert(0, at.index)
            at = at.base
        base = self.value(e.base)
        if isinstance(base, Header):
            return self._field(base, (e.index,), e.type)
        assert isinstance(base, Group | Union)
        return base.items[e.index]

    def _field(self, header: Store, path: tuple[int, ...], type_: ir.Type) -> Store:
        """Returns a field of a header; of a struct in it all its leaves."""
        if isinstance(header, Group):  # the path went through structs only
            for number in path[:-1]:
                assert isinstance(header, Group)
                header = header.items[number]
            assert isinstance(header, Group)
            return header.items[path[-1]]
        assert isinstance(header, Header)
        if isinstance(type_, ir.StructType):
            items = [self._field(header, (*path, n), f.type) for n, f in enumerate(type_.fields)]
            return Group(items, type_)
        return Scalar(header.fields[header.layout.number(path)], type_, header)

    def _tuple_element(self, e: ir.TupleElement) -> Store:
        base = self.value(e.base)
        assert isinstance(base, Group)
        return base.items[e.index]

    def stack(self, e: ir.Expression) -> Stack:
        stack = self.value(e)
        if not isinstance(stack, Stack):
            raise Unsupported("a stack that is no variable")
        return stack

    def _element(self, e: ir.Element) -> Store:
        stack = self.stack(e.base)
        size = stack.type.size
        if isinstance(e.index, ir.Literal):
            return self._draft.element(f"{stack.text}[{e.index.value}]", stack.type.element)
        index = self.atom(e.index)
        within = inside(index, e.index.type, size)
        name = self._draft.temp()
        if self._draft.in_parser:
            self._draft.parsing.fail_unless(within, "StackOutOfBounds")
            self._draft.writer.assign(name, f"{stack.text}[{index}]")
        else:
            fresh = self._draft.fresh_element(stack.type.element)
            self._draft.writer.assign(name, f"{stack.text}[{index}] if {within} else {fresh}")
        return self._draft.element(name, stack.type.element)

    def _next(self, e: ir.Next) -> Store:
        stack = self.stack(e.base)
        self._draft.parsing.fail_unless(f"{stack.next} < {stack.type.size}", "StackOutOfBounds")
        name = self._draft.temp()
        self._draft.writer.assign(name, f"{stack.text}[{stack.next}]")
        return self._draft.element(name, stack.type.element)

    def _last(self, e: ir.Last) -> Store:
        stack = self.stack(e.base)
        self._draft.parsing.fail_unless(stack.next, "StackOutOfBounds")
        name = self._draft.temp()
        self._draft.writer.assign(name, f"{stack.text}[{stack.next} - 1]")
        return self._draft.element(name, stack.type.element)

    def _last_index(self, e: ir.LastIndex) -> Store:
        return Scalar(f"({self.stack(e.base).next} - 1 & {0xFFFFFFFF})", e.type)

    def _slice(self, e: ir.Slice) -> Store:
        base = self.text(e.base)
        width = e.high - e.low + 1
        shifted = f"({base} >> {e.low})" if e.low else base
        top = e.high + 1 == ir.width_of(e.base.type) and not signed(e.base.type)
        return Scalar(shifted if top else f"({shifted} & {(1 << width) - 1})", e.type)

    # --- operators

    def _unary(self, e: ir.Unary) -> Store:
        operand = self.text(e.operand)
        if e.operator is ir.UnaryOperator.NOT:
            return Scalar(f"(not {operand})", e.type)
        sign = "-" if e.operator is ir.UnaryOperator.NEGATE else "~"
        return Scalar(wrap(f"({sign}{operand})", e.type), e.type)

    def _binary(self, e: ir.Binary) -> Store:
        if e.operator in (ir.Operator.LOGICAL_AND, ir.Operator.LOGICAL_OR):
            return self._logical(e)
        left = self.value(e.left)
        if has_effects(e.right):
            left = self.saved(left)
        right = self.value(e.right)
        if e.operator in (ir.Operator.EQ, ir.Operator.NE):
            same = self._equal(left, right)
            return Scalar(same if e.operator is ir.Operator.EQ else f"(not {same})", e.type)
        return Scalar(self._computed(e, self._draft.scalar(left), self._draft.scalar(right)), e.type)

    def saved(self, store: Store) -> Store:
        """Returns a copy that later effects don't change."""
        if isinstance(store, Scalar):
            if store.text.lstrip("-").isdigit():
                return store
            name = self._draft.temp()
            self._draft.writer.assign(name, store.text)
            return Scalar(name, store.type)
        assert not isinstance(store, SliceOf)
        target = self._draft.new_store(self._draft.temp(), type_of(store))
        self._draft.put(target, store)
        return target

    def _computed(self, e: ir.Binary, a: str, b: str) -> str:
        op, type_ = e.operator, e.left.type
        if op is ir.Operator.CONCAT:
            low = unsigned(b, e.right.type)
            return wrap(f"(({unsigned(a, type_)} << {ir.width_of(e.right.type)}) | {low})", e.type)
        if op in _COMPARE:
            return f"({a} {op.value} {b})"
        if op in (ir.Operator.AND, ir.Operator.OR, ir.Operator.XOR):
            return f"({a} {op.value} {b})"
        if op in (ir.Operator.ADD, ir.Operator.SUB, ir.Operator.MUL):
            return wrap(f"({a} {op.value} {b})", e.type)
        if op in (ir.Operator.ADD_SAT, ir.Operator.SUB_SAT):
            name = "saturate_signed" if signed(type_) else "saturate"
            return f"{name}({a} {op.value[1]} {b}, {ir.width_of(type_)})"
        if op in (ir.Operator.DIV, ir.Operator.MOD):
            b = self.hold(b)
            sign = "//" if op is ir.Operator.DIV else "%"
            return f"({a} {sign} {b} if {b} else 0)"
        return self._shift(e, a, b)

    def _shift(self, e: ir.Binary, a: str, b: str) -> str:
        width = ir.width_of(e.type)
        if e.operator is ir.Operator.SHR:
            return f"({a} >> {b})" if b.isdigit() and int(b) < 1 << 16 else f"({a} >> min({b}, {1 << 16}))"
        if b.isdigit() and not signed(e.type):
            return f"({a} << {b} & {(1 << width) - 1})" if int(b) < width else "0"
        self._draft.bound("shift_left", shift_left)
        return (
            wrap(f"shift_left({a}, {b}, {width})", e.type)
            if signed(e.type)
            else f"shift_left({a}, {b}, {width})"
        )

    def _logical(self, e: ir.Binary) -> Store:
        word = "and" if e.operator is ir.Operator.LOGICAL_AND else "or"
        left = self.text(e.left)
        right, lines = self.aside(e.right)
        if not lines:
            return Scalar(f"({left} {word} {right})", e.type)
        name = self._draft.temp()
        self._draft.writer.assign(name, left)
        with self._draft.writer.block(f"if {name}:" if word == "and" else f"if not {name}:"):
            self._draft.writer.lines += lines
            self._draft.writer.assign(name, right)
        return Scalar(name, e.type)

    def aside(self, e: ir.Expression) -> tuple[str, list[Line]]:
        """Returns a scalar and the lines that it needs, one level deeper and not yet written."""
        before = self._draft.writer.mark()
        self._draft.writer.depth += 1
        text = self.text(e)
        self._draft.writer.depth -= 1
        lines = self._draft.writer.lines[before:]
        del self._draft.writer.lines[before:]
        return text, lines

    def _conditional(self, e: ir.Conditional) -> Store:
        condition = self.text(e.condition)
        if isinstance(self._draft.default(e.type), Scalar):
            yes, yes_lines = self.aside(e.yes)
            no, no_lines = self.aside(e.no)
            if not yes_lines and not no_lines:
                return Scalar(f"({yes} if {condition} else {no})", e.type)
            return self._branches(condition, (yes, yes_lines), (no, no_lines), e.type)
        target = self._draft.new_store(self._draft.temp(), e.type)
        with self._draft.writer.block(f"if {condition}:"):
            self._draft.put(target, self.value(e.yes))
        with self._draft.writer.block("else:"):
            self._draft.put(target, self.value(e.no))
        return target

    def _branches(
        self, condition: str, yes: tuple[str, list[Line]], no: tuple[str, list[Line]], type_: ir.Type
    ) -> Store:
        name = self._draft.temp()
        for head, (text, lines) in ((f"if {condition}:", yes), ("else:", no)):
            with self._draft.writer.block(head):
                self._draft.writer.lines += lines
                self._draft.writer.assign(name, text)
        return Scalar(name, type_)

    def _equal(self, a: Store, b: Store) -> str:
        match a, b:
            case (Scalar(), Scalar()):
                return f"({a.text} == {b.text})"
            case (Header(), Header()):
                same = f"{self._packing.packed(a)} == {self._packing.packed(b)}"
                return f"(({same}) if {a.valid} and {b.valid} else {a.valid} == {b.valid})"
            case (Group(items=left), Group(items=right)):
                return self._all_equal(list(left), list(right))
            case (Union(items=one), Union(items=other)):
                return self._all_equal(list(one), list(other))
            case (Stack(), Stack()):
                return self._all_equal(self._elements_of(a), self._elements_of(b))
        raise TypeError("values of different types are compared")

    def _elements_of(self, stack: Stack) -> list[Store]:
        return [self._draft.element(f"{stack.text}[{n}]", stack.type.element) for n in range(stack.type.size)]

    def _all_equal(self, left: list[Store], right: list[Store]) -> str:
        same = [self._equal(one, other) for one, other in zip(left, right, strict=True)]
        return f"({' and '.join(same) or 'True'})"

    # --- casts and values with parts

    def _cast(self, e: ir.Cast) -> Store:
        operand = self.value(e.operand)
        if isinstance(operand, Scalar):
            return Scalar(cast(operand.text, e.operand.type, e.type), e.type)
        assert isinstance(operand, Group)
        return self._from_parts(list(operand.items), e.type)

    def _from_parts(self, items: list[Store], type_: ir.Type) -> Store:
        if isinstance(type_, ir.HeaderType):
            return self._header_of(items, self._draft.layouts.of(type_))
        return Group(items, type_)

    def _header_of(self, items: list[Store], layout: Layout) -> Header:
        texts = [text for item in items for text in _leaves(item)]
        if len(texts) != len(layout.leaves):
            raise Unsupported("a header from parts that don't fit")
        fields = {number: texts[number] for number in layout.live}
        return Header(layout, "True", self._draft.zeros(layout), "True", fields)

    def _parts(self, elements: tuple[ir.Expression, ...]) -> list[Store]:
        later = [any(has_effects(one) for one in elements[n + 1 :]) for n in range(len(elements))]
        return [
            self.saved(self.value(one)) if effects else self.value(one)
            for one, effects in zip(elements, later, strict=True)
        ]

    def _struct_value(self, e: ir.StructValue) -> Store:
        return self._from_parts(self._parts(e.elements), e.type)

    def _header_value(self, e: ir.HeaderValue) -> Store:
        return self._header_of(self._parts(e.elements), self._draft.layouts.of(e.type))

    def _stack_value(self, e: ir.StackValue) -> Store:
        assert isinstance(e.type, ir.StackType)
        items = [self.value(one) for one in e.elements]
        if not all(isinstance(item, Header) for item in items):
            raise Unsupported("a stack of unions from its elements")
        lists = ", ".join(f"[{', '.join(item.texts())}]" for item in items if isinstance(item, Header))
        return Stack(f"[{lists}]", "0", e.type)

    def _is_valid(self, e: ir.IsValid) -> Store:
        base = self.value(e.base)
        if isinstance(base, Union):
            return Scalar(f"({' or '.join(one.valid for one in base.items)})", e.type)
        assert isinstance(base, Header)
        return Scalar(base.valid, e.type)


def _leaves(store: Store) -> list[str]:
    if isinstance(store, Scalar):
        return [store.text]
    if isinstance(store, Group):
        return [text for item in store.items for text in _leaves(item)]
    raise Unsupported("a header in a header")


_COMPARE = (ir.Operator.LT, ir.Operator.LE, ir.Operator.GT, ir.Operator.GE)
