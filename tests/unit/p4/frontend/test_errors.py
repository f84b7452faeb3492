"""The form of errors: file, line, column, the line itself, carets; several at once; never a trace."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.p4.frontend.programs import ROUTER, complaint, framed, refused

from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.source import P4Error


def test_an_error_shows_the_line_and_the_place() -> None:
    text = ROUTER.replace("hdr.ipv4.ttl - 1", "hdr.ipv4.tll - 1")
    assert str(refused(text)) == (
        "t.p4:70:33: error: there is no field 'tll' in header 'ipv4_t'; did you mean 'ttl'?\n"
        "        hdr.ipv4.ttl = hdr.ipv4.tll - 1;\n"
        "                                ^^^"
    )


def test_tabs_stay_under_tabs() -> None:
    text = ROUTER.replace("        hdr.ipv4.ttl = hdr", "\t\thdr.ipv4.ttl =\thrd")
    assert str(refused(text)).endswith("\n\t\thdr.ipv4.ttl =\thrd.ipv4.ttl - 1;\n\t\t              \t^^^")


def test_a_syntax_error_says_what_was_expected() -> None:
    text = ROUTER.replace("hdr.ethernet.dstAddr = dstAddr;", "hdr.ethernet.dstAddr = dstAddr")
    assert str(refused(text)) == (
        "t.p4:70:9: error: ';' is expected after a statement, not 'hdr'\n"
        "        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;\n"
        "        ^^^"
    )


def test_several_errors_are_reported_in_one_run() -> None:
    text = framed("meta.x = 1 + true;\nmeta.y = nothing;\nmeta.x = meta.y;\nmeta.y = 3;")
    messages = [one.message for one in refused(text).diagnostics]
    assert messages == [
        "'+' does not work on bool",
        "'nothing' is not declared",
        "bit<8> is wanted here, not bit<32>",
    ]


def test_syntax_errors_in_two_declarations_are_both_reported() -> None:
    error = refused("header h { bit<8 x; }\nstruct s { bit<8> a }\nconst bit<8> c = 1;\n")
    assert [one.span.line for one in error.diagnostics] == [1, 2]


def test_lines_are_counted_through_comments_strings_and_continued_lines() -> None:
    text = '/* a\n b */ @doc("one\n two") \\\n const bit<8> c = x;\n'
    (first, *_) = refused(text).diagnostics
    assert str(first.span) == "t.p4:4:19"


def test_what_was_refused_is_not_complained_about_again() -> None:
    assert complaint("nowhere v; v = 1; meta.x = v;") == "'nowhere' is not declared"


def test_a_control_instantiated_twice_gives_its_error_once() -> None:
    types = "control Sub(inout bit<8> v) { apply { v = 1 + true; } }"
    assert complaint("a.apply(meta.x); b.apply(meta.x);", types=types, local="Sub() a; Sub() b;") == (
        "'+' does not work on bool"
    )


@pytest.mark.parametrize("twice", ["Sub.apply(meta.x); Sub.apply(meta.x);", "act(meta.x); act(meta.x);"])
def test_what_is_refused_by_its_parameters_does_not_contain_itself(twice: str) -> None:
    types = "control Sub(inout late_t x) { apply { } } action act(inout late_t x) { }"
    messages = {one.message for one in refused(framed(twice, types=types)).diagnostics}
    assert messages == {"'late_t' is not declared"}


def test_what_main_does_not_reach_is_checked_too() -> None:
    types = "control Unused(inout bit<8> v)(bit<8> n) { apply { v = n + true; } }"
    assert complaint(types=types) == "'+' does not work on bool"
    assert complaint(types="bit<8> f() { return true; }") == "bit<8> is wanted here, not bool"
    assert complaint(types="action a() { x = 1; }") == "'x' is not declared"


def test_an_error_in_an_included_file_is_shown_there() -> None:
    with pytest.raises(P4Error) as caught:
        load_program(
            '#include "h.p4"\n' + ROUTER, "t.p4", lambda name, _: (name, "header h {\n  bite x;\n}\n")
        )
    assert str(caught.value) == "h.p4:2:3: error: 'bite' is not declared\n  bite x;\n  ^^^^"


def test_what_came_out_of_a_macro_stands_where_it_was_used() -> None:
    error = refused("#define BROKEN nothing + 1\n" + framed("meta.x = BROKEN;"))
    assert str(error).endswith("        meta.x = BROKEN;\n                 ^^^^^^")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "const bit<8> c = " + "(" * 3000 + "1" + ")" * 3000 + ";",
        "const bit<8> c = " + "-" * 3000 + "1;",
        "const bit<8> c = " + "1 + " * 5000 + "1;",
        "const bit<8> c = " + "true ? 1 : " * 3000 + "1;",
        "control c() { apply " + "{" * 3000 + "}" * 3000 + " }",
        "control c() { apply { " + "if (true) " * 3000 + "; } }",
        "typedef " + "tuple<" * 3000 + "bit<8>" + ">" * 3000 + " t;",
        "const int c = 1 << 100000000000;",
        "const int c = 1 << 100000 << 100000 << 100000;",
        "header h { bit<99999999999> x; }",
        "@a(" * 3000,
        '"',
        "/*",
        "\x00\x01",
    ],
)
def test_absurd_texts_are_refused_not_crashed_on(text: str) -> None:
    refused(text)


@settings(max_examples=60)
@given(st.data())
def test_any_damage_gives_a_program_or_a_p4error(data: st.DataObject) -> None:
    """Deleting, doubling or swapping words of a good program never raises another exception."""
    words = ROUTER.split(" ")
    place = data.draw(st.integers(0, len(words) - 1))
    other = data.draw(st.integers(0, len(words) - 1))
    how = data.draw(st.sampled_from(["delete", "double", "swap"]))
    if how == "delete":
        del words[place]
    elif how == "double":
        words.insert(place, words[other])
    else:
        words[place], words[other] = words[other], words[place]
    error = outcome(" ".join(words))
    assert error is None or "^" in str(error) or "main" in str(error)


def outcome(text: str) -> P4Error | None:
    """Returns the error with which a text is refused, or None."""
    try:
        load_program(text, "t.p4")
    except P4Error as error:
        return error
    return None
