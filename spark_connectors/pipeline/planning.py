"""The plan of an epoch: the records that its advice rests on, and its trials. Pure.

A plan is stored before anything is computed. So an epoch that Spark repeats after a kill, or that `replay`
computes again, uses the same records, the same networks and the same trials, whatever has arrived meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from treecast.middleware.routing.virtual.candidates import Trial, all_strategies, trials

RULES: Final = 2  # of new plans


class Range(msgspec.Struct, frozen=True, order=True):
    """Offsets of one partition: `first` included, `end` not."""

    topic: str
    partition: int
    first: int
    end: int


class Topology(msgspec.Struct, frozen=True, order=True):
    """The record that describes a network."""

    network: str
    partition: int
    offset: int


class Settings(msgspec.Struct, frozen=True):
    """How advice is made. Times in seconds."""

    window: float = 300.0  # of records that it rests on, by their append times
    valid: float = 300.0  # from the window's end
    strategies: tuple[str, ...] = tuple(all_strategies())
    thresholds: tuple[float, ...] = (0.3, 0.6, 0.9)
    seeds: tuple[int, ...] = (1, 2)
    most_sets: int = 5000  # per network, the heaviest

    def trials(self) -> list[Trial]:
        return trials(self.strategies, self.thresholds, self.seeds)


class Plan(msgspec.Struct, frozen=True):
    """The content of a plan's file. Times in microseconds. `query`, `batch`: Spark's, of the run that made
    it. `rules`: the version of the rules that records count by, so that a replay of an older plan keeps to
    its own; in 1, late intervals count as those in time.
    """

    epoch: int
    window_start: int
    window_end: int
    ranges: tuple[Range, ...]
    topologies: tuple[Topology, ...]
    settings: Settings
    query: str = ""
    batch: int = 0
    rules: int = 1

    @property
    def valid_until(self) -> int:
        return self.window_end + int(self.settings.valid * 1e6)


def epoch_after(last: int, window_end: int) -> int:
    """Returns the number of an epoch: the time of its last record in ms, but above the last epoch. They
    rise also after a pipeline started over in an empty folder.
    """
    return max(last + 1, window_end // 1000)


def ranges_of(topic: str, bounds: Iterable[tuple[int, int, int]]) -> tuple[Range, ...]:
    """Returns ranges from (partition, lowest, highest offset)."""
    return tuple(sorted(Range(topic, partition, low, high + 1) for partition, low, high in bounds))


def encode(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan, order="sorted"), indent=1)


def decode(content: bytes) -> Plan:
    """Returns a plan. Raises ValueError for anything else."""
    return msgspec.json.decode(content, type=Plan)


def held_out(seq: int) -> bool:
    """Returns whether an interval judges: every third one, so that trees are judged by other packets than
    they were laid for, of the same time.
    """
    return seq % 3 == 2
