"""The preprocessor: its output, the positions of its words, and no input that makes it run forever."""

from __future__ import annotations

import pytest

from treecast.middleware.dataplane.p4 import preprocess
from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.preprocess import MOST_INCLUDES, Preprocessor
from treecast.middleware.dataplane.p4.source import P4Error


def run(text: str, files: dict[str, str] | None = None, **defines: str) -> tuple[list[str], list[str]]:
    """Returns the resulting words, without the end, and the messages."""
    known = files or {}
    reader = Preprocessor(lambda name, _: (name, known[name]) if name in known else None, defines)
    found = reader.run(text, "t.p4")
    return [token.text for token in found[:-1]], [
        f"{one.span.file}:{one.span.line}:{one.span.column} {one.message}" for one in reader.problems
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#define A 1\nA + A", "1 + 1"),
        ("#define A B\n#define B A\nA B", "A B"),
        ("#define F(x, y) x - y\nF(1, (2, 3)) F", "1 - ( 2 , 3 ) F"),
        ("#define F() 7\nF()", "7"),
        ("#define F(x) x\n#define A F\nA(3)", "3"),
        ("#define F(x) F(x) + 1\nF(2)", "F ( 2 ) + 1"),
        ("#define ADD(a) + a\n#define TWICE(a) ADD(a) ADD(a)\nTWICE(4)", "+ 4 + 4"),
        ("#define A (1)\nA", "( 1 )"),
        ("#define A 1 \\\n  + 2\nA", "1 + 2"),
        ("#define CAT(a, b) a ## b\nCAT(x, 1)", "x1"),
        ("#define TEXT(a) #a\nTEXT(x y)", '"x y"'),
        ("#define A 1\n#undef A\nA", "A"),
        ("a // b\n/* c\n d */ e", "a e"),
        ("__LINE__\n\n__LINE__", "1 3"),
        ("__FILE__", '"t.p4"'),
        ("#pragma once\n#line 7\nx", "x"),
        ("8w0xFF 4s1 0b1_0", "8w0xFF 4s1 0b1_0"),
    ],
)
def test_macros(text: str, words: str) -> None:
    assert run(text) == (words.split(" ") if words != '"x y"' else ['"x y"'], [])


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("1", True),
        ("0x10 == 16 && 010 == 10", True),
        ("defined A && !defined(B)", True),
        ("A > 2", True),
        ("UNKNOWN", False),
        ("A - 3 ? 1 : 0", False),
        ("1 << 4 == 16", True),
        ("-1 < 0", True),
        ("7 / 2 == 3 && 7 % 2 == 1", True),
        ("(1 | 6) == 7 && (6 & 3) == 2 && (6 ^ 3) == 5", True),
        ("~0 == -1", True),
        ("16 >> 2 == 4", True),
        ("TWO(A) == 6", True),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    text = f"#define A 3\n#define TWO(x) (2 * (x))\n#if {condition}\nyes\n#else\nno\n#endif"
    assert run(text) == (["yes" if holds else "no"], [])


def test_branches_are_read_once() -> None:
    text = "#if 0\na\n#elif 1\nb\n#elif 1\nc\n#else\nd\n#endif\n#ifdef X\ne\n#endif\n#ifndef X\nf\n#endif"
    assert run(text) == (["b", "f"], [])


def test_what_is_left_out_is_not_looked_at() -> None:
    text = "#if 0\n#error no\n#include <nothing>\n it's ` not P4\n#if 1\n#else\n#endif\n#endif\nx"
    assert run(text) == (["x"], [])


def test_includes_stand_in_their_files() -> None:
    reader = Preprocessor(lambda name, _: (f"dir/{name}", "#define A 1\nb"), {})
    first, second, _ = reader.run('#include "x.p4"\nA', "t.p4")
    assert (str(first.span), first.text) == ("dir/x.p4:2:1", "b")
    assert (str(second.span), second.text) == ("t.p4:2:1", "1")


def test_defines_from_outside_and_what_p4c_defines() -> None:
    assert run("A __TARGET_BMV2__", A="2 + 3") == (["2", "+", "3", "1"], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#include <none.p4>", "t.p4:1:10 there is no file 'none.p4' to include"),
        ('#include "none.p4"', "t.p4:1:10 there is no file 'none.p4' to include"),
        ("#error not for us", "t.p4:1:2 #error not for us"),
        ("#if 1", "t.p4:1:2 this condition has no #endif"),
        ("#endif", "t.p4:1:2 #endif without #if"),
        ("#if (1\n#endif", "t.p4:1:2 in this condition: a bracket is not closed"),
        ("#if 1 / 0\n#endif", "t.p4:1:2 in this condition: division by zero"),
        ("#if\n#endif", "t.p4:1:2 in this condition: there is no expression"),
        ("#wrong", "t.p4:1:2 there is no preprocessor directive #wrong"),
        ("#define F(a) a\nF(1, 2)", "t.p4:2:1 macro 'F' takes 1 arguments, not 2"),
        ("#define F(a) a\nF(1", "t.p4:2:1 the arguments of macro 'F' have no closing bracket"),
        ("#define", "t.p4:1:2 #define needs a name"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    assert run(text)[1] == [message]


def test_a_file_that_includes_itself_ends() -> None:
    _, problems = run('#include "x"', {"x": '#include "x"'})
    assert problems == [f"x:1:10 files include each other more than {MOST_INCLUDES} deep"]


def test_macros_that_double_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "MOST_TOKENS", 20_000)
    lines = ["#define A0 x x"] + [f"#define A{n} A{n - 1} A{n - 1}" for n in range(1, 40)]
    _, problems = run("\n".join([*lines, "A39"]))
    assert problems == ["t.p4:41:1 the program has more than 20000 words after its macros are expanded"]


def test_errors_of_the_preprocessor_refuse_the_program() -> None:
    with pytest.raises(P4Error, match=r"there is no file 'mine\.p4' to include"):
        load_program('#include "mine.p4"\n', "t.p4")
