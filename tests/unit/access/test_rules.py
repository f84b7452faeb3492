"""Rules: Kafka's documented cases as a table, and random rule sets against a scan of all rules."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.broker.access import (
    CLUSTER,
    Content,
    Granted,
    Identities,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    Rule,
    Rules,
    User,
)
from treecast.middleware.model.principal import ANONYMOUS, Principal, PrincipalKind
from treecast.shims.mqtt.rights import may_read

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
ALICE = Principal("alice", address="10.0.0.7")


def rule(
    permission: Permission = ALLOW,
    operation: Operation | None = Operation.READ,
    name: str = "orders",
    *,
    pattern: Pattern = LITERAL,
    kind: ResourceKind = TOPIC,
    user: str = "alice",
    address: str = "*",
) -> Rule:
    return Rule(user, permission, operation, kind, pattern, name, address)


# rules, the operation that is asked for, the topic, whether it is allowed
CASES = {
    "no rule": ([], Operation.READ, "orders", False),
    "a literal rule": ([rule()], Operation.READ, "orders", True),
    "another name": ([rule()], Operation.READ, "orders.eu", False),
    "a prefix": ([rule(name="orders.", pattern=PREFIXED)], Operation.READ, "orders.eu", True),
    "the prefix itself": ([rule(name="orders", pattern=PREFIXED)], Operation.READ, "orders", True),
    "shorter than the prefix": ([rule(name="orders.", pattern=PREFIXED)], Operation.READ, "orders", False),
    "every name": ([rule(name="*")], Operation.READ, "bills", True),
    "a prefix of * is no wildcard": ([rule(name="*", pattern=PREFIXED)], Operation.READ, "bills", False),
    "all operations": ([rule(operation=None)], Operation.ALTER, "orders", True),
    "reading implies describing": ([rule()], Operation.DESCRIBE, "orders", True),
    "writing implies describing": ([rule(operation=Operation.WRITE)], Operation.DESCRIBE, "orders", True),
    "deleting implies describing": ([rule(operation=Operation.DELETE)], Operation.DESCRIBE, "orders", True),
    "altering implies describing": ([rule(operation=Operation.ALTER)], Operation.DESCRIBE, "orders", True),
    "creating does not": ([rule(operation=Operation.CREATE)], Operation.DESCRIBE, "orders", False),
    "describing does not imply reading": (
        [rule(operation=Operation.DESCRIBE)],
        Operation.READ,
        "orders",
        False,
    ),
    "altering configs implies describing them": (
        [rule(operation=Operation.ALTER_CONFIGS)],
        Operation.DESCRIBE_CONFIGS,
        "orders",
        True,
    ),
    "deny wins": ([rule(), rule(DENY)], Operation.READ, "orders", False),
    "deny by prefix wins": (
        [rule(), rule(DENY, name="ord", pattern=PREFIXED)],
        Operation.READ,
        "orders",
        False,
    ),
    "deny of all operations wins": ([rule(), rule(DENY, None)], Operation.READ, "orders", False),
    "denying reading does not deny describing": (
        [rule(operation=Operation.DESCRIBE), rule(DENY)],
        Operation.DESCRIBE,
        "orders",
        True,
    ),
    "another user": ([rule(user="bob")], Operation.READ, "orders", False),
    "everybody": ([rule(user="*")], Operation.READ, "orders", True),
    "everybody but alice": ([rule(user="*"), rule(DENY)], Operation.READ, "orders", False),
    "from her address": ([rule(address="10.0.0.7")], Operation.READ, "orders", True),
    "from another address": ([rule(address="10.0.0.8")], Operation.READ, "orders", False),
    "another kind": ([rule(kind=GROUP)], Operation.READ, "orders", False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_kafkas_rules(case: tuple[list[Rule], Operation, str, bool]) -> None:
    rules, operation, name, allowed = case
    assert Rules(rules).decide(ALICE, operation, TOPIC, name).allowed is allowed


def test_a_decision_names_its_rule() -> None:
    rules = Rules([rule(name="orders.", pattern=PREFIXED), rule(DENY, name="orders.eu", address="10.0.0.7")])
    assert rules.decide(ALICE, Operation.READ, TOPIC, "orders.us").rule == (
        "allow alice read on topic prefixed 'orders.'"
    )
    assert rules.decide(ALICE, Operation.READ, TOPIC, "orders.eu").rule == (
        "deny alice read on topic literal 'orders.eu' from 10.0.0.7"
    )
    assert rules.decide(ALICE, Operation.WRITE, TOPIC, "orders.eu").rule == "no rule allows it"


def test_hosts_have_no_rules() -> None:
    host = Principal("alice", PrincipalKind.HOST)
    assert not Rules([rule(user="*")]).decide(host, Operation.READ, TOPIC, "orders").allowed
    assert Rules([rule(user="*")]).decide(ANONYMOUS, Operation.READ, TOPIC, "orders").allowed


# --- random rule sets against a plain reference

NAMES = st.text("ab.", min_size=1, max_size=4)
OPERATIONS = [*Operation]
RULES = st.builds(
    Rule,
    user=st.sampled_from(["alice", "bob", "*"]),
    permission=st.sampled_from([ALLOW, ALLOW, DENY]),
    operation=st.sampled_from([None, *OPERATIONS]),
    kind=st.sampled_from([TOPIC, GROUP]),
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    name=NAMES | st.just("*"),
    address=st.sampled_from(["*", "*", "10.0.0.7"]),
)
PRINCIPALS = st.builds(
    Principal, name=st.sampled_from(["alice", "bob"]), address=st.sampled_from(["10.0.0.7", ""])
)
IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def reference(
    rules: Iterable[Rule], principal: Principal, operation: Operation, kind: ResourceKind, name: str
) -> bool:
    """Kafka's words, rule by rule."""
    allowed = denied = False
    for one in rules:
        if one.kind is not kind or one.user not in ("*", principal.name):
            continue
        if one.address not in ("*", principal.address):
            continue
        if one.pattern is PREFIXED and not name.startswith(one.name):
            continue
        if one.pattern is LITERAL and one.name not in ("*", name):
            continue
        exact = one.operation in (None, operation)
        if one.permission is DENY:
            denied = denied or exact
        else:
            allowed = allowed or exact or one.operation in IMPLIED.get(operation, ())
    return allowed and not denied


