"""Plain integers that rooms add to and `daemon.metrics` reads. Never reset while a daemon runs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class StorageCounters:
    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    read_bytes: int = 0
    fsyncs: int = 0
    rolled_segments: int = 0
    deleted_segments: int = 0
    compactions: int = 0
    truncated_bytes: int = 0  # torn tails cut off by recovery
    write_errors: int = 0


@dataclass(slots=True)
class BrokerCounters:
    rebalances: int = 0
    expired_members: int = 0
    committed_offsets: int = 0
    expired_offsets: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_timed_out: int = 0
    duplicate_batches: int = 0  # idempotent repeats answered without an append
    refused: dict[str, int] = field(default_factory=dict)  # by Fault name


@dataclass(slots=True)
class FaceCounters:
    """One per face."""

    connections_opened: int = 0
    connections_closed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: dict[str, int] = field(default_factory=dict)  # by request name
    protocol_errors: dict[str, int] = field(default_factory=dict)  # by reason


@dataclass(slots=True)
class Counters:
    """All of a daemon's."""

    storage: StorageCounters = field(default_factory=StorageCounters)
    broker: BrokerCounters = field(default_factory=BrokerCounters)
    faces: dict[str, FaceCounters] = field(default_factory=dict)

    def face(self, name: str) -> FaceCounters:
        return self.faces.setdefault(name, FaceCounters())
