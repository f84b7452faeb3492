"""Random sequences of what three MQTT clients do with a few topics."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from .client import Will

CLIENTS: Final = 3
TOPICS: Final = ("a", "a/b", "a/b/c", "a//c", "$x/a", "/a", "/")
# Patterns by client: how often a message comes that matches several ones is the broker's choice.
PATTERNS: Final = (
    ("#", "$x/#"),
    ("a/+", "a", "a/+/c", "/+", "$x/+"),
    ("+", "+/b/#", "a//c", "/a", "$x/a"),
)
WEIGHTS: Final = {
    "acknowledge": 4,
    "connect": 14,
    "disconnect": 8,
    "hold": 3,
    "publish": 46,
    "subscribe": 20,
    "unsubscribe": 8,
}


class Step(NamedTuple):
    """One action of a client: the name of its method, and what that is given."""

    client: int
    name: str
    given: dict[str, Any]


def sequence(seed: int, count: int, *, far: bool) -> Iterator[Step]:
    """Yields `count` steps. `far`: leaves out topics that begin with `$`, which stay at their host."""
    rng = random.Random(seed)
    for number, name in enumerate(rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)):
        client = rng.randrange(CLIENTS)
        given = _given(rng, name, client, number, seed)
        if not (far and any(isinstance(value, str) and value.startswith("$") for value in given.values())):
            yield Step(client, name, given)


def _given(rng: random.Random, name: str, client: int, number: int, seed: int) -> dict[str, Any]:
    if name == "connect":
        will = Will(rng.choice(TOPICS[:4]), b"will %d" % number, rng.randrange(3), rng.random() < 0.3)
        return {
            # The same in each connection: Mosquitto keeps the options of the first subscription.
            "version": random.Random(f"{seed} {client}").choice((4, 5)),
            "clean": rng.random() < 0.4,
            "expiry": rng.choice((0, 100)),
            "will": will if rng.random() < 0.3 else None,
        }
    if name == "disconnect":
        return {"hard": rng.random() < 0.5, "with_will": rng.random() < 0.3}
    pattern = rng.choice(PATTERNS[client])
    if name == "subscribe":
        options = random.Random(f"{seed} {client} {pattern}")
        return {
            "pattern": pattern,
            "qos": rng.randrange(3),
            "no_local": options.random() < 0.2,
            "as_published": options.random() < 0.3,
            "handling": rng.randrange(3),
            "identifier": rng.choice((0, 0, 1, 300)),
        }
    if name == "unsubscribe":
        return {"pattern": pattern}
    if name == "publish":
        return {
            "topic": rng.choice(TOPICS),
            "payload": b"" if rng.random() < 0.1 else b"message %d" % number,
            "qos": rng.randrange(3),
            "retain": rng.random() < 0.3,
            "described": rng.random() < 0.2,
        }
    return {}
