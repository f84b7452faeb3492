"""The interface of random generators, which `random.Random(seed)` implements."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Rng(Protocol):
    """A seeded generator, always passed as an argument."""

    def random(self) -> float: ...

    def randrange(self, start: int, /) -> int: ...

    def sample(self, population: Sequence[T], k: int) -> list[T]: ...

    def shuffle(self, x: MutableSequence[Any]) -> None: ...
