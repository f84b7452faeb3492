"""Statements and calls, as the printer shows their lowered form."""

from __future__ import annotations

import re

import pytest
from tests.unit.p4.frontend.programs import complaint, framed, load

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.ir.invariants import check_invariants
from treecast.middleware.dataplane.p4.ir.printer import show

NAMES = """
bit<8> twice(in bit<8> v) { return v + v; }
T same<T>(in T v) { return v; }
void both(out bit<8> a, inout bit<8> b) { a = b; b = 0; }
bit<8> preset(in bit<8> a, in bit<8> b = 7) { return a + b; }
control Sub(inout bit<8> v)(bit<8> step) {
    bit<8> before = v;
    table t { key = { v: exact; } actions = { NoAction; } }
    apply { if (t.apply().miss) { v = before + step; } }
}
"""


def lowered(body: str, local: str = "") -> list[str]:
    """Returns the lines of ingress' body, variables without their numbers."""
    program = load(body, types=NAMES, local=local)
    check_invariants(program)
    text = show(program)
    start = text.index("control I(")
    lines = text[text.index("{", start) : text.index("\n}\n", start)].split("\n")[1:]
    return [plain(line.removeprefix("    ")) for line in lines]


def plain(line: str) -> str:
    """Removes the numbers of variables."""
    return re.sub(r"#\d+", "", line)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("meta.x = meta.x + 1;", ["meta.x = (meta.x + 8w1);"]),
        ("meta.x += 2;", ["meta.x = (meta.x + 8w2);"]),
        ("meta.x <<= 2;", ["meta.x = (meta.x << 2w2);"]),
        ("meta.x >>= 9;", ["meta.x = (meta.x >> 4w9);"]),
        ("meta.x |+|= 1;", ["meta.x = (meta.x |+| 8w1);"]),
        ("meta.y[7:0] = meta.x;", ["meta.y[7:0] = meta.x;"]),
        ("meta.y[8+:4] = 3;", ["meta.y[11:8] = 4w3;"]),
        ("meta.x = meta.y[meta.x+:8];", ["meta.x = (meta.y >> meta.x)[7:0];"]),
        ("meta.y = 24w0 ++ meta.x;", ["meta.y = (24w0 ++ meta.x);"]),
        ("meta.y = (bit<32>) meta.x;", ["meta.y = (bit<32>) meta.x;"]),
        ("meta.flag = meta.x > 3 && !meta.flag;", ["meta.flag = ((meta.x > 8w3) && !meta.flag);"]),
        ("meta.x = meta.flag ? meta.x : 3;", ["meta.x = (meta.flag ? meta.x : 8w3);"]),
        ("meta.flag = (bool) meta.x[0:0];", ["meta.flag = (bool) meta.x[0:0];"]),
        ("hdr.one.setValid();", ["hdr.one.setValid();"]),
        (
            "if (hdr.any.isValid()) hdr.any.one.setInvalid();",
            ["if (hdr.any.isValid()) {", "    hdr.any.one.setInvalid();", "}"],
        ),
        (
            "hdr.stack.push_front(2); hdr.stack.pop_front(1);",
            ["hdr.stack.push_front(2);", "hdr.stack.pop_front(1);"],
        ),
        ("hdr.stack[1] = hdr.stack[meta.x];", ["hdr.stack[32w1] = hdr.stack[meta.x];"]),
        ("meta.y = hdr.stack.size;", ["meta.y = 32w4;"]),
        ("meta.y = hdr.one.minSizeInBits() + hdr.one.minSizeInBytes();", ["meta.y = 32w72;"]),
        ("bit<8> v; bit<8> w = 3; v = w;", ["bit<8> v;", "bit<8> w = 8w3;", "v = w;"]),
        ("const bit<8> c = 5; meta.x = c;", ["meta.x = 8w5;"]),
        ("{ bit<8> v = 1; } bit<16> v = 2;", ["bit<8> v = 8w1;", "bit<16> v = 16w2;"]),
        ("if (meta.flag) { } else { exit; }", ["if (meta.flag) {", "} else {", "    exit;", "}"]),
        ("return;", ["return;"]),
        ("meta.x = twice(3);", ["meta.x = twice(in 8w3);"]),
        (
            "meta.x = same(meta.x); meta.y = same<bit<32>>(1);",
            ["meta.x = same(in meta.x);", "meta.y = same(in 32w1);"],
        ),
        ("both(meta.x, hdr.one.a);", ["both(out meta.x, inout hdr.one.a);"]),
        ("both(b = meta.x, a = _);", ["both(out _, inout meta.x);"]),
        ("meta.x = preset(1);", ["meta.x = preset(in 8w1, in 8w7);"]),
        (
            "for (bit<8> i = 0; i < 4; i = i + 1) { if (i == 2) break; else continue; }",
            [
                "bit<8> i = 8w0;",
                "for (; (i < 8w4);) {",
                "    if ((i == 8w2)) {",
                "        break;",
                "    } else {",
                "        continue;",
                "    }",
                "} update {",
                "    i = (i + 8w1);",
                "}",
            ],
        ),
        ("for (bit<8> i in 1 .. 3) meta.x = i;", ["for (i in 8w1 .. 8w3) {", "    meta.x = i;", "}"]),
        ("for (bit<8> i in {1, meta.x}) meta.x = i;", ["for (i in {8w1, meta.x}) {", "    meta.x = i;", "}"]),
        (
            "for (bit<8> i in (list<bit<8>>){1, meta.x}) meta.x = i;",
            ["for (i in {8w1, meta.x}) {", "    meta.x = i;", "}"],
        ),
        (
            "const list<bit<8>> L = {1, 2}; for (bit<8> i in L) meta.x = i;",
            ["for (i in {8w1, 8w2}) {", "    meta.x = i;", "}"],
        ),
        (
            "for (tuple<bit<8>, bit<8>> i in (list<tuple<bit<8>, bit<8>>>){{1, 2}}) meta.x = i[1];",
            ["for (i in {{8w1, 8w2}}) {", "    meta.x = i[1];", "}"],
        ),
        ("for (bit<8> i in (list<bit<8>>){}) meta.x = i;", []),
        (
            "switch (meta.x) { 1: { meta.x = 2; } 2: 3: { } default: { meta.x = 0; } }",
            [
                "switch (meta.x) {",
                "    8w1: {",
                "        meta.x = 8w2;",
                "    }",
                "    8w2, 8w3: {",
                "    }",
                "    default: {",
                "        meta.x = 8w0;",
                "    }",
                "}",
            ],
        ),
        ("mark_to_drop(sm);", ["mark_to_drop(inout sm);"]),
        ("random(meta.x, 1, 9);", ["random<bit<8>>(out meta.x, in 8w1, in 8w9);"]),
        (
            "hash(meta.y, HashAlgorithm.crc32, 16w0, {meta.x, hdr.one.b}, 16w7);",
            [
                "hash<bit<32>, bit<16>, tuple<bit<8>, bit<16>>, bit<16>>(out meta.y, in HashAlgorithm.crc32, "
                "in 16w0, in {meta.x, hdr.one.b}, in 16w7);"
            ],
        ),
        (
            "digest<one_t>(1, hdr.one); truncate(60);",
            ["digest<one_t>(in 32w1, in hdr.one);", "truncate(in 32w60);"],
        ),
        (
            "clone_preserving_field_list(CloneType.I2E, 5, 1);",
            ["clone_preserving_field_list(in CloneType.I2E, in 32w5, 8w1);"],
        ),
        (
            'log_msg("{}", {meta.x}); assert(meta.x > 0);',
            ['log_msg<tuple<bit<8>>>("{}", in {meta.x});', "assert(in (meta.x > 8w0));"],
        ),
    ],
)
def test_lowered(body: str, lines: list[str]) -> None:
    assert lowered(body) == lines


