"""Compares two P4Infos as descriptions of one program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from finsy.proto import p4i


class _Named(Protocol):
    @property
    def preamble(self) -> p4i.Preamble: ...


def first_difference(given: p4i.P4Info, built: p4i.P4Info) -> str | None:
    """Returns the first difference in words; None if controllers see the same.

    Ignores annotations, documentation, package information and sizes.
    """
    theirs, ours = set(_traits(given)), set(_traits(built))
    for trait in sorted(theirs - ours):
        return f"the program has no {trait}"
    for trait in sorted(ours - theirs):
        return f"it lacks {trait}"
    return None


def _traits(info: p4i.P4Info) -> Iterator[str]:
    for table in info.tables:
        name = f"table {table.preamble.name} ({table.preamble.id:#x})"
        yield name
        for field in table.match_fields:
            kind = p4i.MatchField.MatchType.Name(field.match_type).lower()
            yield f"{name}: match field {field.id} {field.name}, {kind}, {field.bitwidth} bits"
        for reference in table.action_refs:
            yield f"{name}: action {reference.id:#x}"
        for resource in (table.implementation_id, *table.direct_resource_ids):
            yield f"{name}: resource {resource:#x}"
    for action in info.actions:
        name = f"action {action.preamble.name} ({action.preamble.id:#x})"
        yield name
        for param in action.params:
            yield f"{name}: parameter {param.id} {param.name}, {param.bitwidth} bits"
    for header in info.controller_packet_metadata:
        for metadata in header.metadata:
            yield f"metadata {header.preamble.name}: {metadata.id} {metadata.name}, {metadata.bitwidth} bits"
    named: tuple[_Named, ...] = (
        *info.action_profiles,
        *info.counters,
        *info.direct_counters,
        *info.meters,
        *info.direct_meters,
        *info.registers,
        *info.digests,
        *info.value_sets,
    )
    for one in named:
        yield f"{type(one).__name__} {one.preamble.name} ({one.preamble.id:#x})"
