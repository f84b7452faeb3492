"""P4Info's form of annotations: documentation, and annotations without a field of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from finsy.proto import p4i, p4t
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)

from .. import ir

# They are represented by fields of their own.
_ELSEWHERE = frozenset(("name", "id", "brief", "description"))


class Annotated(Protocol):
    """A message with room for annotations."""

    @property
    def annotations(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def structured_annotations(self) -> RepeatedCompositeFieldContainer[p4t.StructuredAnnotation]: ...


def id_of(annotations: Iterable[ir.Annotation]) -> int | None:
    """Returns the number in `@id`."""
    found = ir.find(annotations, "id")
    if found is None or not found.arguments or not isinstance(found.arguments[0], int):
        return None
    return found.arguments[0]


def annotate(
    message: Annotated, annotations: Sequence[ir.Annotation], *, without: Iterable[str] = ()
) -> None:
    """Copies the annotations that have no field of their own. `without`: names that are left out as well."""
    left_out = _ELSEWHERE | set(without)
    for one in annotations:
        if one.structured:
            message.structured_annotations.append(_structured(one))
        elif one.name not in left_out:
            message.annotations.append(_written(one))


def document(message: p4i.Documentation, annotations: Iterable[ir.Annotation]) -> bool:
    """Sets the documentation from `@brief` and `@description`; returns whether there was any."""
    found = False
    for one in annotations:
        if one.name in ("brief", "description"):
            setattr(message, one.name, str(one.arguments[0]) if one.arguments else one.text)
            found = True
    return found


def fill(
    preamble: p4i.Preamble,
    number: int,
    name: str,
    alias: str,
    annotations: Sequence[ir.Annotation],
    *,
    without: Iterable[str] = (),
) -> None:
    """Fills in all fields of a preamble."""
    preamble.id, preamble.name, preamble.alias = number, name, alias
    annotate(preamble, annotations, without=without)
    doc = p4i.Documentation()
    if document(doc, annotations):
        preamble.doc.CopyFrom(doc)


def _written(one: ir.Annotation) -> str:
    if one.arguments:
        return f"@{one.name}({', '.join(_literal(value) for value in one.arguments)})"
    if one.named:
        pairs = ", ".join(f"{key} = {_literal(value)}" for key, value in one.named)
        return f"@{one.name}({pairs})"
    return f"@{one.name}({one.text})" if one.text else f"@{one.name}"


def _literal(value: ir.Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _structured(one: ir.Annotation) -> p4t.StructuredAnnotation:
    message = p4t.StructuredAnnotation(name=one.name)
    if one.named:
        pairs = [p4t.KeyValuePair(key=key, value=_expression(value)) for key, value in one.named]
        message.kv_pair_list.CopyFrom(p4t.KeyValuePairList(kv_pairs=pairs))
    else:
        values = [_expression(value) for value in one.arguments]
        message.expression_list.CopyFrom(p4t.ExpressionList(expressions=values))
    return message


def _expression(value: ir.Scalar) -> p4t.Expression:
    if isinstance(value, bool):
        return p4t.Expression(bool_value=value)
    return p4t.Expression(string_value=value) if isinstance(value, str) else p4t.Expression(int64_value=value)
