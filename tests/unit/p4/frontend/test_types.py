"""Declarations of types: their representation and their errors."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.p4.frontend.programs import complaint, framed, ingress, load

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.ir.invariants import check_invariants
from treecast.middleware.dataplane.p4.source import P4Error


def field(program: ir.Program, name: str) -> ir.Field:
    """Returns a field of the metadata."""
    parser = program.parsers[program.pipeline.parser]
    metadata = parser.parameters[1].type
    assert isinstance(metadata, ir.StructType)
    return next(one for one in metadata.fields if one.name == name)


@pytest.mark.parametrize(
    ("written", "type_"),
    [
        ("bit", ir.Bits(1)),
        ("bit<16>", ir.Bits(16)),
        ("int<7>", ir.Bits(7, True)),
        ("bit<(8 * 2 + 1)>", ir.Bits(17)),
        ("bit<W>", ir.Bits(12)),
        ("bool", ir.Bool()),
        ("error", ir.ErrorCode()),
        ("word_t", ir.Bits(32)),
        ("Color", ir.Enum("Color", ("red", "green"))),
        ("Kind", ir.Bits(8)),
        ("Port", ir.Bits(9)),
        ("tuple<bit<8>, bool>", ir.TupleType((ir.Bits(8), ir.Bool()))),
        ("bit<((W > 4 ? 2 : 1) << 2)>", ir.Bits(8)),
    ],
)
def test_types_of_fields(written: str, type_: ir.Type) -> None:
    types = """
        const int W = 12;
        typedef bit<32> word_t;
        enum Color { red, green }
        enum bit<8> Kind { a = 1 }
        type bit<9> Port;
    """
    assert field(load(types=types, fields=f"{written} f;"), "f").type == type_


def test_new_types_and_serializable_enums_keep_their_names() -> None:
    types = '@p4runtime_translation("", 32) type bit<9> Port; enum bit<8> Kind { a = 1, b = 5 }'
    program = load(types=types, fields="Port p; Kind k;")
    assert (field(program, "p").named, field(program, "k").named) == ("Port", "Kind")
    (port,) = program.new_types
    assert (port.name, port.original) == ("Port", ir.Bits(9))
    mark = ir.find(port.annotations, "p4runtime_translation")
    assert mark is not None
    assert mark.arguments == ("", 32)
    kind = next(one for one in program.enums if one.name == "Kind")
    assert (kind.members, kind.values, kind.representation) == (("a", "b"), (1, 5), ir.Bits(8))


def test_errors_are_numbered_from_the_core_librarys() -> None:
    program = load("if (sm.parser_error == error.Mine) { }", types="error { Mine, Other }")
    assert program.errors[:3] == ("NoError", "PacketTooShort", "NoMatch")
    assert program.errors[-2:] == ("Mine", "Other")


def test_generic_structs_are_there_once_per_binding() -> None:
    types = "struct pair_t<A, B> { A first; B second; } typedef pair_t<bit<8>, bool> small_t;"
    program = load(types=types, fields="pair_t<bit<8>, bool> p; small_t q; pair_t<bool, bool> r;")
    first, second, third = (field(program, name).type for name in "pqr")
    assert first == second != third
    assert isinstance(first, ir.StructType)
    assert (first.name, [one.type for one in first.fields]) == (
        "pair_t<bit<8>, bool>",
        [ir.Bits(8), ir.Bool()],
    )


def test_stacks_of_both_writings() -> None:
    program = load(types="struct S { one_t[2] a; one_t b[3]; }", headers="S s;")
    struct = next(one for one in program.structs if one.name == "S")
    assert [one.type.size for one in struct.fields if isinstance(one.type, ir.StackType)] == [2, 3]


def test_values_of_structs_lists_and_defaults() -> None:
    types = "struct pair_t { bit<8> x; bool y; }"
    body = """
        pair_t p = {1, true};
        pair_t q = {y = false, x = 2};
        pair_t r = {x = 3, ...};
        pair_t s = ...;
        one_t h = {1, 2, 3, 4};
        one_t i = {#};
        tuple<bit<8>, bit<16>> t = {5, 6};
        p = (pair_t) {7, false};
        hdr.one = {1, 2, 3, ...};
    """
    found = []
    for one in ingress(body, types=types):
        assert isinstance(one, ir.Declare | ir.Assign)
        value = one.value
        if isinstance(value, ir.StructValue | ir.HeaderValue):
            literals = [part.value for part in value.elements if isinstance(part, ir.Literal)]
            found.append((type(value).__name__, literals))
        else:
            found.append((type(value).__name__, []))
    assert found == [
        ("StructValue", [1, True]),
        ("StructValue", [2, False]),
        ("StructValue", [3, False]),
        ("StructValue", [0, False]),
        ("HeaderValue", [1, 2, 3, 4]),
        ("Default", []),
        ("StructValue", [5, 6]),
        ("StructValue", [7, False]),
        ("HeaderValue", [1, 2, 3, 0]),
    ]


def test_annotations_are_kept() -> None:
    types = """
        const bit<8> N = 4;
        @controller_header("packet_in") @brief("to the controller") @doc[a = 1 + N, b = "x"] @flag
        @list[N * 2, "x" ++ "y", N == 5, -1]
        header up_t { @id(3) bit<16> port; }
    """
    program = load(types=types)
    header = next(one for one in program.headers if one.name == "up_t")
    assert [(one.name, one.arguments, one.named) for one in header.annotations] == [
        ("controller_header", ("packet_in",), ()),
        ("brief", ("to the controller",), ()),
        ("doc", (), (("a", 5), ("b", "x"))),
        ("flag", (), ()),
        ("list", (8, "xy", False, -1), ()),
    ]
    assert header.fields[0].annotations[0].arguments == (3,)


def test_errors_declared_before_core_are_numbered_behind_its_own() -> None:
    """A parser starts with 0, which must be NoError."""
    program = load_program("error { Early, Second }\n" + framed(types="error { Late }"), "t.p4")
    assert program.errors[:3] == ("NoError", "PacketTooShort", "NoMatch")
    assert program.errors[7:] == ("Early", "Second", "Late")


@pytest.mark.parametrize("width", ["bit<8>", "bit<5 + 3>", "bit<N>", "8", "5 + 3", "N"])
def test_the_width_that_controllers_see_may_be_an_expression(width: str) -> None:
    types = f'const int N = 8; @p4runtime_translation("u", {width}) type bit<16> T;'
    program = load(types=types, fields="T f;")
    (new_type,) = program.new_types
    mark = ir.find(new_type.annotations, "p4runtime_translation")
    assert mark is not None
    assert mark.arguments == ("u", 8)


@pytest.mark.parametrize("width", ["bit<X>", "bit<0>", "bit<-1>", "bit<8", "int<8>", "true", "0"])
def test_what_is_no_width_is_refused(width: str) -> None:
    with pytest.raises(P4Error, match="is no width"):
        load(types=f'@p4runtime_translation("u", {width}) type bit<16> T;', fields="T f;")


@pytest.mark.parametrize("number", ["LIST", "LIST + 1 - 1", "Lists.A", "(LIST)", "7", "0x7", "8w7"])
def test_field_lists_may_be_constants(number: str) -> None:
    """Anything but a plain number was ignored, and packets lost values silently."""
    declared = "const bit<8> LIST = 7; enum bit<8> Lists { A = 7 }"
    program = load(types=declared, fields=f"@field_list({number}) bit<8> f;")
    assert program.field_lists == {7: (("f",),)}


@pytest.mark.parametrize("number", ["UNKNOWN", "true", '"text"', "Lists.B", ""])
def test_field_lists_that_name_no_number_are_refused(number: str) -> None:
    with pytest.raises(P4Error, match="@field_list"):
        load(types="enum bit<8> Lists { A = 7 }", fields=f"@field_list({number}) bit<8> f;")


def test_field_lists_go_into_structs() -> None:
    types = "struct inner_t { @field_list(2, 3) bit<8> a; bit<8> b; }"
    program = load(types=types, fields="@field_list(1) bit<8> f; inner_t i;")
    assert program.field_lists == {1: (("f",),), 2: (("i", "a"),), 3: (("i", "a"),)}


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ("header h { bit<8> a; bit<8> a; }", "there are two fields 'a' in header 'h'"),
        ("header h { varbit<8> a; varbit<8> b; }", "header 'h' has more than one varbit field"),
        ("header h { one_t a; }", "field 'a' of a header can't be of type one_t"),
        ("header h { string a; }", "field 'a' of a header can't be of type string"),
        ("struct s { int a; }", "field 'a' of a struct can't be of type int"),
        ("header_union u { bit<8> a; }", "field 'a' of a header union can't be of type bit<8>"),
        ("struct s { bit<8>[3] a; }", "only headers and header unions make stacks; bit<8> is neither"),
        ("struct s { one_t[0] a; }", "a stack of 0 elements is not possible"),
        ("struct s { bit<-1> a; }", "a width of -1 is not possible"),
        ("struct s { bit<true> a; }", "a width must be a number that is known when the program is loaded"),
        ("struct s { undefined_t a; }", "'undefined_t' is not declared"),
        ("enum E { a, a }", "there are two members 'a' in enum 'E'"),
        ("enum E { a = 1 }", "enum 'E' has no representation, so its members have no values"),
        ("enum bit<8> E { a }", "member 'a' of enum 'E' needs a value"),
        ("enum bool E { a = true }", "an enum is represented by bit<w> or int<w>, not bool"),
        ("type one_t T;", "a new type is made from bit<w>, int<w> or bool, not from one_t"),
        ("struct one_t { }", "'one_t' is declared already, at t.p4:3:8"),
        ("error { NoError }", "error 'NoError' is declared already"),
        ("struct g<T> { T a; } struct s { g a; }", "'g' needs 1 type argument"),
        ("struct g<T> { T a; } struct s { g<bit, bit> a; }", "'g' takes 1 type argument, not 2"),
        ("struct s { one_t<bit> a; }", "'one_t' takes no type arguments"),
        ("const bit<8> c = 1; struct s { c a; }", "'c' is not a type"),
        ("control c<T>(in T x) { apply { } }", "'c' has a body, so that it can't have type parameters"),
        ("extern Mine { Mine(); } Mine() mine;", "this target has no extern 'Mine'"),
        ("package Other(); Other() other;", "only one package is run, and its name is 'main'"),
        ("bit<8> f() { f(); return 1; }", "function 'f' calls itself"),
    ],
)
def test_refused(types: str, message: str) -> None:
    assert complaint(types=types) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("one_t h = {1, 2};", "one_t has 4 elements, not 2"),
        ("one_t h = {a = 1};", "field 's' of one_t is not given"),
        ("one_t h = {a = 1, z = 2, ...};", "there is no field 'z' in one_t"),
        ("one_t h = {a = 1, a = 2, ...};", "field 'a' is given twice"),
        ("bit<8> h = {#};", "'{#}' is an invalid header; no header is wanted here"),
        ("meta.x = {1};", "bit<8> is wanted here, not tuple<int>"),
        ("hdr.any = {1};", "any_t is wanted here, not tuple<int>"),
        ('string s = "x";', "a variable can't be of type string"),
        ("int i = 3;", "a variable can't be of type int"),
        ("register<bit<8>> r;", "register<bit<8>> needs constructor arguments: r is no variable"),
    ],
)
def test_values_refused(body: str, message: str) -> None:
    assert complaint(body) == message


def test_the_invariants_do_fail() -> None:
    """The check notices a program whose parts do not fit, which the other tests rely on."""
    program = load("meta.x = 1;")
    check_invariants(program)
    place = program.pipeline.ingress
    (assign,) = program.controls[place].body
    assert isinstance(assign, ir.Assign)
    wide = ir.Literal(1, ir.Bits(9), assign.span)
    broken = ir.Assign(assign.target, wide, assign.span)
    control = program.controls[place]
    changed = ir.Control(
        control.name, control.type_name, control.parameters, (broken,), control.annotations, control.span
    )
    controls = (*program.controls[:place], changed, *program.controls[place + 1 :])
    with pytest.raises(AssertionError, match="the types of both sides"):
        check_invariants(ir_replace(program, controls))


def ir_replace(program: ir.Program, controls: tuple[ir.Control, ...]) -> ir.Program:
    return msgspec.structs.replace(program, controls=controls)
