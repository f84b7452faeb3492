"""RE2's syntax, compared with Python's `re` where the two agree."""

from __future__ import annotations

import contextlib
import re
import tracemalloc
from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.regex import Regex
from treecast.middleware.model.regex_syntax import MAX_LENGTH, Dialect

_pieces = st.sampled_from(
    [
        "a",
        "b",
        "-",
        ".",
        "\\.",
        "[ab]",
        "[^a]",
        "[a-c_]",
        "\\d",
        "\\w",
        "\\W",
        "\\b",
        "\\B",
        "^",
        "$",
        "ab",
        "1",
    ]
)
_REPEATED = ("*", "+", "*?", "{1,}")
_BOUNDED = ("", "", "", "?", "{2}", "{0,2}", "{0}")
_MOST_CHOICES = 12


@st.composite
def _expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, int]:
    """An expression, and how often it may go on in two ways, for which Python's `re` needs time. Nothing that
    may is repeated without a bound, for which it needs exponential time.
    """
    parts, choices = [], 0
    for _ in range(draw(st.integers(0, 4))):
        inside = 0
        if depth and draw(st.booleans()):
            inner, inside = draw(_expressions(depth - 1))
            part = draw(st.sampled_from(["(", "(?:", "(?i:"])) + inner + ")"
        else:
            part = draw(_pieces)
        quantifier = ""
        if part not in ("^", "$", "\\b", "\\B"):
            quantifier = draw(st.sampled_from(_BOUNDED if inside else _BOUNDED + _REPEATED))
        parts.append(part + quantifier)
        choices += inside * (2 if "2" in quantifier else 1) + (quantifier not in ("", "{2}", "{0}"))
    return draw(st.sampled_from(["", "|"])).join(parts), choices


expressions = _expressions().filter(lambda drawn: drawn[1] <= _MOST_CHOICES).map(lambda drawn: drawn[0])


