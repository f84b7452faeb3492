"""Tables: keys, actions, entries with priorities, properties, and their errors."""

from __future__ import annotations

import pytest
from tests.unit.p4.frontend.programs import complaint, framed, load, refused

from treecast.middleware.dataplane.p4 import ir

ACTIONS = """
action set(inout bit<8> target, bit<8> value) { target = value; }
action plain() { }
action many(bit<8> a, bit<16> b, bool c) { }
"""


def table(text: str, before: str = "") -> tuple[ir.Table, ir.Program]:
    """Returns the table `t` of ingress with these properties."""
    program = load("t.apply();", local=f"{ACTIONS}{before}\ntable t {{ {text} }}")
    return next(one for one in program.tables if one.name == "I.t"), program


def keyed(key: str, entries: str) -> tuple[ir.Entry, ...]:
    """Returns the entries of a table with one key."""
    return table(f"key = {{ {key} }} actions = {{ plain; many; }} {entries}")[0].entries


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("meta.x : exact;", "meta.x"),
        ("hdr.stack[2].a : exact;", "hdr.stack[2].a"),
        ("hdr.one.isValid() : exact;", "hdr.one.$valid$"),
        ("meta.y[15:8] : ternary;", "meta.y[15:8]"),
        ("meta.y & 0xff00 : lpm;", "meta.y & 0xff00"),
        ('meta.x + 1 : exact @name("sum");', "sum"),
        ("meta.flag : optional;", "meta.flag"),
        ("sm.parser_error : exact;", "sm.parser_error"),
        ("meta.x : range;", "meta.x"),
    ],
)
def test_keys(key: str, name: str) -> None:
    (found,) = table(f"key = {{ {key} }} actions = {{ plain; }}")[0].keys
    assert found.name == name


def test_bound_arguments_and_data() -> None:
    found, program = table(
        "actions = { set(meta.x); @defaultonly many; @tableonly plain; } "
        "const default_action = many(1, 2, true);"
    )
    setting, many, plain = found.actions
    assert [type(one) for one in setting.arguments] == [ir.Member]
    assert [one.name for one in program.actions[setting.action].data] == ["value"]
    assert (many.default_only, plain.table_only, plain.default_only) == (True, True, False)
    assert (found.default, found.default_constant) == (ir.ActionData(1, (1, 2, True)), True)


def test_a_table_without_default_does_nothing() -> None:
    found, program = table("actions = { plain; }")
    assert program.actions[found.actions[found.default.action].action].name == "NoAction"
    assert found.actions[found.default.action].default_only
    assert (found.size, found.implementation, found.counters, found.meters) == (None, None, None, None)


@pytest.mark.parametrize(
    ("key", "entry", "match"),
    [
        ("meta.x : exact;", "5", ir.MatchValue(5)),
        ("meta.x : exact;", "5 &&& 0xFF", ir.MatchValue(5)),
        ("meta.x : ternary;", "0xAB &&& 0xF0", ir.MatchMask(0xA0, 0xF0)),
        ("meta.x : ternary;", "_", ir.MatchAny()),
        ("meta.x : ternary;", "default", ir.MatchAny()),
        ("meta.x : ternary;", "1 &&& 0", ir.MatchAny()),
        ("meta.x : ternary;", "(1)", ir.MatchValue(1)),
        ("meta.x : lpm;", "0x80 &&& 0xC0", ir.MatchMask(0x80, 0xC0)),
        ("meta.x : range;", "3 .. 9", ir.MatchRange(3, 9)),
        ("meta.x : range;", "0 .. 255", ir.MatchAny()),
        ("meta.flag : exact;", "true", ir.MatchValue(True)),
        ("sm.parser_error : exact;", "error.NoMatch", ir.MatchValue(2)),
        ("meta.x : optional;", "7", ir.MatchValue(7)),
    ],
)
def test_entries(key: str, entry: str, match: ir.Match) -> None:
    (found,) = keyed(key, f"const entries = {{ {entry} : plain(); }}")
    assert found.matches == (match,)
    assert found.constant


def test_entries_of_several_keys() -> None:
    entries = "entries = { (1, 2 &&& 3) : plain; const (_, _) : many(1, 2, false); }"
    found = keyed("meta.x : ternary; meta.y : ternary;", entries)
    assert [one.matches for one in found] == [
        (ir.MatchValue(1), ir.MatchMask(2, 3)),
        (ir.MatchAny(), ir.MatchAny()),
    ]
    assert [one.constant for one in found] == [False, True]
    assert found[1].action == ir.ActionData(1, (1, 2, False))


