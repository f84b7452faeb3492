"""A whole program: its representation, and the part that control planes will see."""

from __future__ import annotations

from tests.unit.p4.frontend.programs import ROUTER

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.frontend import load_program


def program() -> ir.Program:
    return load_program(ROUTER, "router.p4")


def test_tables_have_qualified_names_keys_and_actions() -> None:
    loaded = program()
    (table,) = loaded.tables
    assert table.name == "MyIngress.ipv4_lpm"
    (key,) = table.keys
    assert (key.name, key.match_kind, key.type) == ("hdr.ipv4.dstAddr", ir.MatchKind.LPM, ir.Bits(32))
    names = [loaded.actions[one.action].name for one in table.actions]
    assert names == ["MyIngress.ipv4_forward", "MyIngress.drop", "NoAction"]
    assert (table.size, table.default, table.default_constant) == (1024, ir.ActionData(1, ()), False)
    assert ir.find(table.annotations, "brief") == ir.Annotation(
        "brief", ("where to send",), (), '"where to send"', False, table.annotations[0].span
    )


def test_action_parameters_are_the_control_planes() -> None:
    loaded = program()
    (forward,) = [one for one in loaded.actions if one.name == "MyIngress.ipv4_forward"]
    assert [(one.name, one.type) for one in forward.data] == [("dstAddr", ir.Bits(48)), ("port", ir.Bits(9))]
    assert [loaded.variables[one.variable].name for one in forward.parameters] == ["dstAddr", "port"]


def test_extern_objects_know_their_types_and_arguments() -> None:
    last, ports = program().externs
    assert (last.name, last.kind, last.type_arguments) == ("MyIngress.last", "register", (ir.Bits(16),))
    assert last.argument("size") == 1024
    assert (ports.kind, ports.hidden, ports.argument("type")) == ("counter", True, "packets_and_bytes")


def test_the_pipeline_is_v1models() -> None:
    loaded = program()
    parser = loaded.parsers[loaded.pipeline.parser]
    assert [one.name for one in parser.parameters] == ["hdr", "meta", "standard_metadata"]
    assert [one.direction.value for one in parser.parameters] == ["out", "inout", "inout"]
    deparser = loaded.controls[loaded.pipeline.deparser]
    assert [one.name for one in deparser.parameters] == ["hdr"]
    assert [type(one) for one in deparser.body] == [ir.Emit, ir.Emit]
    assert loaded.v1model_version == 20180101


def test_parser_states_and_selects() -> None:
    loaded = program()
    parser = loaded.parsers[loaded.pipeline.parser]
    start, ipv4 = parser.states
    assert isinstance(start.body[0], ir.Extract)
    assert isinstance(start.transition, ir.Select)
    assert [(one.matches, one.target) for one in start.transition.cases] == [
        ((ir.MatchValue(0x800),), 1),
        ((ir.MatchAny(),), ir.ACCEPT),
    ]
    assert isinstance(ipv4.transition, ir.Goto)
    assert ipv4.transition.target == ir.ACCEPT


def test_numbers_take_the_width_of_what_they_meet() -> None:
    loaded = program()
    (forward,) = [one for one in loaded.actions if one.name == "MyIngress.ipv4_forward"]
    decrement = forward.body[-1]
    assert isinstance(decrement, ir.Assign)
    assert isinstance(decrement.value, ir.Binary)
    assert isinstance(decrement.value.right, ir.Literal)
    assert (decrement.value.type, decrement.value.right.type) == (ir.Bits(8), ir.Bits(8))


def test_field_lists_are_paths_into_the_metadata() -> None:
    assert program().field_lists == {1: (("seen",),)}


def test_every_piece_knows_its_place() -> None:
    loaded = program()
    span = loaded.tables[0].span
    assert str(span) == "router.p4:74:11"
    assert loaded.lines["router.p4"][span.line - 1][span.column - 1 : span.end - 1] == "ipv4_lpm"
