"""Checks filters against a topic's schema: the fields that they name, and what they compare them with."""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_schema import DeclaredField, TopicSchema

from ..tree import Constraint, Field, Filter, constraints

_OF_RECORDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")


def declared_path(field: Field) -> tuple[str, ...] | None:
    """Returns the path inside the value; None if the field is another part of the record."""
    path = field.path
    if path[0] in ("headers", "key") and len(path) > 1:
        return None
    if len(path) == 1:
        return None if path[0] in _OF_RECORDS else path
    return path[1:] if path[0] == "value" else path


def check_filter(tree: Filter, schema: TopicSchema) -> None:
    """Raises INVALID_REQUEST for a field that is not declared, or a constant of another type."""
    declared = {field.path: field for field in schema.fields}
    for constraint in constraints(tree):
        if not isinstance(constraint.attribute, Field):
            continue
        path = declared_path(constraint.attribute)
        if path is None:
            continue
        field = declared.get(path)
        if field is None:
            known = ", ".join(one.text for one in schema.fields)
            raise TreecastError(
                Fault.INVALID_REQUEST,
                f"the topic's schema declares no field {'.'.join(path)}; it has {known}",
            )
        _check_type(field, constraint)


def _check_type(field: DeclaredField, constraint: Constraint) -> None:
    constant = constraint.constant
    wanted = {"s": "a string", "bool": "true or false"}.get(field.kind, "a number")
    given = "true or false" if isinstance(constant, bool) else "a string"
    if not isinstance(constant, bool | str):
        given = "a number"
    if given != wanted:
        raise TreecastError(
            Fault.INVALID_REQUEST,
            f"{field.name} is declared as {field.type}, so it is compared with {wanted}, not {given}",
        )