def test_instances_have_qualified_names_and_constants_of_their_own() -> None:
    local = 'Sub(1) first; @name("other") Sub(2) second;'
    program = load("first.apply(meta.x); second.apply(meta.x);", types=NAMES, local=local)
    assert [one.name for one in program.controls if one.type_name == "Sub"] == ["I.first", "I.other"]
    assert [one.name for one in program.tables] == ["I.first.t", "I.other.t"]
    steps = []
    for control in program.controls:
        if control.type_name == "Sub":
            conditional = control.body[-1]
            assert isinstance(conditional, ir.If)
            (assign,) = conditional.yes
            assert isinstance(assign, ir.Assign)
            assert isinstance(assign.value, ir.Binary)
            assert isinstance(assign.value.right, ir.Literal)
            steps.append(assign.value.right.value)
    assert steps == [1, 2]


def test_a_control_applied_by_its_type_is_named_as_it() -> None:
    types = "control Own(inout bit<8> v) { @hidden action a() { v = 1; } apply { a(); } }"
    program = load("Own.apply(meta.x);", types=types)
    assert [one.name for one in program.controls if one.type_name == "Own"] == ["I.Own"]
    (action,) = [one for one in program.actions if one.name == "I.Own.a"]
    assert action.hidden


def test_an_index_that_calls_something_is_evaluated_once() -> None:
    assert lowered("hdr.stack[twice(1)].a += 1;") == [
        "bit<8> index = twice(in 8w1);",
        "hdr.stack[index].a = (hdr.stack[index].a + 8w1);",
    ]


