"""Settings of the channel. Times are in seconds, sizes in bytes."""

from __future__ import annotations

from msgspec import Struct

MINIMUM_CHARGE = 256  # window bytes of a small request, for its overhead
GROUP_METHODS = 20  # methods per group; calls of one group keep their order
GROUPS = 16
SMALLEST_WINDOW = 4096
MAX_METHOD = GROUPS * GROUP_METHODS - 1


class ChannelSettings(Struct, frozen=True):
    """Settings of all connections of a host."""

    window: int = 8 << 20  # unhandled requests of one group from one host
    longest: int = 128 << 20  # one message, head and body
    queue: int = 64 << 20  # waiting calls to one host; further ones are refused
    unsent_answers: int = 16 << 20  # one group to one host; beyond it no further request of it is begun
    write: int = 1 << 20  # sent to one host per turn, before the other hosts
    write_buffer: int = 256 * 1024  # held by the socket's transport
    ping_every: float = 1.0
    silent_after: float = 3.0
    handshake: float = 3.0
    patience_for: float = 30.0  # how long time-outs stay extended after a silence (`deadlines.Patience`)
    dial: float = 5.0  # time-out of connecting
    back_off_first: float = 0.05
    back_off_longest: float = 2.0
    tick: float = 0.25
    backlog: int = 512
    handshakes: int = 512  # connections with an unfinished handshake

    def __post_init__(self) -> None:
        if self.silent_after < 2 * self.ping_every:
            raise ValueError("silent_after has to be at least twice ping_every")
        if not SMALLEST_WINDOW <= self.window < 2**32 or not SMALLEST_WINDOW <= self.longest < 2**32:
            raise ValueError("window and longest are of 4096 bytes to 4 GiB")
