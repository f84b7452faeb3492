"""Offsets of partitions, as Spark keeps them in a checkpoint: `{"topic": {"0": 23, "1": 42}}`.

In an option, -2 stands for the earliest offset of a partition and -1 for the latest, as in Spark's own Kafka
source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import OptionError

EARLIEST = -2
LATEST = -1


class Partition(NamedTuple):
    """A topic's partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


Offsets = dict[Partition, int]
Json = dict[str, dict[str, int]]


def to_json(offsets: Mapping[Partition, int]) -> Json:
    """As Spark stores it; topics and partitions in order, so that equal offsets are equal texts."""
    found: Json = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.number)] = offsets[partition]
    return found


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets that `to_json` wrote."""
    return {
        Partition(topic, int(number)): offset
        for topic, partitions in value.items()
        for number, offset in partitions.items()
    }


def parse_offsets(text: str, option: str, *, lowest: int = EARLIEST) -> Offsets:
    """The JSON of an option. OptionError names it and shows the form."""
    form = f'{option} is a JSON object such as {{"topic": {{"0": 23, "1": -2}}}}'
    value = _load(text, form)
    if not isinstance(value, dict):
        raise OptionError(form)
    found: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{form}; for {topic!r} there is {partitions!r}")
        for number, offset in partitions.items():
            right = number.isdecimal() and isinstance(offset, int) and not isinstance(offset, bool)
            if not right or offset < lowest:
                raise OptionError(f"{form}; for {topic!r} there is {number!r}: {offset!r}")
            found[Partition(topic, int(number))] = offset
    return found


def parse_assign(text: str) -> frozenset[Partition]:
    """The JSON of `assign`: `{"topic": [0, 1]}`."""
    form = 'assign is a JSON object such as {"topic": [0, 1]}'
    value = _load(text, form)
    if not isinstance(value, dict) or not value:
        raise OptionError(form)
    found: set[Partition] = set()
    for topic, numbers in value.items():
        if not isinstance(numbers, list) or not all(_is_number(number) for number in numbers):
            raise OptionError(f"{form}; for {topic!r} there is {numbers!r}")
        found.update(Partition(topic, number) for number in numbers)
    return frozenset(found)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _load(text: str, form: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{form}; {error}") from None


def names(partitions: Iterable[Partition]) -> str:
    """A list for reading, cut where it is long."""
    listed = [str(partition) for partition in sorted(partitions)]
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return ", ".join(listed[:5]) + more
