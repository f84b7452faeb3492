"""Python text for numbers of P4's types."""

from __future__ import annotations

from .. import ir
from .stores import Group, Header, Stack, Union


def type_of(store: Header | Stack | Group | Union) -> ir.Type:
    return store.layout.type if isinstance(store, Header) else store.type


def inside(index: str, type_: ir.Type, size: int) -> str:
    """Returns the condition that an index is one of `size`."""
    return f"0 <= {index} < {size}" if signed(type_) else f"{index} < {size}"


def signed(type_: ir.Type) -> bool:
    return isinstance(type_, ir.Bits) and type_.signed


def wrap(text: str, type_: ir.Type) -> str:
    """Returns the text modulo the type's width."""
    width = ir.width_of(type_)
    if not signed(type_):
        return f"({text} & {(1 << width) - 1})"
    if width == 0:
        return "0"
    half = 1 << (width - 1)
    return f"(({text} + {half} & {(1 << width) - 1}) - {half})"


def unsigned(text: str, type_: ir.Type) -> str:
    """Returns the raw bits."""
    return f"({text} & {(1 << ir.width_of(type_)) - 1})" if signed(type_) else text


def cast(text: str, old: ir.Type, new: ir.Type) -> str:
    """Returns a cast between Bits types, or between Bits and Bool."""
    if isinstance(new, ir.Bool):
        return text if isinstance(old, ir.Bool) else f"({text} != 0)"
    if not isinstance(new, ir.Bits):
        return text
    if isinstance(old, ir.Bool):
        return f"(1 if {text} else 0)" if not new.signed or new.width > 1 else f"(-1 if {text} else 0)"
    if not isinstance(old, ir.Bits):
        return text
    grows = new.width > old.width or (new.width == old.width and new.signed == old.signed)
    if grows and (new.signed or not old.signed):
        return text
    return wrap(text, new)
