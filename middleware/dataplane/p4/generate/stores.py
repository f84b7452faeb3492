"""Stores: the storage of values of each type in generated code.

A scalar is one Python expression, usually a local variable. A struct is its parts. A header has four parts:
`valid`, `raw` (its bytes as received), `dirty` (a field has changed since) and a variable per live field. A
stack is a Python list of such headers, each a list [valid, raw, dirty, fields...], and a variable for
nextIndex. Stores also represent values: the strings are then any expressions.
"""

from __future__ import annotations

from typing import TypeAlias

from .. import ir
from .layout import Layout


class Scalar:
    """`header`: the header that this is a field of, which a write makes dirty."""

    __slots__ = ("header", "text", "type")

    def __init__(self, text: str, type_: ir.Type, header: Header | None = None) -> None:
        self.text = text
        self.type = type_
        self.header = header


class SliceOf:
    """Bits of a scalar; only written to, reading one is an expression."""

    __slots__ = ("base", "high", "low")

    def __init__(self, base: Scalar, high: int, low: int) -> None:
        self.base = base
        self.high = high
        self.low = low


class Group:
    """A struct or tuple."""

    __slots__ = ("items", "type")

    def __init__(self, items: list[Store], type_: ir.Type) -> None:
        self.items = items
        self.type = type_


class Header:
    """`union`: the header union that it is a member of."""

    __slots__ = ("dirty", "fields", "layout", "raw", "union", "valid")

    def __init__(self, layout: Layout, valid: str, raw: str, dirty: str, fields: dict[int, str]) -> None:
        self.layout = layout
        self.valid = valid
        self.raw = raw
        self.dirty = dirty
        self.fields = fields
        self.union: Union | None = None

    def texts(self) -> list[str]:
        """Returns all its parts, in the order of a list header."""
        return [self.valid, self.raw, self.dirty, *(self.fields[n] for n in self.layout.order())]


class Union:
    """A header union."""

    __slots__ = ("items", "type")

    def __init__(self, items: list[Header], type_: ir.UnionType) -> None:
        self.items = items
        self.type = type_
        for item in items:
            item.union = self


class Stack:
    """A header stack: a Python list, and nextIndex."""

    __slots__ = ("next", "text", "type")

    def __init__(self, text: str, next_index: str, type_: ir.StackType) -> None:
        self.text = text
        self.next = next_index
        self.type = type_


Store: TypeAlias = Scalar | SliceOf | Group | Header | Union | Stack


def list_header(layout: Layout, text: str) -> Header:
    """Returns a header in a Python list."""
    fields = {number: f"{text}[{3 + place}]" for place, number in enumerate(layout.order())}
    return Header(layout, f"{text}[0]", f"{text}[1]", f"{text}[2]", fields)


def leaf_texts(store: Store) -> list[str]:
    """Returns every expression in a store."""
    if isinstance(store, Scalar):
        return [store.text]
    if isinstance(store, Header):
        return store.texts()
    if isinstance(store, Stack):
        return [store.text, store.next]
    if isinstance(store, SliceOf):
        raise TypeError("a slice is no store of its own")
    return [text for item in store.items for text in leaf_texts(item)]


def headers_in(store: Store) -> list[Header | Stack]:
    """Headers and stacks, in the order in which they are emitted."""
    if isinstance(store, Header | Stack):
        return [store]
    if isinstance(store, Scalar | SliceOf):
        return []
    return [one for item in store.items for one in headers_in(item)]
