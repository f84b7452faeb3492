"""Sets of integers as sorted bounds, and constraints as such sets.

Bounds (l0, h0, l1, h1, ...) hold the integers of [l0, h0), [l1, h1) and so on; they rise strictly, so that
equal sets have equal bounds. The value of a field whose header is not there is ABSENT: below every value. A
constraint never holds for it, and the negation of a constraint always does.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from ..tree import Relation, Scalar
from .schema import SchemaError

Bounds = tuple[int, ...]
ABSENT: Final = -1

_OCTETS = re.compile(r"(?:\d{1,3}\.){1,4}\Z")
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}\Z")
_MAC = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\Z")


# --- sets


def union(sets: Iterable[Bounds]) -> Bounds:
    """Returns the integers that are in one of the sets."""
    pairs = sorted((low, high) for one in sets for low, high in intervals(one))
    merged: list[int] = []
    for low, high in pairs:
        if merged and low <= merged[-1]:
            merged[-1] = max(merged[-1], high)
        else:
            merged += (low, high)
    return tuple(merged)


def intersection(a: Bounds, b: Bounds) -> Bounds:
    """Returns the integers that are in both."""
    found: list[int] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i], b[j]), min(a[i + 1], b[j + 1])
        if low < high:
            found += (low, high)
        if a[i + 1] < b[j + 1]:
            i += 2
        else:
            j += 2
    return tuple(found)


def complement(a: Bounds, low: int, high: int) -> Bounds:
    """Returns the integers of [low, high) that are not in `a`, which lies inside."""
    edges = (low, *a, high)
    pairs = ((edges[i], edges[i + 1]) for i in range(0, len(edges), 2))
    return tuple(edge for pair in pairs if pair[0] < pair[1] for edge in pair)


def difference(a: Bounds, b: Bounds) -> Bounds:
    """Returns the integers that are in one of the sets, but not in both."""
    edges: set[int] = set()
    for edge in (*a, *b):
        edges ^= {edge}
    return tuple(sorted(edges))


def contains(a: Bounds, value: int) -> bool:
    return any(low <= value < high for low, high in intervals(a))


def intervals(a: Bounds) -> Iterator[tuple[int, int]]:
    """Yields [low, high) one after the other."""
    return zip(a[::2], a[1::2], strict=True)


# --- constraints


def bounds_of(relation: Relation, constant: Scalar, width: int, pad: int, name: str) -> Bounds:
    """Returns the values of a field of `width` bits for which a constraint holds.

    A string is an address if it looks like one of the field's width; else its bytes, filled with `pad` on the
    right. Raises SchemaError about `name` if the constant doesn't fit the field.
    """
    size = 1 << width
    if relation is Relation.PREFIX:
        return _prefix(str(constant), width, name)
    if isinstance(constant, bool):
        if width != 1:
            raise SchemaError(f"{name} has {width} bits and is compared with true or false", name)
        return _compared(relation, int(constant), size)
    if isinstance(constant, str):
        return _compared(relation, _number(constant, width, pad, name), size)
    return _compared(relation, constant, size)


def _compared(relation: Relation, constant: int | float, size: int) -> Bounds:
    """Returns the integers of [0, size) that stand in the relation to a number, whole or not."""
    if relation is Relation.EQ and isinstance(constant, int):  # most rules of large sets
        return (constant, constant + 1) if 0 <= constant < size else ()
    floor, ceiling = math.floor(constant), math.ceil(constant)
    match relation:
        case Relation.LT:
            pieces = [(0, ceiling)]
        case Relation.LE:
            pieces = [(0, floor + 1)]
        case Relation.GT:
            pieces = [(floor + 1, size)]
        case Relation.GE:
            pieces = [(ceiling, size)]
        case Relation.EQ:
            pieces = [(floor, floor + 1)] if floor == ceiling else []
        case _:
            pieces = [(0, ceiling), (floor + 1, size)]
    return union((max(low, 0), min(high, size)) for low, high in pieces if max(low, 0) < min(high, size))


def _number(text: str, width: int, pad: int, name: str) -> int:
    """Returns a string as the field's value."""
    if width == 32 and _IPV4.match(text):
        return _address(text, name)
    if width == 128 and ":" in text:
        return _address(text, name)
    if width == 48 and _MAC.match(text):
        return int(text.replace(":", ""), 16)
    data = _bytes(text, width, name)
    return int.from_bytes(data + bytes([pad]) * (width // 8 - len(data)))


def _address(text: str, name: str) -> int:
    try:
        return int(ipaddress.ip_address(text))
    except ValueError as error:
        raise SchemaError(f"{text!r} is no address for {name}", text) from error


def _bytes(text: str, width: int, name: str) -> bytes:
    data = text.encode()
    if width % 8:
        raise SchemaError(f"{name} has {width} bits and holds no strings such as {text!r}", name)
    if len(data) > width // 8:
        raise SchemaError(f"{text!r} has {len(data)} bytes, and {name} holds {width // 8}", text)
    return data


def _prefix(text: str, width: int, name: str) -> Bounds:
    """Returns the values that begin with an address' first bits (10.0.0.0/8, "10.0.") or a string."""
    if width in (32, 128) and "/" in text:
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            raise SchemaError(f"{text!r} is no address prefix for {name}", text) from error
        if network.max_prefixlen == width:
            low = int(network.network_address)
            return (low, low + network.num_addresses)
        raise SchemaError(f"{text!r} has another length than {name} with its {width} bits", text)
    if width == 32 and _OCTETS.match(text):
        octets = [int(part) for part in text.split(".")[:-1]]
        if max(octets) > 255:
            raise SchemaError(f"{text!r} is no address prefix for {name}", text)
        data = bytes(octets)
    elif width == 32 and _IPV4.match(text):
        data = _address(text, name).to_bytes(4)
    else:
        data = _bytes(text, width, name)
    rest = width - 8 * len(data)
    low = int.from_bytes(data) << rest
    return (low, low + (1 << rest))
