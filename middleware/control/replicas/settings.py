"""Operators' settings of the replica controller. Times in seconds, sizes in bytes."""

from __future__ import annotations

from msgspec import Struct


class ReplicaSettings(Struct, frozen=True):
    """Settings. `spread`: each wait is multiplied by a random factor from 1 to 1 + spread."""

    # beyond it the oldest updates are evicted, those that are the last of a VNF and state at the end
    backlog_bytes: int = 1 << 30
    keep: int = 1024  # updates kept per VNF and state, even if not all hosts have reported them
    query_first: float = 0.1  # wait after an update until subscribers are queried; doubles
    query_longest: float = 5.0
    fetch_first: float = 0.05  # wait before requesting what the controller itself lacks; doubles
    fetch_longest: float = 2.0
    fetch_at_once: int = 256
    window: int = 1024  # updates of a VNF and state held until earlier ones arrive
    pending_bytes: int = 128 << 20
    closed: float = 3600.0  # time for which a VNF's last values are kept after its end
    spread: float = 0.5
    most_pairs: int = 2_000_000  # VNFs times states
    answer_bytes: int = 1 << 18  # updates in one signal
