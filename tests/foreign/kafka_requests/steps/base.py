"""Steps, the values that servers give out, and random choices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

GROUPS: Final = ("g0", "g1")  # exist from the first steps on, because Kafka begins them at refused joins
IDEMPOTENT: Final = ("p0",)
TRANSACTIONAL: Final = ("x0", "x1")


@dataclass(frozen=True)
class Named:
    """A name of this sequence: servers keep the topics and groups of earlier ones."""

    name: str


@dataclass(frozen=True)
class Given:
    """A value that the server gave out last for `name`, plus `change`: an id, an epoch, a generation."""

    kind: str
    name: str
    change: int = 0


@dataclass(frozen=True)
class Records:
    """One batch of records. `harm` names what is wrong with its bytes. The changes are added to the epoch and
    the sequence number that are due.
    """

    count: int = 1
    producer: str = ""
    epoch_change: int = 0
    sequence_change: int = 0
    transactional: bool = False
    compression: int = 0
    keyed: bool = True
    harm: str = ""


@dataclass(frozen=True)
class Subscription:
    """The metadata of a classic consumer."""

    topics: tuple[Named, ...]


class Step(NamedTuple):
    """One request."""

    api: str
    version: int
    fields: dict[str, Any]
    about: str = ""  # the producer or member that the response tells something about
    needs: Given | None = None  # without which no client sends this
    unless: Given | None = None  # an epoch; with one above 0 a client does not send this


Maker = Callable[[random.Random], Step | list[Step]]


def one(rng: random.Random, usual: Sequence[Any], odd: Sequence[Any] = (), chance: float = 0.12) -> Any:
    return rng.choice(odd) if odd and rng.random() < chance else rng.choice(usual)


def a_topic(rng: random.Random) -> Named:
    return Named(one(rng, ("t0", "t0", "t1"), ("t2", "none")))


def a_partition(rng: random.Random) -> int:
    return int(one(rng, (0, 0, 1), (5, -1)))


def a_group(rng: random.Random) -> Named:
    return Named(rng.choice(GROUPS))
