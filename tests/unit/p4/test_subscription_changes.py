"""Rules that come and go on a running switch: after each write every packet gets the old or the new."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.filters import rule_strategies as some

from treecast.middleware.dataplane.p4 import Program, Switch, load_program
from treecast.middleware.dataplane.subscriptions.writes import Writer
from treecast.middleware.filters.actions import Forward, Rule, Rules
from treecast.middleware.filters.compiler.changes import Installed
from treecast.middleware.filters.compiler.direct import Direct
from treecast.middleware.filters.compiler.live import LiveRules
from treecast.middleware.filters.compiler.program import program_text
from treecast.middleware.filters.compiler.schema import Next, Schema
from treecast.middleware.filters.rules import parse_rules

from .test_subscriptions import INGRESS, PORTS

Packet = tuple[int, int, tuple[int, int] | None]
ORDER = (0, 1, 2, 3)
KINDS = [("range", "range", "range", "range"), ("range", "lpm", "ternary", "range")]
FEW = (0, 3, 7, 8, 15)
PACKETS: list[Packet] = [
    *((a, b, (c, d)) for a, b, c, d in product(FEW, (0, 5, 15), (0, 8), (2, 15))),
    *((a, b, None) for a, b in product(FEW, (0, 5, 15))),
]


def loaded(kinds: tuple[str, ...]) -> tuple[Schema, Program]:
    fields = tuple(some.query_field(name, kind) for name, kind in zip(some.NUMBERS, kinds, strict=True))
    schema = Schema(some.HEADERS, (Next("first", "more", 1, "second"),), fields)
    return schema, load_program(program_text(schema, ORDER), "generated.p4")


PROGRAMS = {kinds: loaded(kinds) for kinds in KINDS}
plain = st.builds(Rule, some.trees(some.on_fields), some.ports.map(lambda found: (Forward(found),)))


class Site:
    """A switch with rules that change, and what they mean."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.schema, program = PROGRAMS[kinds]
        self.rules = LiveRules(self.schema, ORDER)
        self.installed = Installed(self.rules)
        self.switch = Switch(program, ports=PORTS)
        self.writer = Writer(self.installed, self.schema, ORDER, self.switch.control)
        self.writer.begin()
        self.there: dict[int, Rule] = {}
        self.packets = PACKETS

    def meaning(self) -> list[set[int]]:
        direct = Direct(self.schema, Rules(tuple(self.there.values())))
        return [set(direct.receive(some.of_schema(self.schema, one), 0).ports) for one in self.packets]

    def seen(self) -> list[set[int]]:
        return [
            {out.port for out in self.switch.receive(INGRESS, some.to_bytes(one), 0.0)}
            for one in self.packets
        ]

    def add(self, rules: list[Rule]) -> None:
        self.there |= dict(zip(self.rules.add(rules), rules, strict=True))

    def remove(self, place: int) -> None:
        number = sorted(self.there)[place % len(self.there)]
        self.rules.remove([number])
        del self.there[number]

    def write(self) -> int:
        """Does the writes, with packets after each."""
        before, after = self.seen(), self.meaning()
        writes = 0
        for one in self.installed.change():
            self.writer.write(one)
            writes += 1
            for packet, now, old, new in zip(self.packets, self.seen(), before, after, strict=True):
                assert now in (old, new), (packet, one)
        assert self.seen() == after
        return writes


@given(
    st.sampled_from(KINDS), st.lists(st.lists(plain, min_size=1, max_size=2) | st.integers(0, 9), max_size=6)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_packet_is_misrouted_while_rules_change(
    kinds: tuple[str, ...], changes: list[list[Rule] | int]
) -> None:
    site = Site(kinds)
    for change in changes:
        if isinstance(change, list):
            site.add(change)
        elif site.there:
            site.remove(change)
        site.write()
    while site.there:
        site.remove(0)
        site.write()
    control = site.switch.control
    left = [name for name in site.switch.stats().tables for _ in control.table(name).entries()]
    assert left == ["Subscriptions.leaf"]  # leaf 0
    assert control.replication.groups() == []


def test_a_change_of_one_rule_writes_few_entries() -> None:
    """One rule among 60 for other values of the first field: the first state and the others stay."""
    site = Site(KINDS[0])
    text = "".join(f"a == {n % 15} and b > {n % 13} : fwd({n % 3 + 1})\n" for n in range(60))
    site.add(list(parse_rules(text).rules))
    whole = site.write()
    site.add(list(parse_rules("a == 4 and b == 14 : fwd(1, 2)").rules))
    assert 0 < site.write() <= 6 < whole / 4
    site.remove(60)
    assert site.write() <= 6


def ranges(rng: Random) -> Rule:
    """A rule on the first two fields: an interval of each, or one side of it."""
    parts = []
    for name in ("a", "b"):
        low, high = sorted((rng.randrange(16), rng.randrange(16)))
        if rng.random() < 0.7:
            parts.append(f"{name} >= {low}")
        if rng.random() < 0.7:
            parts.append(f"{name} <= {high}")
    port = rng.randrange(3) + 1
    return parse_rules(f"{' and '.join(parts) or 'true'} : fwd({port})").rules[0]


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_rules_that_cross_one_another_come_and_go(kinds: tuple[str, ...], seed: int) -> None:
    """Several states below the first one; runs that split and join."""
    rng = Random(seed)
    site = Site(kinds)
    site.packets = [(a, b, None) for a in range(16) for b in range(16)]
    written = 0
    for _ in range(14):
        if site.there and rng.random() < 0.4:
            site.remove(rng.randrange(9))
        else:
            site.add([ranges(rng)])
        written += site.write()
    assert written > 20


APART = "a >= 10 and b > 5 : fwd(2)\na < 5 and b > 3 : fwd(3)\n"
ALIKE = "(a < 5 or a >= 10) and b > 1 : fwd(1)\n"
BETWEEN = "a >= 5 and a < 10 and b > 2 : fwd(2)\n"


@pytest.mark.parametrize(("before", "after"), [(APART, ALIKE), (ALIKE, APART)])
def test_states_that_become_one_or_two_do_not_change_in_place(before: str, after: str) -> None:
    """The states of a < 5 and a >= 10 are two before and one afterwards, or the other way round."""
    site = Site(KINDS[0])
    site.packets = [(a, b, None) for a in range(16) for b in range(16)]
    site.add(list(parse_rules(before + BETWEEN).rules))
    site.write()
    for _ in range(before.count("fwd")):
        site.remove(0)
    site.add(list(parse_rules(after).rules))
    site.write()
