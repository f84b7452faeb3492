"""Offsets of partitions in the form of Spark's checkpoints: `{"topic": {"id": "...", "0": 23, "1": 42}}`.

The id is the topic's: a topic that was deleted and recreated under the same name has another, and offsets of
the old one do not apply. Checkpoints of earlier versions, and of brokers without topic ids, lack it.

In an option, -2 stands for the earliest offset of a partition and -1 for the latest, as in Spark's own Kafka
source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from ..errors import OptionError

EARLIEST = -2
LATEST = -1
MAX_OFFSET = 2**63 - 1  # and of a time
MAX_PARTITION = 2**31 - 1


class Partition(NamedTuple):
    """A topic's partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


Offsets = dict[Partition, int]
TopicIds = dict[str, str]  # of topics by name; those that are not known are left out
Json = dict[str, dict[str, int | str]]
_ID = "id"


class Place(Struct, frozen=True):
    """A query's progress: offsets, and the ids of their topics."""

    offsets: Offsets
    ids: TopicIds = {}


def to_json(place: Place) -> Json:
    """Returns Spark's stored form; topics and partitions are sorted, so that equal offsets are equal
    texts.
    """
    found: Json = {}
    for partition in sorted(place.offsets):
        topic = partition.topic
        if topic not in found:
            found[topic] = {_ID: place.ids[topic]} if topic in place.ids else {}
        found[topic][str(partition.number)] = place.offsets[partition]
    return found


def from_json(value: Mapping[str, Mapping[str, int | str]]) -> Place:
    """Parses the result of `to_json`."""
    offsets = {
        Partition(topic, int(number)): int(offset)
        for topic, partitions in value.items()
        for number, offset in partitions.items()
        if number != _ID
    }
    ids = {topic: str(partitions[_ID]) for topic, partitions in value.items() if _ID in partitions}
    return Place(offsets, ids)


def made_anew(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that are not those that they were; one without an id on a side counts as the same."""
    return sorted(topic for topic in before.keys() & now.keys() if before[topic] != now[topic])


def parse_offsets(text: str, option: str, *, lowest: int = EARLIEST) -> Offsets:
    """Returns the JSON of an option. OptionError names it and shows the form."""
    form = f'{option} is a JSON object such as {{"topic": {{"0": 23, "1": -2}}}}'
    value = _load(text, form)
    if not isinstance(value, dict):
        raise OptionError(form)
    found: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{form}; for {topic!r} there is {partitions!r}")
        for number, offset in partitions.items():
            if number == _ID:  # in text from a checkpoint or from a query's progress
                continue
            right = number.isdecimal() and int(number) <= MAX_PARTITION
            right = right and isinstance(offset, int) and not isinstance(offset, bool)
            if not right or not lowest <= offset <= MAX_OFFSET:
                raise OptionError(f"{form}; for {topic!r} there is {number!r}: {offset!r}")
            found[Partition(topic, int(number))] = offset
    if not found:
        raise OptionError(f"{form}; there is no partition in {text!r}")
    return found


def parse_assign(text: str) -> frozenset[Partition]:
    """Returns the JSON of `assign`: `{"topic": [0, 1]}`."""
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
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_PARTITION


def _load(text: str, form: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{form}; {error}") from None


def names(partitions: Iterable[Partition]) -> str:
    """Returns a list for reading, shortened if long."""
    listed = [str(partition) for partition in sorted(partitions)]
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return ", ".join(listed[:5]) + more
