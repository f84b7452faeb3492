"""Annotations, kept for control planes: `@id(5)`, `@brief("...")`, `@field_list(1, 2)`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..source import NOWHERE, Span

Scalar = int | bool | str


class Annotation(msgspec.Struct, frozen=True):
    """One annotation. A declaration may have several of one name.

    `@p4runtime_translation("com.x", 32)` has arguments ("com.x", 32); `@pkginfo(name="x", version="1")`, and
    the bracketed form, have named (("name", "x"), ("version", "1")). A name that is neither a literal nor a
    constant is its text. `text` is the body as written, with blanks between tokens where there were any.
    """

    name: str
    arguments: tuple[Scalar, ...] = ()
    named: tuple[tuple[str, Scalar], ...] = ()
    text: str = ""
    structured: bool = False
    span: Span = NOWHERE


def written_name(name: str, annotations: Iterable[Annotation]) -> str:
    """Returns the control plane's name of a parameter or a field: its `@name`, else its own."""
    mark = find(annotations, "name")
    return str(mark.arguments[0]).removeprefix(".") if mark is not None and mark.arguments else name


def find(annotations: Iterable[Annotation], name: str) -> Annotation | None:
    """Returns the first of that name."""
    return next((one for one in annotations if one.name == name), None)
