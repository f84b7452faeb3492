"""The requirements of v1model on programs, apart from types."""

from __future__ import annotations

import pytest
from tests.unit.p4.frontend.programs import ROUTER, complaint, framed, load, refused

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.ir.invariants import check_invariants
from treecast.middleware.dataplane.p4.runtime import Switch

OBJECTS = """
direct_counter(CounterType.packets) hits;
direct_meter<bit<8>>(MeterType.bytes) rate;
action use() { hits.count(); rate.read(meta.x); }
"""


def test_direct_objects_are_used_by_the_actions_of_their_table() -> None:
    local = OBJECTS + "table t { actions = { use; } counters = hits; meters = rate; }"
    program = load("t.apply();", local=local)
    names = [
        node.call.name
        for action in program.actions
        for node in action.body
        if isinstance(node, ir.Evaluate) and isinstance(node.call, ir.ExternCall)
    ]
    assert names == ["direct_counter.count", "direct_meter.read"]


def test_a_direct_object_elsewhere_is_warned_of() -> None:
    local = OBJECTS + (
        "table t { actions = { NoAction; } counters = hits; meters = rate; } table u { actions = { use; } }"
    )
    assert len(load("t.apply(); u.apply();", local=local).warnings) == 2


@pytest.mark.parametrize(
    ("local", "body", "message"),
    [
        (
            OBJECTS.replace("rate.read(meta.x);", ""),
            "use();",
            "'I.hits' belongs to no table: a table's property 'counters' names it",
        ),
        (
            "direct_counter(CounterType.packets) c; table t { actions = { NoAction; } counters = c; }",
            "c.count();",
            "'I.c' can be used in the actions of table 'I.t' only",
        ),
        (
            "direct_counter(CounterType.packets) c; table t { actions = { NoAction; } counters = c; } "
            "table u { actions = { NoAction; } counters = c; }",
            "",
            "'I.c' belongs to table 'I.t' already",
        ),
        (
            "table t { key = { meta.x : lpm; meta.y : lpm; } actions = { NoAction; } }",
            "",
            "table 'I.t' has more than one lpm key",
        ),
        (
            "direct_meter<bool>(MeterType.bytes) m;",
            "",
            "'direct_meter' works on bit<w> here, not on another type",
        ),
        ("", "random(meta.flag, true, false);", "'random' works on bit<w> here, not on another type"),
        (
            "",
            "update_checksum(true, {meta.x}, hdr.one.b, HashAlgorithm.csum16);",
            "'update_checksum' can be called in the ComputeChecksum control only",
        ),
        # Uses of what the target lacks are refused by `check` as well as by running the program.
        (
            "action copy() { clone3(CloneType.I2E, 5, meta.x); }",
            "copy();",
            "clone3 cannot preserve fields: use clone_preserving_field_list and @field_list",
        ),
        (
            "action copy() { resubmit(meta); } action outer() { copy(); }",
            "outer();",
            "resubmit cannot preserve fields: use resubmit_preserving_field_list and @field_list",
        ),
        ("register<one_t>(4) r;", "", "register I.r has cells that are neither bits nor bool"),
        (
            "table t { key = { hdr.one.s : range; } actions = { NoAction; } }",
            "t.apply();",
            "a range key is unsigned",
        ),
    ],
)
def test_refused(local: str, body: str, message: str) -> None:
    assert complaint(body, local=local) == message


@pytest.mark.parametrize("body", ["", "live();"])
def test_an_action_that_nothing_runs_asks_nothing_of_the_target(body: str) -> None:
    """The STARE paper's published program for an embedded controller has such actions; p4c leaves them out
    too."""
    local = """
        action inner() { clone3(CloneType.I2E, 5, meta.x); }
        action dead() { inner(); meta.x = unused(); }
        action helper() { meta.x = used(); }
        action live() { helper(); }
        action chosen(bit<8> v) { meta.x = v; }
        table t { key = { meta.y : exact; } actions = { chosen; NoAction; } default_action = chosen(7); }
        """
    types = """
        bit<8> unused() { bit<8> v; random(v, 1, 2); log_msg("unused"); return v; }
        bit<8> deeper() { return 3; }
        bit<8> used() { return deeper(); }
        """
    program = load(f"if (t.apply().hit) {{ {body} }}", local=local, types=types)
    assert {one.name for one in program.functions} == ({"used", "deeper"} if body else set())
    check_invariants(program)
    names = {"I.helper", "I.live"} if body else set()
    assert {one.name for one in program.actions} == {"I.chosen", "NoAction"} | names
    (table,) = program.tables
    assert program.actions[table.actions[table.default.action].action].name == "I.chosen"
    assert Switch(program, ports=range(4)).receive(1, bytes(8), 0.0) is not None