@pytest.mark.parametrize(
    ("entries", "priorities"),
    [
        ("const entries = { 1 : plain; 2 : plain; 3 : plain; }", [3, 2, 1]),
        ("entries = { priority = 7 : 1 : plain; priority = 30 : 2 : plain; }", [7, 30]),
        ("entries = { priority = 70 : 1 : plain; 2 : plain; 3 : plain; } priority_delta = 10;", [70, 60, 50]),
        (
            "entries = { priority=1 : 1 : plain; priority=5 : 2 : plain; } largest_priority_wins = false;",
            [5, 1],
        ),
        ("largest_priority_wins = false; entries = { 1 : plain; priority = 5 : 2 : plain; }", [5, 1]),
        ("const entries = { 1 : plain @priority(3); 2 : plain; 3 : plain @priority(1); }", [1, 2, 3]),
    ],
)
def test_the_highest_priority_wins(entries: str, priorities: list[int]) -> None:
    assert [one.priority for one in keyed("meta.x : ternary;", entries)] == priorities


def test_objects_beside_tables() -> None:
    before = """
        direct_counter(CounterType.packets) hits;
        direct_meter<bit<8>>(MeterType.bytes) rate;
        action_selector(HashAlgorithm.crc16, 64, 14) members;
    """
    text = """
        key = { meta.x : exact; meta.y : selector; }
        actions = { plain; }
        counters = hits; meters = rate; implementation = members; support_timeout = true; size = 99;
    """
    found, program = table(text, before)
    kinds = [
        program.externs[one].kind
        for one in (found.counters, found.meters, found.implementation)
        if one is not None
    ]
    assert kinds == ["direct_counter", "direct_meter", "action_selector"]
    assert (found.support_timeout, found.size) == (True, 99)
    assert program.externs[2].arguments == (("algorithm", "crc16"), ("size", 64), ("outputWidth", 14))


def test_an_object_made_in_its_property() -> None:
    found, program = table('actions = { plain; } @name("mine") implementation = action_profile(8);')
    assert found.implementation is not None
    assert program.externs[found.implementation].name == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key = { meta.x : exact; }", "table 't' has no actions"),
        ("key = { meta.x : nope; } actions = { plain; }", "there is no match kind 'nope'"),
        ("key = { 3 : exact; } actions = { plain; }", "a key needs a width"),
        ("key = { hdr.one : exact; } actions = { plain; }", "a key can't be of type one_t"),
        ("key = { meta.flag : lpm; } actions = { plain; }", "a key of type bool can't be matched by lpm"),
        (
            "key = { meta.x + 1 : exact; } actions = { plain; }",
            'this key needs a name for the control plane: @name("...")',
        ),
        ("actions = { plain; plain; }", "action 'plain' is in the table twice"),
        ("actions = { missing; }", "'missing' is not declared"),
        ("actions = { set; }", "argument 'target' of 'set' is missing"),
        ("actions = { set(meta.y); }", "bit<8> is wanted here, not bit<32>"),
        ("actions = { many(1); }", "'many' takes 0 arguments, not 1"),
        ("actions = { many; } default_action = many(1, 2);", "argument 'c' of 'many' is missing"),
        (
            "actions = { many; } default_action = many(1, 2, meta.flag);",
            "action data must be known when the program is loaded",
        ),
        (
            "actions = { many; } default_action = plain;",
            "action 'plain' is not among the actions of the table",
        ),
        (
            "actions = { @tableonly plain; } default_action = plain;",
            "this action is @tableonly, so that it can't be the default",
        ),
        ("actions = { plain; } junk = 3;", "this target has no table property 'junk'"),
        (
            "actions = { plain; } sizes = 3;",
            "this target has no table property 'sizes'; did you mean 'size'?",
        ),
        ("actions = { plain; } size = -1;", "'size' can't be negative"),
        ("actions = { plain; } size = 3; size = 4;", "the table has 'size' twice"),
        ("actions = { plain; } counters = meta;", "'counters' needs an object of type direct_counter"),
        (
            "actions = { set(meta.x); } default_action = set(meta.y[7:0], 3);",
            "this argument is another one in the table's list of actions",
        ),
    ],
)
def test_refused(text: str, message: str) -> None:
    assert complaint(local=f"{ACTIONS} table t {{ {text} }}") == message


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("{ (1, 2) : plain; }", "there are 1 keys, and 2 are matched here"),
        ("{ 1 &&& 2 : plain; }", "this can't be matched by exact"),
        ("{ _ : plain; }", "this can't be matched by exact"),
        ("{ true : plain; }", "bit<8> is wanted here, not bool"),
        ("{ meta.x : plain; }", "what is matched must be known when the program is loaded"),
        ("{ 1 : many(1, 2, true); }", "action 'many' is not among the actions of the table"),
        ("{ 1 : only; }", "this action is @defaultonly, so that no entry can have it"),
        ("{ priority = 3 : 1 : plain; }", "entries for exact and lpm keys alone have no priorities"),
    ],
)
def test_entries_refused(entries: str, message: str) -> None:
    text = f"key = {{ meta.x : exact; }} actions = {{ plain; @defaultonly only; }} entries = {entries}"
    assert complaint(local=f"{ACTIONS} action only() {{ }} table t {{ {text} }}") == message


