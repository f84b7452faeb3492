"""What operators may set of partitions across hosts."""

from __future__ import annotations

from msgspec import Struct


class PartitionSettings(Struct, frozen=True):
    """Times in seconds, sizes in bytes."""

    down_grace: float = (
        1.0  # how long a leader whose connection broke is waited for, before calls are refused
    )
    produce_timeout: float = 30.0
    call_timeout: float = 10.0
    offsets_wait: float = 1.0  # for the leader's word on its end, before a replica says what it has
    stall: float = 2.0  # without progress for so long, though there is more, the leader is asked instead
    follow_again: float = 10.0  # and for so long, the stream is joined anew
    accounts_every: float = 2.0  # what receivers have counted is written down
    ends_every: float = 1.0  # the coordinator is told where logs end that have grown
    rebuild_grace: float = 30.0  # hosts that may have a copy are waited for so long
    rebuild_look: float = 1.0  # and so often is looked again
    rebuild_at_once: int = 4  # partitions that are copied at the same time
    copy_bytes: int = 1 << 20  # of one piece
    retry_first: float = 0.2  # pause after a follow that failed; doubles
    retry_longest: float = 5.0
    idle: float = 600.0  # without a fetch for so long, a partition is not followed any more
    idle_bytes: int = 16 << 30  # of replicas that are not followed; beyond it the one used longest ago goes
