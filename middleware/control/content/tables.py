"""Rules of a switch as its state: two generations of entries, of which the root's default action names one.

A generation's states and groups have numbers of their own. A change writes the new generation beside the old
one, moves the root by one write, and removes the old one: each packet meets the old rules or the new ones.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from treecast.middleware.control.switches import Program, SwitchState
from treecast.middleware.dataplane.p4 import ActionCall, Entry, ExactMatch, build_p4info, load_program
from treecast.middleware.dataplane.subscriptions.entries import Installation, installation, table_name
from treecast.middleware.dataplane.subscriptions.header_file import read_header_file
from treecast.middleware.filters.actions import Rules
from treecast.middleware.filters.compiler.compile import compile_rules
from treecast.middleware.filters.compiler.program import program_text
from treecast.middleware.filters.compiler.schema import Schema
from treecast.middleware.filters.content_header import description
from treecast.middleware.wire.content import Layout

MOST_STATES: Final = 200_000
_STATES: Final = 1 << 30  # the second generation's first state
_GROUPS: Final = 1 << 15  # and group
_ROOT: Final = table_name("root")
_STATE: Final = "meta.state"


class ContentTables:
    """The program of a layout, and the states of switches that run it."""

    def __init__(self, layout: Layout) -> None:
        self.schema: Schema = read_header_file(description(layout), "content.p4")
        self.order = tuple(range(len(self.schema.fields)))
        self.text = program_text(self.schema, self.order)

    def program(self) -> Program:
        """Returns the program for P4Runtime; equal layouts have equal cookies."""
        info = build_p4info(load_program(self.text, "content.p4"))
        source = self.text.encode()
        return Program(info, source, int.from_bytes(_digest(source)) or 1)

    def installation(self, rules: Rules) -> Installation:
        """Returns what a switch with these rules holds. Raises FilterError or DiagramTooLarge."""
        return installation(compile_rules(self.schema, rules, self.order, MOST_STATES))


def second(state: SwitchState) -> bool:
    """Whether a switch works by its second generation."""
    root = state.defaults.get(_ROOT)
    return root is not None and int(root.arguments.get("state", 0)) >= _STATES


def generation(found: Installation, *, second: bool) -> SwitchState:
    """Returns the state of a switch that holds one generation alone."""
    states, groups = (_STATES, _GROUPS) if second else (0, 0)
    return SwitchState.of(
        entries=[(table, _moved(entry, states, groups)) for table, entry in found.entries],
        defaults={table: _call(call, states, groups) for table, call in found.defaults},
        groups=[replace(group, group=group.group + groups) for group in found.groups],
    )


def both(old: SwitchState, new: SwitchState) -> SwitchState:
    """Returns the state with the entries of two generations, working by the old one."""
    return replace(old, entries={**old.entries, **new.entries}, groups={**old.groups, **new.groups})


def turned(old: SwitchState, new: SwitchState) -> SwitchState:
    """Returns the state with the entries of two generations, working by the new one."""
    return replace(both(old, new), defaults=new.defaults)


def _moved(entry: Entry, states: int, groups: int) -> Entry:
    matches = dict(entry.matches)
    state = matches.get(_STATE)
    if isinstance(state, ExactMatch):
        matches[_STATE] = ExactMatch(int(state.value) + states)
    assert isinstance(entry.action, ActionCall)
    return replace(entry, matches=matches, action=_call(entry.action, states, groups))


def _call(call: ActionCall, states: int, groups: int) -> ActionCall:
    arguments = dict(call.arguments)
    for name, base in (("state", states), ("group", groups)):
        if name in arguments:
            arguments[name] = arguments[name] + base
    return replace(call, arguments=arguments)


def _digest(source: bytes) -> bytes:
    from hashlib import blake2b

    return blake2b(source, digest_size=8).digest()