@given(expressions, st.lists(st.text("abAB-._1c", min_size=1, max_size=8), min_size=1, max_size=6))
def test_what_matches_is_what_python_matches(text: str, names: list[str]) -> None:
    ours, theirs = Regex(text), re.compile(text, re.ASCII)
    for name in names:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), (text, name)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("orders.*", ["orders", "orders-1"], ["my-orders"]),
        ("^orders|^bills-.*", ["orders", "bills-1"], ["orders-1", "xbills-1"]),
        ("(?i)orders", ["Orders", "ORDERS"], ["order"]),
        ("a(?i)b|c", ["ab", "aB", "c", "C"], ["A", "Ab"]),
        ("[[:alpha:]]+", ["abC"], ["a1", ""]),
        ("[[:^digit:]]x", ["ax"], ["1x"]),
        ("\\pL\\p{Lu}\\PN", ["aAx"], ["1Ax", "aax", "aA1"]),
        ("\\p{^Lu}", ["a"], ["A"]),
        ("\\Qa.b+\\Ec*", ["a.b+", "a.b+cc"], ["axb+"]),
        ("\\Qab\\E+", ["abbb"], ["abab"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("\\x41\\x{42}\\103", ["ABC"], ["abc"]),
        ("a{,2}", ["a{,2}"], ["a", "aa"]),
        ("a{x}", ["a{x}"], ["a"]),
        ("[]a]+", ["]a"], ["b"]),
        ("[^]a]", ["b"], ["]", "a"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("a||b", ["a", "", "b"], ["ab"]),
        ("", [""], ["a"]),
        ("()", [""], ["a"]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("\\Aab\\z", ["ab"], ["abb"]),
        ("(?s).(?-s:.)", ["ab"], ["a"]),
    ],
)
def test_expressions_of_re2(text: str, yes: list[str], no: list[str]) -> None:
    regex = Regex(text)
    assert [name for name in yes if not regex.matches(name)] == []
    assert [name for name in no if regex.matches(name)] == []


@pytest.mark.parametrize(
    "text",
    [
        "(", ")", "a)", "[a", "[b-a]", "[[:nope:]]", "*", "+a", "a**", "a*+", "a{2}{3}", "a{1001}", "a{3,2}",
        "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(a)\\1", "\\2", "\\", "\\y", "(?P<>a)", "(?P<a b>x)",
        "(?z)", "\\p{Nope}", "\\x4", "\\x{110000}", "(?", "((a{1000}){1000}){1000}", "(" * 300 + ")" * 300,
        "a" * (MAX_LENGTH + 1),
    ],
)  # fmt: skip
def test_what_is_no_re2_is_refused(text: str) -> None:
    with pytest.raises(TreecastError) as refused:
        Regex(text)
    assert refused.value.fault is Fault.INVALID_REGEX


@pytest.mark.parametrize("text", ["(a+)+b", "(a|aa)+b", "(a*)*b", "(.*.*.*.*)*b", "a?" * 60 + "a" * 60])
def test_what_backtracks_in_others_is_linear(text: str) -> None:
    assert not Regex(text).matches("a" * 249)


@pytest.mark.parametrize("text", ["(.?){1000}(.?){1000}x", "(?=(.?){1000}(.?){1000}x)a"])
def test_an_expression_that_takes_too_long_is_refused(text: str) -> None:
    regex = Regex(text, Dialect.PCRE)
    with pytest.raises(TreecastError) as refused:
        regex.matches("".join(chr(97 + number % 26) for number in range(249)))
    assert refused.value.fault is Fault.INVALID_REGEX


@pytest.mark.parametrize("text", ["((a?){780}){3}", "(a{32}){32}", "(a{2}|b{500}){3}", "((x{10}){10}){11}"])
def test_copies_of_a_part_are_bounded_over_all_repetitions(text: str) -> None:
    with pytest.raises(TreecastError):
        Regex(text)


def test_what_an_expression_remembers_is_bounded() -> None:
    regex = Regex("(.?){500}x")
    tracemalloc.start()
    for number in range(24):  # 320 kB, if it forgot nothing
        with contextlib.suppress(TreecastError):
            regex.matches(f"{number:x}" * 60)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 200_000


def test_what_was_forgotten_is_found_again() -> None:
    regex = Regex("[a-z]*(a|b)[a-z]{12}")
    names = ["".join(letters) for letters in product("ab", repeat=13)]
    assert all(regex.matches(name) for name in names[:4000])


# --- search, and look-arounds


@st.composite
def _looking(draw: st.DrawFn) -> str:
    """An expression with a look-around or two. Python's look-behind takes fixed widths only."""
    parts = draw(st.lists(_pieces, min_size=0, max_size=2))
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            part = draw(st.sampled_from(["(?=", "(?!"])) + draw(expressions) + ")"
        else:
            part = (
                draw(st.sampled_from(["(?<=", "(?<!"]))
                + draw(st.sampled_from(["a", "ab", "[^a]", "-."]))
                + ")"
            )
        parts.insert(draw(st.integers(0, len(parts))), part)
    return "".join(parts)


names_of = st.lists(st.text("abAB-._1c", min_size=1, max_size=8), min_size=1, max_size=6)


@given(st.one_of(expressions, _looking()), names_of)
def test_what_is_found_is_what_python_finds(text: str, names: list[str]) -> None:
    ours, theirs = Regex(text, Dialect.PCRE), re.compile(text, re.ASCII)
    for name in names:
        assert ours.found_in(name) == (theirs.search(name) is not None), (text, name)
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), (text, name)


@given(expressions, names_of)
def test_case_can_be_ignored(text: str, names: list[str]) -> None:
    ours, theirs = Regex(text, Dialect.PCRE, ignore_case=True), re.compile(text, re.ASCII | re.IGNORECASE)
    for name in names:
        assert ours.found_in(name) == (theirs.search(name) is not None), (text, name)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("^(?!amq\\.).*", ["orders", "amqp", "x.amq.y"], ["amq.topic", "amq."]),
        ("^orders(?=\\.eu$)", ["orders.eu"], ["orders.eu.x", "orders"]),
        ("(?<!dead)-letters$", ["live-letters"], ["dead-letters"]),
        ("^((?!\\.tmp$).)*$", ["a.b", "a.tmp.b"], ["a.tmp"]),
        ("^(?=.*a)(?=.*b)(?!.*c)", ["xab", "ba"], ["a", "abc"]),
        ("(?=a(?!b))a", ["ac", "aba"], ["ab"]),
        ("", ["", "a"], []),
        (".*", ["", "a"], []),
        ("^$", [""], ["a"]),
        ("é", ["café"], ["cafe"]),
    ],
)
def test_what_users_of_rabbitmq_write(text: str, yes: list[str], no: list[str]) -> None:
    regex = Regex(text, Dialect.PCRE)
    assert [name for name in yes if not regex.found_in(name)] == []
    assert [name for name in no if regex.found_in(name)] == []


@pytest.mark.parametrize("text", ["(?>a)", "(a)\\1", "a*+", "(?<=a", "(?R)", "\\K", "(?=a)" * 33])
def test_what_takes_more_than_linear_time_is_refused(text: str) -> None:
    with pytest.raises(TreecastError) as refused:
        Regex(text, Dialect.PCRE)
    assert refused.value.fault is Fault.INVALID_REGEX


@pytest.mark.parametrize("text", ["(a|aa)+$x", "^(a|aa)+$", "(?=(a+)+b)a", "(?<!(a|aa)+b)x", "(?!(a*)*b)c"])
def test_search_is_linear_too(text: str) -> None:
    regex = Regex(text, Dialect.PCRE)
    regex.found_in("a" * 255)
    assert regex.work < 50 * 255


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        Regex(text).matches("name-1")
    except TreecastError as error:
        if error.fault is not Fault.INVALID_REGEX:
            raise
