"""What operators may set of the replica controller. Times in seconds, sizes in bytes."""

from __future__ import annotations

from msgspec import Struct


class ReplicaSettings(Struct, frozen=True):
    """`spread`: waits are drawn from 1 to 1 + spread times of what is given."""

    backlog_bytes: int = 1 << 30  # beyond it the oldest updates go, the last of each VNF and state last
    keep: int = 1024  # updates of a VNF and state, whoever has not reported them
    query_first: float = 0.1  # after an update, until who subscribes has reported it; doubles
    query_longest: float = 5.0
    fetch_first: float = 0.05  # what the controller itself lacks is asked for; doubles
    fetch_longest: float = 2.0
    fetch_at_once: int = 256
    window: int = 1024  # updates of a VNF and state that are held until earlier ones have come
    pending_bytes: int = 128 << 20
    closed: float = 3600.0  # a VNF's last values after its end
    spread: float = 0.5
    most_pairs: int = 2_000_000  # VNFs times states
    answer_bytes: int = 1 << 18  # updates in one signal
