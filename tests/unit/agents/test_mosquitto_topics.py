"""The rules of topics as in mosquitto.conf: what is valid, what matches, and how topics are mapped."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.mosquitto.topics import IN, OUT, BadRule, Rule, TopicMap, matches

LEVELS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.lists(st.sampled_from(["a", "b", "", "+"]), min_size=1, max_size=3).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"])])
)
PREFIXES = st.sampled_from(["", "l/", "x/y/", "p"])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a/#", Rule("a/#", "out", 0)),
        ("a/# both 1", Rule("a/#", "both", 1)),
        ('+ in 2 "" r/', Rule("+", "in", 2, "", "r/")),
        ('"" out 1 local remote', Rule("", "out", 1, "local", "remote")),
    ],
)
def test_rules_are_read_and_written(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule
    assert Rule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a rule is"),
        ("a b c d e f", "a rule is"),
        ("a sideways", "none of out, in, both"),
        ("a out 3", "QoS is"),
        ('"" out 0 local', "needs a local and a remote prefix"),
        ("a out 0 l+/", "wildcard"),
        ("a/#/b", "# is not the last level"),
        ("$SYS/#", "begin with \\$"),
    ],
)
def test_rules_that_cannot_be_used(text: str, why: str) -> None:
    with pytest.raises(BadRule, match=why):
        Rule.parse(text)


def reference(filter: str, topic: str) -> bool:
    """MQTT 5.0, section 4.7, as a regular expression."""
    if topic.startswith("$") and filter[:1] in ("+", "#"):
        return False
    if filter == "#":
        return True
    whole = filter.removesuffix("/#")
    levels = ["[^/]*" if level == "+" else re.escape(level) for level in whole.split("/")]
    below = "(/.*)?" if whole != filter else ""
    return re.fullmatch("/".join(levels) + below, topic) is not None


@given(FILTERS, TOPICS)
def test_filters_match_as_the_standard_says(filter: str, topic: str) -> None:
    assert matches(filter.encode().split(b"/"), topic.encode().split(b"/")) == reference(filter, topic)


@given(FILTERS, PREFIXES, PREFIXES, TOPICS)
def test_a_topic_comes_back_from_where_it_was_mapped_to(
    pattern: str, local: str, remote: str, topic: str
) -> None:
    rule = Rule(pattern, "both", 1, local, remote)
    out, back = TopicMap([rule], OUT), TopicMap([rule], IN)
    assert list(out.filters) == [(local + pattern).encode()]
    there = out.get(topic.encode())
    if reference(local + pattern, topic) and len(topic) >= len(local):
        assert there == (remote + topic[len(local) :]).encode()
        if reference(remote + pattern, there.decode()):
            assert back.get(there) == topic.encode()
    else:
        assert there == b""


def test_the_first_rule_that_matches_counts_and_the_highest_qos_of_a_filter() -> None:
    rules = [Rule("a", "out", 0, "", "first/"), Rule("#", "out", 1, "", "second/"), Rule("a", "out", 2)]
    made = TopicMap(rules, OUT)
    assert (made.get(b"a"), made.get(b"b"), made.plain) == (b"first/a", b"second/b", False)
    assert made.filters == {b"a": 2, b"#": 1}
    assert TopicMap(rules, IN).filters == {}
    assert TopicMap(rules, IN).plain


def test_a_topic_that_would_be_too_long_has_none() -> None:
    made = TopicMap([Rule("#", "out", 0, "", "r" * 60_000)], OUT)
    assert made.get(b"x" * 6_000) == b""
