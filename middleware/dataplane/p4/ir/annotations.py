"""Annotations, kept for control planes: `@id(5)`, `@brief("...")`, `@field_list(1, 2)`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..source import NOWHERE, Span

Scalar = int | bool | str


class Annotation(msgspec.Struct, frozen=True):
    """One annotation. Several of one name may stand on a declaration.

    `@p4runtime_translation("com.x", 32)` has arguments ("com.x", 32); `@pkginfo(name="x", version="1")`, and
    the bracketed form, have named (("name", "x"), ("version", "1")). A name that isn't a literal or a
    constant is its text. `text` is the body as it was written, tokens separated by a blank where they were.
    """

    name: str
    arguments: tuple[Scalar, ...] = ()
    named: tuple[tuple[str, Scalar], ...] = ()
    text: str = ""
    structured: bool = False
    span: Span = NOWHERE


def written_name(name: str, annotations: Iterable[Annotation]) -> str:
    """Returns what control planes call a parameter or a field: its `@name`, else its own."""
    mark = find(annotations, "name")
    return str(mark.arguments[0]).removeprefix(".") if mark is not None and mark.arguments else name


def find(annotations: Iterable[Annotation], name: str) -> Annotation | None:
    """Returns the first of that name."""
    return next((one for one in annotations if one.name == name), None)
