"""Filters of subscriptions as filters of content headers (`wire.content`), and the P4 description of these.

A switch matches what a header holds; hosts filter exactly. So constraints on what a header does not hold
count as true, and a loose header passes every filter of its topic. A filter never misses a message that it
wants, apart from those that a switch has not learned of yet, which the message's origin repairs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.topic_schema import FILLER, DeclaredField
from treecast.middleware.wire.content import Layout

from .loosen import counted_as_true
from .tree import EVERYTHING, And, Constraint, Field, Filter, Not, Or, Relation

HEADER: Final = "content"
PORT: Final = 39322  # of UDP
DESTINATION: Final = Field(("ethernet", "dst"))
_IPV4: Final = 0x0800
_UDP: Final = 17


def name_of(field: DeclaredField) -> str:
    """Returns the name of a layout's field in the P4 header."""
    return "v_" + re.sub(r"[^A-Za-z0-9_]", "_", "__".join(field.path))


def description(layout: Layout) -> str:
    """Returns the header description of packets with content headers, for `treecast filter compile`.

    Raises ValueError if two fields would have one name.
    """
    named = [(place, field) for place, field in enumerate(layout.fields) if field.name != FILLER]
    names = [name_of(field) for _, field in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"fields of the layout have the same name in P4: {twice[0]}")
    lines = [
        "header ethernet { bit<48> dst; bit<48> src; bit<16> kind; }",
        "header ipv4 { bit<8> version_length; bit<64> to_ttl; bit<8> protocol; bit<16> checksum;"
        " bit<32> src; bit<32> dst; }",
        "header udp { bit<16> src; bit<16> dst; bit<16> length; bit<16> checksum; }",
        f"header {HEADER} {{",
        "    bit<32> topic;",
        "    bit<32> to;",
        "    bit<1> loose;",
    ]
    lines += [f"    bit<1> has_{name_of(field)};" for field in layout.fields if field.name != FILLER]
    rest = 31 - len(named)
    return "\n".join(lines + _values(layout, rest) + _annotations(names)) + "\n"


def _values(layout: Layout, rest: int) -> list[str]:
    lines = [f"    bit<{rest}> rest;"]
    for place, field in enumerate(layout.fields):
        name = name_of(field) if field.name != FILLER else f"filler{place}"
        lines.append(f"    bit<{8 * field.size}> {name};")
    return [*lines, "}"]


def _annotations(names: Sequence[str]) -> list[str]:
    lines = [
        f"@pragma query_next(ethernet.kind, {_IPV4}, ipv4)",
        f"@pragma query_next(ipv4.protocol, {_UDP}, udp)",
        f"@pragma query_next(udp.dst, {PORT}, {HEADER})",
        "@pragma query_field_exact(ethernet.dst)",
    ]
    lines += [f"@pragma query_field_exact({HEADER}.{name})" for name in ("to", "topic", "loose")]
    lines += [f"@pragma query_field_exact({HEADER}.has_{name})" for name in names]
    for name in names:
        lines += [f"@pragma query_field({HEADER}.{name})", f"@pragma query_pad({HEADER}.{name}, 0)"]
    return lines


def is_number(name: str, value: int) -> Filter:
    """Returns the filter of packets whose header's field has a value."""
    return Constraint(Field((HEADER, name)), Relation.EQ, value)


def for_host(number: int) -> Filter:
    """Returns the filter of packets that are for one host, by its number."""
    return is_number("to", number)


def for_topic(topic: int | None, tree: Filter | None, layout: Layout) -> Filter:
    """Returns the filter of messages of a topic (None: of any) that pass `tree` (None: all)."""
    parts: list[Filter] = [is_number("to", 0)]
    if topic is not None:
        parts.append(is_number("topic", topic))
    if tree is not None:
        fields = {field.path: field for field in layout.fields if field.name != FILLER}
        known = counted_as_true(tree, lambda one: _field_of(one, fields) is None)
        parts.append(Or((is_number("loose", 1), _translated(known, fields))))
    else:
        parts.append(EVERYTHING)
    return And(tuple(parts))


def _field_of(one: Constraint, fields: dict[tuple[str, ...], DeclaredField]) -> DeclaredField | None:
    """Returns the layout's field that a constraint is about; None if a header cannot tell."""
    if not isinstance(one.attribute, Field) or isinstance(one.constant, bool):
        return None
    path = one.attribute.path
    found = fields.get(path[1:] if path[0] == "value" and len(path) > 1 else path)
    if found is None or (found.kind == "s") is not isinstance(one.constant, str):
        return None
    if not isinstance(one.constant, str):
        return found
    short = len(one.constant.encode()) <= found.size and "\0" not in one.constant
    ordered = one.relation not in (Relation.EQ, Relation.NE, Relation.PREFIX)
    return found if short and not ordered and "." not in one.constant and ":" not in one.constant else None


def _translated(tree: Filter, fields: dict[tuple[str, ...], DeclaredField]) -> Filter:
    match tree:
        case Constraint():
            field = _field_of(tree, fields)
            assert field is not None
            name = name_of(field)
            return And(
                (
                    is_number(f"has_{name}", 1),
                    Constraint(Field((HEADER, name)), tree.relation, tree.constant),
                )
            )
        case Not(part):
            return Not(_translated(part, fields))
        case And(parts):
            return And(tuple(_translated(part, fields) for part in parts))
        case Or(parts):
            return Or(tuple(_translated(part, fields) for part in parts))
    return tree