def test_controls_and_extern_objects_as_arguments() -> None:
    types = """
        control Adder(inout bit<8> v) { apply { v = v + 1; } }
        control Outer(inout bit<8> v)(Adder inner) { apply { inner.apply(v); } }
        control Reader(inout bit<8> v, register<bit<8>> r) { apply { r.read(v, 0); } }
        control Made(inout bit<8> v)(register<bit<8>> r) { apply { r.read(v, 1); } }
    """
    local = "Adder() adder; Outer(adder) outer; register<bit<8>>(4) one; Reader() reader; Made(one) made;"
    program = load(
        "outer.apply(meta.x); reader.apply(meta.x, one); made.apply(meta.x);", types=types, local=local
    )
    check_invariants(program)
    reads = [
        node.call.instance
        for control in program.controls
        for node in control.body
        if isinstance(node, ir.Evaluate) and isinstance(node.call, ir.ExternCall)
    ]
    assert reads == [0, 0]


def test_what_is_declared_after_its_use_is_not_seen() -> None:
    text = framed("meta.x = late;").replace("V1Switch(", "const bit<8> late = 1;\nV1Switch(")
    with pytest.raises(Exception, match=r"'late' is used before it is declared, at t\.p4:23:14"):
        load_program(text, "t.p4")


def test_an_action_may_hide_the_function_that_it_calls() -> None:
    local = "action hash() { hash(meta.y, HashAlgorithm.crc16, 16w0, {meta.x}, 16w9); }"
    assert lowered("hash();", local) == ["I.hash();"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("meta.x = meta.y;", "bit<8> is wanted here, not bit<32>"),
        ("3 = meta.x;", "this can't be assigned to: it is no variable, field, element or slice"),
        ("meta.nope = 1;", "there is no field 'nope' in struct 'M'"),
        ("meta.x.y = 1;", "bit<8> has no member 'y'"),
        ("hdr.stack[4].a = 1;", "the stack has 4 elements; there is no 4"),
        ("hdr.stack.next.a = 1;", "'next' of a header stack can be used in parsers only"),
        ("hdr.one.setValid(1);", "'setValid' takes no arguments"),
        ("meta.setValid();", "M has no method 'setValid'"),
        (
            "hdr.stack.push_front(meta.x);",
            "the argument of 'push_front' must be a number that is known when the program is loaded",
        ),
        ("if (meta.x) { }", "a condition is bool, not bit<8>"),
        ("bit<8> v; bit<8> v;", "'v' is declared already, at t.p4:27:16"),
        ("break;", "there is no loop to break out of"),
        ("return 1;", "nothing can be returned from this control"),
        ("unknown(1);", "'unknown' is not declared"),
        ("meta.x = twice();", "argument 'v' of 'twice' is missing"),
        ("meta.x = twice(1, 2);", "'twice' takes 1 argument, not 2"),
        ("meta.x = twice(w = 1);", "'twice' has no parameter 'w'"),
        ("meta.x = twice(true);", "bit<8> is wanted here, not bool"),
        (
            "both(1, meta.x);",
            "parameter 'a' is out, so that something assignable must stand here; this is no "
            "variable, field, element or slice",
        ),
        ("both(meta.y, meta.x);", "bit<8> is wanted here, not bit<32>"),
        ("meta.x = twice(_);", "'_' may stand for out arguments only; 'v' is none"),
        ("meta.x = same(1);", "the width of this number isn't known here; write it as 32w... or cast it"),
        ("meta.x = both(meta.x, meta.x);", "this call gives no value"),
        ("switch (meta.x) { 1: { } 1: { } }", "there are two cases with this label"),
        ("switch (meta.x) { default: { } 1: { } }", "no case can follow 'default'"),
        ("switch (meta.x) { meta.x: { } }", "the label of a case must be known when the program is loaded"),
        ("switch (hdr.one) { }", "a switch can't be about one_t"),
        ("NoAction.apply();", "'NoAction' has no method 'apply'"),
        ("Sub(1) sub;", "'sub' can't be instantiated here; declare it beside the block"),
        ("verify(true, error.NoError);", "'verify' can be called in parsers only"),
        ('static_assert(1 > 2, "no");', "static_assert failed: no"),
        ("static_assert(meta.flag);", "what static_assert checks must be known when the program is loaded"),
        (
            "clone_preserving_field_list(CloneType.I2E, 5, meta.x);",
            "this argument of 'clone_preserving_field_list' must be known when the program is loaded",
        ),
        (
            "hash(meta.x, HashAlgorithm.crc32, 16w0, {1}, 16w7);",
            "'hash' needs numbers with a width in this list, such as 16w1",
        ),
        ("meta.x = this;", "'this' is for extern objects that a program defines, which this target has not"),
        ("for (bit<8> i in 1 .. true) { }", "bit<8> is wanted here, not bool"),
        ("for (int i in 1 .. 3) { }", "a variable can't be of type int"),
        ("for (bit<16> i in (list<bit<8>>){1}) { }", "list<bit<8>> holds no bit<16>"),
        (
            "for (bit<8> i in meta.x) { }",
            "'for' goes through a range, a list or a header stack, not bit<8>",
        ),
        (
            "for (bit<8> i in (list<bit<8>>)meta.x) { }",
            "a value of type list<bit<8>> is written as (list<bit<8>>){a, b}",
        ),
        ("meta.x = (list<bit<8>>){1};", "bit<8> is wanted here, not list<bit<8>>"),
        ("list<bit<8>> l = {1};", "a variable can't be of type list<bit<8>>"),
        ("const list<bit<8>> L = {meta.x};", "this value must be known when the program is loaded"),
        ("meta.x = twice;", "'twice' is a function, where a value is wanted"),
        ("meta.x = bit<8>;", "a type stands here where a value is wanted"),
    ],
)
def test_refused(body: str, message: str) -> None:
    assert complaint(body, types=NAMES) == message


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ("action a(in bit<8> v) { v = 1; }", "this can't be assigned to: it is read-only"),
        ("action a(bit<8> v) { v = 1; }", "this can't be assigned to: it is read-only"),
        (
            "action a(bit<8> v, in bit<8> w) { }",
            "parameters with a direction come before those that the control plane gives",
        ),
        ("action a(one_t v) { }", "a control plane can't give a value of type one_t"),
        ("register<bit<8>>(meta.y) r;", "this value must be known when the program is loaded"),
        ("register<bit<8>>() r;", "argument 'size' of 'register' is missing"),
        ("register(4) r;", "'register' needs 1 type argument"),
        ("counter(99999999, CounterType.bytes) c;", "'size' is between 0 and 16777216, not 99999999"),
        ("packet_in() p;", "objects of type packet_in can't be made by programs"),
        ("I() i;", "'I' is used before it is declared, at t.p4:24:9"),
        ("P() p;", "a parser can't be instantiated in a control"),
        ("Sub() s;", "argument 'step' of 'Sub' is missing"),
        ("M() m;", "M can't be instantiated"),
        ("V1Switch() v;", "'V1Switch' needs 2 type arguments"),
    ],
)
def test_locals_refused(local: str, message: str) -> None:
    assert complaint(local=local, types=NAMES) == message