def test_a_mask_that_is_no_prefix_is_no_lpm_entry() -> None:
    text = "key = { meta.x : lpm; } actions = { plain; } const entries = { 5 &&& 5 : plain; }"
    said = "the mask of an lpm key is a prefix: ones, then zeros"
    assert complaint(local=f"{ACTIONS} table t {{ {text} }}") == said


def test_entries_come_after_the_keys() -> None:
    text = "actions = { plain; } entries = { 1 : plain; } key = { meta.x : exact; }"
    assert "the keys of a table come before its entries" in str(
        refused(framed(local=f"{ACTIONS} table t {{ {text} }}"))
    )


def test_one_name_for_control_planes_is_one_thing() -> None:
    local = '@name("t") table a { actions = { NoAction; } } @name("t") table b { actions = { NoAction; } }'
    assert complaint(local=local) == (
        "table 'I.t' has the same name for control planes as the one at t.p4:15:22"
    )


@pytest.mark.parametrize("first", ['@name("t")', '@name(".I.t")'])
def test_actions_with_one_name_for_control_planes_are_refused(first: str) -> None:
    local = f'{first} action a() {{ meta.x = 1; }} @name("t") action b() {{ meta.x = 2; }}'
    said = "action 'I.t' has the same name for control planes as the one at t.p4:15:"
    assert complaint("a(); b();", local=local).startswith(said)
    assert load("a();", local=local).actions[0].name == "I.t"  # nothing calls b


@pytest.mark.parametrize(
    ("local", "body"),
    [
        ('@name("c") Sub() one; @name("c") Sub() two;', "one.apply(meta.x); two.apply(meta.x);"),
        ("", "Sub.apply(meta.x); Sub.apply(meta.x);"),
    ],
)
def test_instances_with_one_name_are_refused_as_p4c_does(local: str, body: str) -> None:
    types = "control Sub(inout bit<8> x) { action q() { x = 1; } apply { q(); } }"
    assert "of another instance of what declares it" in complaint(body, local=local, types=types)


def test_applied_tables() -> None:
    program = load(
        """
        if (t.apply().hit) { meta.x = 1; }
        meta.flag = t.apply().miss;
        switch (t.apply().action_run) { plain: { meta.x = 2; } many: set: { meta.x = 3; } default: { } }
        """,
        local=f"{ACTIONS} table t {{ actions = {{ plain; many; set(meta.x); }} }}",
    )
    hit, miss, switch = program.controls[program.pipeline.ingress].body
    assert isinstance(hit, ir.If)
    assert isinstance(hit.condition, ir.TableApply)
    assert isinstance(miss, ir.Assign)
    assert isinstance(miss.value, ir.Unary)
    assert isinstance(switch, ir.SwitchAction)
    assert [one.actions for one in switch.cases] == [(0,), (1, 2)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("t.apply(1);", "'apply' takes no arguments"),
        ("t.drop();", "there is no method 'drop' here, only 'apply'"),
        ("meta.x = t.apply();", "this call gives no value"),
        ("switch (t.apply().action_run) { nope: { } }", "'nope' is no action of the table"),
        ("switch (t.apply().action_run) { plain: { } plain: { } }", "there are two cases with this label"),
        (
            "meta.flag = t.apply().action_run;",
            "'action_run' can be used only as what a switch statement is about",
        ),
    ],
)
def test_applications_refused(body: str, message: str) -> None:
    assert complaint(body, local=f"{ACTIONS} table t {{ actions = {{ plain; }} }}") == message
