"""Implicit and explicit casts between types. Pure."""

from __future__ import annotations

from .. import ir, types
from ..source import Span
from .base import Place
from .constants import wrap
from .scope import Typed


class Conversions:
    """The part of the checker that casts."""

    def __init__(self, at: Place) -> None:
        self._at = at

    def literal(self, value: int | bool | str, type_: types.Type, span: Span) -> Typed:
        """Returns a constant."""
        return Typed(type_, ir.Literal(value, types.represent(type_), span))

    def convert(self, typed: Typed, wanted: types.Type, span: Span | None = None) -> Typed:
        """Returns the value as the wanted type, if that goes without a cast in the text."""
        span = span or typed.span
        if same(typed.type, wanted):
            return typed
        found = self.implicit(typed, wanted, span)
        if found is None:
            self._at.fail(span, f"{types.describe(wanted)} is wanted here, not {types.describe(typed.type)}")
        return found

    def implicit(self, typed: Typed, wanted: types.Type, span: Span) -> Typed | None:
        if isinstance(typed.type, types.Infinite):
            base = types.underlying(wanted)
            if isinstance(base, ir.Bits) and not isinstance(wanted, types.SerialEnum):
                return self.sized(typed, base, span, wanted)
            return None
        if isinstance(typed.type, types.SerialEnum) and same(typed.type.bits, wanted):
            return Typed(wanted, typed.node)
        if isinstance(typed.type, types.Tuple | types.Record):
            return self._aggregate(typed, wanted, span)
        return None

    def sized(self, typed: Typed, bits: ir.Bits, span: Span, wanted: types.Type | None = None) -> Typed:
        """Returns an `int` as bits; a warning if it does not fit."""
        node = typed.node
        if not isinstance(node, ir.Literal):
            self._at.fail(span, "this number must be known when the program is loaded")
        assert isinstance(node.value, int)
        value = wrap(node.value, bits)
        if value != node.value and wrap(node.value, ir.Bits(bits.width)) != node.value:
            of = types.describe(bits)
            self._at.warn(span, f"{node.value} does not fit into {of}; it becomes {value}")
        return self.literal(value, wanted or bits, node.span)

    def _aggregate(self, typed: Typed, wanted: types.Type, span: Span) -> Typed | None:
        """Returns a list in the text, as the tuple, struct or header that is wanted."""
        node = typed.node
        if not isinstance(node, ir.StructValue):
            return None
        if isinstance(typed.type, types.Tuple):
            if isinstance(wanted, types.Tuple) and len(wanted.elements) == len(typed.type.elements):
                return self._rebuilt(typed.type.elements, node, wanted.elements, wanted, span)
            if isinstance(wanted, types.Record) and wanted.kind != "header_union":
                fields = tuple(field.type for field in wanted.fields)
                if len(fields) == len(typed.type.elements):
                    return self._rebuilt(typed.type.elements, node, fields, wanted, span)
            return None
        if not isinstance(typed.type, types.Record) or typed.type.name:
            return None
        if isinstance(wanted, types.Record) and wanted.kind != "header_union":
            names = [field.name for field in wanted.fields]
            if sorted(names) == sorted(typed.type.places):
                places = [typed.type.places[name] for name in names]
                elements = tuple(typed.type.fields[place].type for place in places)
                ordered = ir.StructValue(
                    tuple(node.elements[place] for place in places), node.type, node.span
                )
                return self._rebuilt(elements, ordered, tuple(f.type for f in wanted.fields), wanted, span)
        return None

    def _rebuilt(
        self,
        given: tuple[types.Type, ...],
        node: ir.StructValue,
        wanted: tuple[types.Type, ...],
        whole: types.Type,
        span: Span,
    ) -> Typed:
        parts = zip(given, node.elements, wanted, strict=True)
        elements = tuple(self.convert(Typed(one, part), want).node for one, part, want in parts)
        return self.build(whole, elements, span)

    def build(self, whole: types.Type, elements: tuple[ir.Expression, ...], span: Span) -> Typed:
        """Returns a struct, tuple or valid header from its elements."""
        represented = self._at.represent(whole, span)
        make = ir.HeaderValue if types.is_header(whole) else ir.StructValue
        return Typed(whole, make(elements, represented, span))

    # --- explicit casts

    def cast(self, typed: Typed, wanted: types.Type, span: Span) -> Typed:
        """Checks `(wanted) typed`."""
        if same(typed.type, wanted):
            return Typed(wanted, typed.node)
        found = self._explicit(typed, wanted, span)
        if found is None:
            found = self.implicit(typed, wanted, span)
        if found is None:
            given, want = types.describe(typed.type), types.describe(wanted)
            self._at.fail(span, f"there is no cast from {given} to {want}")
        return found

    def _explicit(self, typed: Typed, wanted: types.Type, span: Span) -> Typed | None:
        given = typed.type
        if isinstance(wanted, types.NewType):
            inner = self._through(typed, wanted.original, span)
            return None if inner is None else Typed(wanted, inner.node)
        if isinstance(given, types.NewType):
            return self._through(Typed(given.original, typed.node), wanted, span)
        if isinstance(wanted, types.SerialEnum):
            inner = self._through(typed, wanted.bits, span)
            return None if inner is None else Typed(wanted, inner.node)
        if isinstance(given, types.SerialEnum):
            return self._through(Typed(given.bits, typed.node), wanted, span)
        if isinstance(given, types.Infinite):
            return self._from_int(typed, wanted, span)
        if isinstance(given, ir.Bits):
            return self._from_bits(typed, given, wanted, span)
        if isinstance(given, ir.Bool) and wanted == ir.Bits(1):
            return self._cast_node(typed, wanted, span)
        return None

    def _through(self, typed: Typed, wanted: types.Type, span: Span) -> Typed | None:
        if same(typed.type, wanted):
            return typed
        return self._explicit(typed, wanted, span) or self.implicit(typed, wanted, span)

    def _from_int(self, typed: Typed, wanted: types.Type, span: Span) -> Typed | None:
        if isinstance(wanted, ir.Bits):
            assert isinstance(typed.node, ir.Literal)
            assert isinstance(typed.node.value, int)
            return self.literal(wrap(typed.node.value, wanted), wanted, span)
        if isinstance(wanted, ir.Bool) and isinstance(typed.node, ir.Literal) and typed.node.value in (0, 1):
            return self.literal(bool(typed.node.value), wanted, span)
        return None

    def _from_bits(self, typed: Typed, given: ir.Bits, wanted: types.Type, span: Span) -> Typed | None:
        if isinstance(wanted, ir.Bool):
            return self._cast_node(typed, wanted, span) if given == ir.Bits(1) else None
        if isinstance(wanted, types.Infinite):
            node = typed.node
            return self.literal(node.value, types.INT, span) if isinstance(node, ir.Literal) else None
        if not isinstance(wanted, ir.Bits):
            return None
        if wanted.signed != given.signed and wanted.width != given.width:
            given_text, want = types.describe(given), types.describe(wanted)
            self._at.fail(span, f"a cast from {given_text} to {want} changes width and sign; cast twice")
        return self._cast_node(typed, wanted, span)

    def _cast_node(self, typed: Typed, wanted: types.Type, span: Span) -> Typed:
        represented = self._at.represent(wanted, span)
        if isinstance(typed.node, ir.Literal):
            value = typed.node.value
            assert isinstance(value, int)
            if isinstance(represented, ir.Bits):
                return self.literal(wrap(int(value), represented), wanted, span)
            return self.literal(bool(value), wanted, span)
        return Typed(wanted, ir.Cast(typed.node, represented, span))


def same(one: types.Type, other: types.Type) -> bool:
    """Returns whether two types are one."""
    return one is other or one == other
