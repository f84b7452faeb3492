"""Hashes by name, and the choice of a member by an action selector."""

from __future__ import annotations

from .. import ir
from ..bits import Generator, crc16, crc32, csum16, identity, xor16
from .match import Cell

# v1model's algorithms. The custom ones have the parameters that the behavioral model begins with.
ALGORITHMS = {
    "crc32": crc32,
    "crc32_custom": crc32,
    "crc16": crc16,
    "crc16_custom": crc16,
    "identity": identity,
    "csum16": csum16,
    "xor16": xor16,
}


def hashed(algorithm: str, value: int, width: int, random: Generator) -> int:
    """Returns the hash of `width` bits. "random" takes the next number of the switch's generator."""
    function = ALGORITHMS.get(algorithm)
    return random.next64() if function is None else function(value, width)


def choose(instance: ir.ExternInstance, cells: list[Cell], value: int, width: int, random: Generator) -> Cell:
    """Returns one of the (at least one) `cells`, by the hash of the selector keys."""
    if len(cells) == 1 or instance.kind != "action_selector":
        return cells[0]
    output = int(instance.argument("outputWidth"))
    number = hashed(str(instance.argument("algorithm")), value, width, random)
    return cells[(number & ((1 << output) - 1)) % len(cells)]
