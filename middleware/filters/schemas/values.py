"""Checks that a value is one that its declared field allows."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.model.topic_schema import DeclaredField

from ..tree import Scalar


class DoesNotMeet(ValueError):
    """The bytes are no value of the version."""


def fitting(field: DeclaredField, value: object) -> Scalar | None:
    """Returns the value, None if an optional field has none. Raises DoesNotMeet if it is not allowed."""
    if value is None:
        if field.optional:
            return None
        raise DoesNotMeet(f"{field.name} has no value")
    if field.kind == "bool":
        if isinstance(value, bool):
            return value
    elif isinstance(value, bool):
        pass
    elif field.kind == "s":
        if isinstance(value, str) and _short(field, value):
            return value
    elif field.kind == "f":
        if isinstance(value, int | float):
            return value if value == value else None  # NaN: no constraint on it holds
    elif isinstance(value, int) and _in_range(field, value):
        return value
    raise DoesNotMeet(f"{field.name} is no {field.type}")


def all_fitting(fields: Sequence[DeclaredField], values: Sequence[object]) -> list[Scalar | None]:
    """Applies `fitting` to each field."""
    return [fitting(field, value) for field, value in zip(fields, values, strict=True)]


def _short(field: DeclaredField, value: str) -> bool:
    most = field.size
    return most == 0 or (4 * len(value) <= most or len(value.encode("utf-8", "surrogatepass")) <= most)


def _in_range(field: DeclaredField, value: int) -> bool:
    bits = 8 * field.size
    if field.kind == "u":
        return 0 <= value < 1 << bits
    return -(1 << bits - 1) <= value < 1 << bits - 1


def text_of(data: bytes) -> str:
    """Returns bytes as text. Raises DoesNotMeet if they are no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DoesNotMeet("text that is no UTF-8") from None
