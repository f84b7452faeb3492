"""The targets of `python -m tests.fuzz`, with their seeds and random changes of them."""

from __future__ import annotations

import random

import pytest
from tests.fuzz.targets import SEEDS, TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_target_lets_nothing_out(name: str) -> None:
    rng = random.Random(name)
    for _ in range(200):
        data = bytearray(bytes([rng.randrange(256)]) + b"".join(rng.choices(SEEDS, k=rng.randrange(1, 4))))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        TARGETS[name](bytes(data))
