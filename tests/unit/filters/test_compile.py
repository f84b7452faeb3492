"""DNF, diagrams, tables and direct evaluation of random rules agree."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from treecast.middleware.filters.actions import Rules
from treecast.middleware.filters.compiler.binary import Binary
from treecast.middleware.filters.compiler.bounds import ABSENT, contains
from treecast.middleware.filters.compiler.compile import Compiled, compile_rules
from treecast.middleware.filters.compiler.direct import Direct
from treecast.middleware.filters.compiler.machine import TableMachine
from treecast.middleware.filters.compiler.schema import Schema
from treecast.middleware.filters.compiler.terms import Effect, joined
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.rules import parse_rules

from . import rule_strategies as some

Packet = tuple[int, int, tuple[int, int] | None]
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def by_boxes(compiled: Compiled, values: list[int]) -> Effect:
    """The effect by the normal form, without diagram."""
    terms = compiled.terms
    holding = sorted(
        {
            term.action
            for term in terms.terms
            if all(contains(bounds, values[attribute]) for attribute, bounds in term.box)
        }
    )
    return joined([terms.actions[action] for action in holding]) if holding else terms.default


def by_diagram(compiled: Compiled, values: list[int]) -> Effect:
    diagram, node = compiled.diagram, compiled.root
    while node >= diagram.leaves:
        node = diagram.run(node, values[compiled.order[diagram.level(node)]])
    return compiled.leaves[node]


@given(
    some.schemas(), some.stateless, st.lists(some.packets, min_size=1, max_size=12), st.permutations(range(4))
)
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
def test_all_forms_agree_counted_as_true(
    schema: Schema, rules: Rules, packets: list[Packet], order: list[int]
) -> None:
    compiled = compile_rules(schema, rules, order)
    binary = Binary(schema, compiled.terms, order)
    direct, machine = Direct(schema, rules), TableMachine(compiled)
    for packet in packets:
        values = some.of_schema(schema, packet)
        numbers = [ABSENT if value is None else value for value in values]
        wanted = direct.receive(values, 0)
        assert by_boxes(compiled, numbers) == wanted
        assert by_diagram(compiled, numbers) == wanted
        assert binary.leaf([numbers[place] for place in order]) == wanted
        assert machine.receive(values, 0) == wanted


@given(some.schemas(), some.stateless)
@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
def test_the_diagram_has_the_states_of_the_papers(schema: Schema, rules: Rules) -> None:
    """As many nodes for each field as the binary diagram has entries to it, with the same ways out."""
    compiled = compile_rules(schema, rules)
    binary = Binary(schema, compiled.terms, compiled.order)
    diagram = compiled.diagram
    nodes = [[n for n in reached(compiled) if diagram.level(n) == level] for level in range(4)]
    entries = [
        [n for n in binary.entries() if binary.nodes[n].predicate.level == level] for level in range(4)
    ]
    assert [len(of_level) for of_level in nodes] == [len(of_level) for of_level in entries]
    tables = binary.tables()
    for level in range(4):
        theirs = sorted(
            len({after for (state, _), after in tables[level].items() if state == n}) for n in entries[level]
        )
        ours = sorted(len(set(diagram.targets[n - diagram.leaves])) for n in nodes[level])
        assert ours == theirs


def reached(compiled: Compiled) -> set[int]:
    diagram, left, seen = compiled.diagram, [compiled.root], {compiled.root}
    while left:
        node = left.pop()
        new = set(diagram.targets[node - diagram.leaves]) - seen if node >= diagram.leaves else set()
        seen |= new
        left += new
    return {node for node in seen if node >= diagram.leaves}


@given(
    some.schemas(some.COUNTERS),
    some.stateful,
    st.lists(st.tuples(some.packets, st.integers(0, 60)), min_size=1, max_size=20),
)
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
def test_tables_agree_with_state(schema: Schema, rules: Rules, arrivals: list[tuple[Packet, int]]) -> None:
    compiled = compiled_or_skipped(schema, rules)
    direct, machine = Direct(schema, rules), TableMachine(compiled)
    now = 0
    for packet, later in arrivals:
        now += later
        values = some.of_schema(schema, packet)
        assert machine.receive(values, now) == direct.receive(values, now)


def compiled_or_skipped(schema: Schema, rules: Rules) -> Compiled:
    """Some rules need more state for one packet than two blocks hold; they are refused, and not of
    interest.
    """
    try:
        return compile_rules(schema, rules)
    except FilterError as error:
        assume("query_counter" not in error.reason)
        raise


def test_neighbouring_runs_have_different_targets() -> None:
    fields = tuple(some.query_field(name, "range") for name in some.NUMBERS)
    rules = parse_rules("a > 3 and b < 4: fwd(1)\nc == 5 or d != 3: fwd(2)")
    compiled = compile_rules(Schema(some.HEADERS, (), fields), rules)
    nodes = reached(compiled)
    assert len(nodes) >= 4
    for node in nodes:
        targets = compiled.diagram.targets[node - compiled.diagram.leaves]
        assert len(targets) > 1
        assert all(one != other for one, other in itertools.pairwise(targets))
