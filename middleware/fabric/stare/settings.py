"""STARE's settings at a host. Times in seconds, sizes in bytes."""

from __future__ import annotations

from msgspec import Struct


class StareSettings(Struct, frozen=True):
    """Timers, limits and budgets. Each wait is multiplied by a random factor from 1 to 1 + `spread`."""

    segment_bytes: int = 1464  # payload of one packet: 1,500 less IPv4, UDP and STARE headers
    spread: float = 0.5

    # SUB-register and SUB-remove, until the switch acknowledges
    resend_first: float = 0.2  # doubles
    resend_longest: float = 5.0
    resend_tries: int = 8  # then the subscription counts as unanswered
    refresh: float = 30.0  # interval of repeated SUB-registers, for switches that lost one; 0: never
    round: float = 0.0  # instead of `refresh`: period in which all states are registered again; 0: never

    # signals to the replica controller, until answered
    signal_first: float = 0.2  # doubles
    signal_longest: float = 5.0

    # requests for missing updates
    recover_first: float = 0.02  # doubles
    recover_longest: float = 2.0
    recover_at_once: int = 64  # updates in one request

    window: int = 256  # out-of-order updates held per VNF and state
    pending_bytes: int = 64 << 20  # all out-of-order and incomplete updates
    values_bytes: int = 256 << 20  # last values
    keep: int = 256  # own updates kept per VNF and state until the replica controller has them
    keep_bytes: int = 64 << 20  # all own updates; the last of each VNF and state is always kept
    most_states: int = 1 << 20  # subscribed states; the same limit for published pairs
    most_vnfs: int = 4096
