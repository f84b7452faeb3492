"""What operators may set of STARE at a host. Times in seconds, sizes in bytes."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

NEVER: Final = float("inf")


class StareSettings(Struct, frozen=True):
    """A timer's wait is spread: what is given here, times 1 to 1 + `spread`."""

    segment_bytes: int = 1464  # of a state in one packet: 1,500 less IPv4, UDP and header
    spread: float = 0.5

    # SUB-register and SUB-remove, until the switch has acknowledged
    resend_first: float = 0.2  # doubles
    resend_longest: float = 5.0
    resend_tries: int = 8  # then the network is taken for one that acknowledges nothing
    refresh: float = 30.0  # SUB-register again, for switches that forget or missed one; 0: never
    round: float = 0.0  # instead: all again, evenly spread over so long a time; 0: never

    # signals with the replica controller, until answered
    signal_first: float = 0.2  # doubles
    signal_longest: float = 5.0

    # what is missing of an update
    recover_first: float = 0.02  # doubles
    recover_longest: float = 2.0
    recover_at_once: int = 64  # updates in one request

    window: int = 256  # updates of a VNF and state that are held until earlier ones have come
    pending_bytes: int = 64 << 20  # of all such, and of incomplete ones
    values_bytes: int = 256 << 20  # last values
    keep: int = 256  # updates of its own that a host keeps until the replica controller has them, per state
    keep_bytes: int = 64 << 20  # of all states; the last of each is kept in any case
    most_states: int = 1 << 20  # subscriptions, and as many states that are published
    most_vnfs: int = 4096
