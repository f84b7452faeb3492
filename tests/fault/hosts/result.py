"""The options and the result of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Bursts:
    """The bursts to run: every combination of the choices."""

    receivers: tuple[int, ...] = (2, 8)
    mb: tuple[float, ...] = (100.0,)
    partitions: tuple[int, ...] = (1,)
    kind: str = "kafka"  # or `mqtt`, `both`
    start: str = "both"  # or `fresh`, `standing`
    carrier: str = "ip-multicast"  # or unicast, relay
    zones: int = 0  # zones of hosts with a router without multicast between them; 0: one switch
    slow: float = 0.0  # one receiver's share of the others' processor time, beside a run without; 0: none
    small: bool = False  # adds a small stream
    batch: int = 1_000_000  # bytes of a record batch
    compare: bool = False  # also runs one receiver by unicast, and all by unicast
    most: float = 1.15  # maximum copies per payload; by unicast for each receiver


@dataclass
class Options:
    """The size of a scenario. Rates in records/s, sizes in bytes."""

    seconds: float = 20.0
    seed: int = 1
    hosts: int = 4
    loss: float = 0.01
    rate: float = 1000.0
    size: int = 1024
    behind: int = 1_000_000
    count: int = 20
    subscribers: tuple[int, ...] = (1, 3, 7)  # host counts, one after the other
    phase: float = 10.0  # seconds of each latency window
    age: float = 5.0  # seconds from a copy of a directory to its return, for each run in between
    rounds: int = 1  # outages, each followed by a control
    judged: bool = False  # whether a latency can be a problem; on a busy machine it says nothing
    events: tuple[str, ...] = ()  # of the scenario `lan`; empty: all
    out: Path | None = None  # where a run that can be resumed keeps how far it is; None: nowhere
    python: str = ""
    burst: Bursts = field(default_factory=Bursts)
    say: Callable[[str], None] = print


@dataclass
class Shown:
    """A table of a result."""

    title: str
    head: list[str]
    rows: list[list[str]]


@dataclass
class Result:
    """`rows`: measurements as name and value; `problems`: violations."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    tables: list[Shown] = field(default_factory=list)

    def row(self, name: str, value: object) -> None:
        self.rows.append((name, f"{value:,}" if isinstance(value, int) else str(value)))

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.tables.append(Shown(title, list(head), [list(row) for row in rows]))