@settings(max_examples=500)
@given(
    st.lists(RULES, max_size=8),
    PRINCIPALS,
    st.sampled_from(OPERATIONS),
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
)
def test_decisions_equal_the_reference(
    rules: list[Rule], principal: Principal, operation: Operation, kind: ResourceKind, name: str
) -> None:
    expected = reference(rules, principal, operation, kind, name)
    assert Rules(rules).decide(principal, operation, kind, name).allowed is expected


SMALL = [a + b + c for a in ("", *"ab.") for b in ("", *"ab.") for c in ("", *"ab.") if a + b + c]


@settings(max_examples=300)
@given(st.lists(RULES, max_size=6), PRINCIPALS, st.sampled_from(OPERATIONS), st.text("ab.", max_size=3))
def test_all_names_of_a_prefix(
    rules: list[Rule], principal: Principal, operation: Operation, prefix: str
) -> None:
    """A right on a prefix is one on each name that begins so."""
    if Rules(rules).decide_all(principal, operation, TOPIC, prefix).allowed:
        for end in SMALL:
            assert reference(rules, principal, operation, TOPIC, prefix + end), prefix + end


@settings(max_examples=300)
@given(st.lists(RULES, max_size=6), PRINCIPALS, st.sampled_from(OPERATIONS))
def test_any_name(rules: list[Rule], principal: Principal, operation: Operation) -> None:
    """The answer is yes wherever some name is allowed."""
    if any(reference(rules, principal, operation, TOPIC, name) for name in SMALL):
        assert Rules(rules).decide_any(principal, operation, TOPIC).allowed


FILTERS = st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=3)
TOPICS = [
    levels for a in "ab" for b in ("", *"ab") for c in ("", *"ab") if (levels := [x for x in (a, b, c) if x])
]


@settings(max_examples=300)
@given(st.lists(RULES, max_size=6), FILTERS, st.booleans())
def test_a_filter_of_mqtt_gives_only_topics_that_may_be_read(
    rules: list[Rule], levels: list[str], rest: bool
) -> None:
    granted = Granted(Identities(Content({"bob": User("bob")}, tuple(rules))), ALICE)
    if not may_read(granted, "/".join([*levels, "#"] if rest else levels).encode()):
        return
    for topic in TOPICS:
        fits = all(level in ("+", given) for level, given in zip(levels, topic, strict=False))
        if fits and (len(topic) == len(levels) or (rest and len(topic) > len(levels))):
            assert reference(rules, ALICE, Operation.READ, TOPIC, ".".join(topic)), topic


# --- the store


def test_open_until_there_is_a_user_and_closed_from_then_on() -> None:
    identities = Identities()
    granted = Granted(identities)
    told: list[int] = []
    identities.watch(lambda: told.append(identities.version))
    assert granted.may(Operation.READ, TOPIC, "orders")
    identities.replace(Content({"root": User("root", admin=True)}))
    assert not granted.may(Operation.READ, TOPIC, "orders")
    assert Granted(identities, Principal("root")).may(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER)
    identities.replace(Content())
    assert not granted.may(Operation.READ, TOPIC, "orders"), "no door opens because a user was deleted"
    identities.replace(Content())
    assert told == [1, 2]