def test_what_nothing_runs_is_checked_as_p4_all_the_same() -> None:
    assert complaint(local="action dead() { meta.nope = 1; }").startswith("there is no field 'nope'")


def test_headers_are_a_struct() -> None:
    (one,) = refused(framed().replace("H hdr", "one_t hdr")).diagnostics
    assert one.message == "the headers of a v1model program are a struct; 'hdr' is none"


def test_all_parts_have_the_same_headers() -> None:
    text = ROUTER.replace("control MyEgress(inout headers hdr", "control MyEgress(inout metadata hdr")
    (one,) = refused(text).diagnostics
    assert one.message == "parameter 'hdr' of 'MyEgress' is metadata; Egress wants headers"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("MyEgress(), ", "", "argument 'dep' of 'V1Switch' is missing"),
        (
            "MyEgress(), MyComputeChecksum()",
            "MyComputeChecksum(), MyEgress()",
            "'Egress' has 3 parameters, not 2 as 'MyComputeChecksum'",
        ),
        (
            "MyParser(), MyVerifyChecksum()",
            "MyVerifyChecksum(), MyParser()",
            "'MyVerifyChecksum' is a control, which 'p' is not",
        ),
        ("V1Switch(My", "V2Switch(My", "'V2Switch' is not declared; did you mean 'V1Switch'?"),
        (" main;", " mine;", "only one package is run, and its name is 'main'"),
        ("V1Switch(MyParser()", "V1Switch(MyParser", "a control or parser is wanted here, as Name()"),
        (
            "in headers hdr)",
            "inout headers hdr)",
            "parameter 'hdr' of 'MyDeparser' is 'inout'; Deparser wants 'in'",
        ),
    ],
)
def test_main_is_v1models(old: str, new: str, message: str) -> None:
    assert refused(ROUTER.replace(old, new)).diagnostics[0].message == message


def test_a_program_without_main() -> None:
    text = ROUTER[: ROUTER.index("V1Switch(My")]
    assert str(refused(text)) == "error: the program has no 'main': V1Switch(...) main;"


@pytest.mark.parametrize(
    ("version", "index"), [("20180101", ir.Bits(32)), ("20200407", ir.Bits(32)), ("20200408", ir.Bits(9))]
)
def test_versions_of_the_interface(version: str, index: ir.Bits) -> None:
    parameters = "<bit<9>>" if version == "20200408" else ""
    text = f"#define V1MODEL_VERSION {version}\n" + ROUTER.replace(
        "@hidden counter(16, CounterType.packets_and_bytes)",
        f"counter{parameters}(16, CounterType.packets_and_bytes)",
    ).replace("ports.count((bit<32>) standard", f"ports.count((bit<{index.width}>) standard")
    if version == "20200408":
        text = text.replace("register<bit<16>>", "register<bit<16>, bit<32>>")
    program = load_program(text, "t.p4")
    assert program.v1model_version == int(version)
    ports = next(one for one in program.externs if one.kind == "counter")
    assert ports.type_arguments == ((ir.Bits(9),) if version == "20200408" else ())


def test_other_versions_are_refused() -> None:
    text = "#define V1MODEL_VERSION 20300101\n" + ROUTER.replace(
        "register<bit<16>>", "register<bit<16>, bit<32>>"
    ).replace("counter(16", "counter<bit<32>>(16")
    assert "V1MODEL_VERSION: this target has v1model 20180101 to 20200408, not 20300101" in str(refused(text))


def test_headers_that_are_no_bytes_are_warned_of() -> None:
    (warning,) = load(types="header odd_t { bit<3> a; }").warnings
    assert "header 'odd_t' has 3 bits, which is no whole number of bytes; bmv2 refuses that" in warning
