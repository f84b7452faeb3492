"""The externs of this target, and its requirements on their use beyond types. Pure."""

from __future__ import annotations

from .. import ast, ir
from ..ir.externs import FUNCTIONS, OBJECTS

PACKETS = frozenset({"packet_in", "packet_out"})
BUILT_IN = frozenset({"verify", "static_assert"})


def is_ours(declaration: ast.Extern | ast.ExternFunction) -> bool:
    """Returns whether an extern is declared by our own includes, so that it is the one we know."""
    return declaration.span.file.startswith("<")


def has_object(declaration: ast.Extern) -> bool:
    return is_ours(declaration) and declaration.name in OBJECTS | PACKETS


def has_function(declaration: ast.ExternFunction) -> bool:
    return is_ours(declaration) and declaration.name in FUNCTIONS | BUILT_IN


# Constructor parameters that are counts: their minimum and maximum.
SIZES = {"size": (0, 1 << 24), "outputWidth": (1, 64)}


def header_like(type_: ir.Type) -> bool:
    """Returns whether emit accepts the type: headers, and types made of headers."""
    match type_:
        case ir.HeaderType() | ir.UnionType() | ir.StackType():
            return True
        case ir.StructType(fields=fields):
            return all(header_like(one.type) for one in fields)
        case ir.TupleType(elements=elements):
            return all(header_like(one) for one in elements)
    return False
