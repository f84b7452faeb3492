"""Records of telemetry as rows of the silver tables. Pure; the columns are those of `tables.SCHEMAS`.

A record that cannot be read becomes an interval with its fault, and nothing else: it is counted, and stops no
query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb

Place = tuple[int, int, Any]  # partition, offset, append time
Row = tuple[Any, ...]


def set_id(receivers: Sequence[str]) -> str:
    """Returns the name of a set of hosts: equal sets have equal names on every host."""
    return hashlib.blake2s("\0".join(receivers).encode(), digest_size=8).hexdigest()


@lru_cache(1 << 16)
def _named_set(receivers: tuple[str, ...]) -> str:
    return set_id(receivers)


def sends_of_slot(value: bytes, slot: int) -> Iterable[Row]:
    """Yields the rows of `silver_minutes` of one interval; of a share of sets each counts as many times as
    the share asks for.
    """
    one = _sound(value)
    for each in one.sets if one is not None else ():
        assert one is not None
        receivers, times = tuple(each.receivers), round(1 / one.sampled)
        labels = each.hop_labels + each.stop_labels + each.tree_labels
        counts = (each.packets, each.bytes, each.header_bytes, labels)
        yield (
            slot,
            one.host,
            one.zone,
            each.carrier,
            _named_set(receivers),
            list(receivers),
            *(times * count for count in counts),
        )


def streams_of_slot(value: bytes, slot: int) -> Iterable[Row]:
    """Yields the rows of `silver_stream_minutes` of one interval."""
    one = _sound(value)
    for each in one.streams if one is not None else ():
        assert one is not None
        counts = (each.addressed, each.received, each.filtered, each.lost, each.repaired, each.replayed)
        yield (slot, one.host, each.stream, each.receiver, *counts)


def filters_of_slot(value: bytes, slot: int) -> Iterable[Row]:
    """Yields the rows of `silver_filter_minutes` of one interval."""
    one = _sound(value)
    for key, named, counts in _filters(one) if one is not None else ():
        assert one is not None
        yield (slot, one.host, *key, *named, *counts)


def changes_of_slot(value: bytes, slot: int) -> Iterable[Row]:
    """Yields the rows of `silver_change_minutes` of one interval."""
    one = _sound(value)
    for each in one.changes if one is not None else ():
        assert one is not None
        yield (slot, one.host, each.client, each.pattern, each.filter, int(each.begun), int(not each.begun))


def repairs_of_slot(value: bytes, slot: int) -> Iterable[Row]:
    """Yields the rows of `silver_repair_minutes` of one interval."""
    one = _sound(value)
    for each in one.repairs if one is not None else ():
        assert one is not None
        yield (slot, one.host, each.stream, each.carrier, each.packets, each.bytes)


def filter_rows(key: bytes | None, value: bytes | None, place: Place) -> Iterable[Row]:
    """Yields what filters have judged in an interval, with the interval's name and place."""
    one = _sound(value)
    for named, texts, counts in _filters(one) if one is not None else ():
        assert one is not None
        yield (one.host, one.boot, one.seq, *named, *texts, *counts, *place)


def combined(filters: Iterable[str]) -> str:
    """Returns the filter that passes what one of these does."""
    found = sorted(set(filters))
    return found[0] if len(found) == 1 else " or ".join(f"({one})" for one in found)


def _filters(one: pb.TelemetryInterval) -> Iterable[tuple[Row, Row, list[int]]]:
    """Yields (origin, name of the set, whether somebody wants all), (patterns, filter, count), counts.

    Of a share of sets each counts as many times as the share asks for. Sets that are too large to be listed
    are told apart by their size alone.
    """
    times = round(1 / one.filters_sampled) if one.filters_sampled > 0 else 1
    sums: dict[Row, tuple[Row, list[int]]] = {}
    for each in one.filters:
        patterns = sorted({wish.pattern for wish in each.wishes})
        parts = [part for wish in each.wishes for part in (wish.pattern, wish.filter)]
        key = (each.origin, set_id([str(each.count), *parts]), each.open)
        text = combined([wish.filter for wish in each.wishes]) if each.wishes else ""
        counts = [each.messages, each.passed, each.bytes, each.passed_bytes, each.cpu_us]
        _, before = sums.get(key, ((), [0] * len(counts)))
        added = [old + times * new for old, new in zip(before, counts, strict=True)]
        sums[key] = ((patterns, text, each.count), added)
    return [(key, named, counts) for key, (named, counts) in sums.items()]


def interval_row(key: bytes | None, value: bytes | None, place: Place) -> Row:
    """Returns the row of `silver_intervals`."""
    try:
        one = topics.decode(pb.TelemetryInterval, value or b"")
    except topics.Unreadable as error:
        host = (key or b"").decode(errors="replace")
        return (host, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0, str(error), *place, "")
    counts = (one.packets, one.bytes, len(one.sets), one.streams_left_out, one.records_left_out)
    return (*_named(one), one.sampled, *counts, fault_of(one), *place, one.zone)


def fault_of(one: pb.TelemetryInterval) -> str:
    """Returns why an interval cannot be true; empty if it can."""
    if not one.host or not one.boot or not one.seq:
        return "it does not say which interval of which host it is"
    if one.to_us < one.from_us:
        return f"it ends {(one.from_us - one.to_us) / 1e6:.1f} s before it begins"
    if not 0.0 < one.sampled <= 1.0:
        return f"{one.sampled} is no share of sets"
    listed = sum(each.packets for each in one.sets)
    if listed > one.packets:
        return f"its sets have {listed} packets, and all together {one.packets}"
    return ""


def set_rows(key: bytes | None, value: bytes | None, place: Place) -> Iterable[Row]:
    """Yields the rows of `silver_sends`: none for an interval that is faulty."""
    one = _sound(value)
    for each in one.sets if one is not None else ():
        receivers = list(each.receivers)
        labels = (each.hop_labels, each.stop_labels, each.tree_labels)
        counts = (each.packets, each.bytes, each.header_bytes, *labels, each.rule_version)
        assert one is not None
        yield (*_named(one), one.sampled, each.carrier, set_id(receivers), receivers, *counts, *place)


def stream_rows(key: bytes | None, value: bytes | None, place: Place) -> Iterable[Row]:
    """Yields the rows of `silver_streams`."""
    one = _sound(value)
    for each in one.streams if one is not None else ():
        assert one is not None
        counts = (each.addressed, each.received, each.filtered, each.lost)
        yield (*_named(one), each.stream, each.receiver, *counts, *place)


def _sound(value: bytes | None) -> pb.TelemetryInterval | None:
    try:
        one = topics.decode(pb.TelemetryInterval, value or b"")
    except topics.Unreadable:
        return None
    return None if fault_of(one) else one


def _named(one: pb.TelemetryInterval) -> Row:
    return one.host, one.boot, one.seq, one.from_us, one.to_us
