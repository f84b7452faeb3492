"""Exchanges that exist alike at all sites: what is announced, declared, refused."""

from __future__ import annotations

import pytest

from treecast.agents.rabbitmq.exchanges import (
    Definition,
    announce,
    encoded,
    key_of,
    plan,
    prefix_of,
    read_all,
)
from treecast.agents.rabbitmq.management import ExchangeFound

TOPIC, DIRECT = Definition("topic", True), Definition("direct", True)


class Site:
    """Implements `exchanges.Shared` as the coordinator does: the first definition stays."""

    def __init__(self, **shared: Definition) -> None:
        self.found = {key_of("/", name): encoded(one) for name, one in shared.items()}

    def defined(self, prefix: str) -> dict[str, bytes]:
        return {key: value for key, value in self.found.items() if key.startswith(prefix)}

    async def define(self, key: str, value: bytes) -> bytes:
        return self.found.setdefault(key, value)


def test_what_is_here_alone_is_announced_and_what_is_elsewhere_alone_is_declared() -> None:
    made = plan([ExchangeFound("here", "topic")], {}, {"there": DIRECT})
    assert made.announce == {"here": TOPIC}
    assert made.declare == {"there": DIRECT}
    assert made.carried == {"here": "topic", "there": "direct"}
    assert made.clashes == {}


def test_what_the_settings_ask_for_is_announced_and_declared() -> None:
    made = plan([], {"new": TOPIC}, {})
    assert (made.announce, made.declare, made.carried) == ({"new": TOPIC}, {"new": TOPIC}, {"new": "topic"})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ExchangeFound("e", "direct"), "type 'direct' here and 'topic' at the other sites"),
        (ExchangeFound("e", "topic", durable=False), "durable False here and True"),
        (ExchangeFound("e", "topic", arguments={"x": 1}), "arguments {'x': 1} here and {}"),
        (ExchangeFound("e", "x-consistent-hash"), "is not carried: only direct, topic"),
        (ExchangeFound("e", "topic", internal=True), "is internal"),
    ],
)
def test_what_differs_is_refused_here_and_changes_nothing(found: ExchangeFound, said: str) -> None:
    made = plan([found], {}, {"e": TOPIC})
    assert (made.carried, made.announce, made.declare) == ({}, {}, {})
    assert said in made.clashes["e"]


def test_settings_that_differ_from_the_other_sites_are_refused() -> None:
    assert "type 'direct' here" in plan([], {"e": DIRECT}, {"e": TOPIC}).clashes["e"]


def test_the_servers_own_exchanges_are_left_out() -> None:
    found = [ExchangeFound("", "direct"), ExchangeFound("amq.rabbitmq.trace", "topic", internal=True)]
    assert plan(found, {}, {}).carried == {}


async def test_who_announces_later_has_the_clash() -> None:
    shared = Site()
    made = plan([ExchangeFound("e/f", "topic")], {}, {})
    assert await announce(shared, "/", made) == {}
    other = plan([ExchangeFound("e/f", "direct")], {}, {})
    clashes = await announce(shared, "/", other)
    assert "type 'direct' here and 'topic' at the other sites" in clashes["e/f"]
    assert read_all("/", shared.defined(prefix_of("/"))) == {"e/f": TOPIC}


def test_definitions_of_other_virtual_hosts_and_of_later_versions_are_left_out() -> None:
    found = {key_of("/", "e"): encoded(TOPIC), key_of("other", "f"): encoded(TOPIC), key_of("/", "g"): b"{"}
    assert read_all("/", found) == {"e": TOPIC}
