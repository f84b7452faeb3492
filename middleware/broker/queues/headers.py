"""The matching of headers exchanges: `all`, `any`, and the variants that include names beginning with `x-`.

A binding argument without a value requires only the header's presence. Integers are compared as numbers,
whatever their width; a number never equals a boolean, nor an integer a float (RabbitMQ).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treecast.middleware.wire.field_table import same

from .refusals import precondition, spelt

_MATCH: Final = "x-match"
FILTER: Final = "x-treecast-filter"  # a filter on the messages, for bindings to exchanges of most types
_KINDS: Final = ("all", "any", "all-with-x", "any-with-x")


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Refuses an unknown `x-match` with PRECONDITION_FAILED."""
    if _MATCH not in arguments:
        return
    value = arguments[_MATCH]
    expected = "expected all, any, all-with-x, or any-with-x"
    if not isinstance(value, str):
        raise precondition(f"Invalid x-match field type (value {spelt(value)}); expected longstr")
    if value not in _KINDS:
        raise precondition(f"Invalid x-match field value {spelt(value)}; {expected}")


def matches(arguments: Mapping[str, object], headers: Mapping[str, object]) -> bool:
    """Whether a binding with `arguments` matches a message with `headers`."""
    kind = arguments.get(_MATCH, "all")
    with_x = kind in ("all-with-x", "any-with-x")
    wanted = [
        _fits(name, value, headers)
        for name, value in arguments.items()
        if name not in (_MATCH, FILTER) and (with_x or not name.startswith("x-"))
    ]
    return any(wanted) if kind in ("any", "any-with-x") else all(wanted)


def _fits(name: str, value: object, headers: Mapping[str, object]) -> bool:
    if name not in headers:
        return False
    return value is None or same(value, headers[name])
