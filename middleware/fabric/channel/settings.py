"""What operators may set of the channel. Times are seconds, sizes bytes."""

from __future__ import annotations

from msgspec import Struct

MINIMUM_CHARGE = 256  # of a request, for what it costs beside its bytes
GROUP_METHODS = 20  # methods of one group, whose calls keep their order
GROUPS = 16
SMALLEST_WINDOW = 4096
MAX_METHOD = GROUPS * GROUP_METHODS - 1


class ChannelSettings(Struct, frozen=True):
    """The same for all connections of a host."""

    window: int = 8 << 20  # requests of one group from one host that wait to be handled, or are
    longest: int = 128 << 20  # of one message, head and body
    queue: int = 64 << 20  # calls to one host that wait to be sent; more are refused
    unsent_answers: int = 16 << 20  # of one group to one host; more, and no further request of it is begun
    write: int = 1 << 20  # sent to one host before others have their turn
    write_buffer: int = 256 * 1024  # what the socket's transport may hold
    ping_every: float = 1.0
    silent_after: float = 3.0
    handshake: float = 3.0
    patience_for: float = 30.0  # after a silence, for so long a longer one is waited for
    dial: float = 5.0  # for the network to connect
    back_off_first: float = 0.05
    back_off_longest: float = 2.0
    tick: float = 0.25
    backlog: int = 512
    handshakes: int = 512  # connections that have not finished theirs

    def __post_init__(self) -> None:
        if self.silent_after < 2 * self.ping_every:
            raise ValueError("silent_after has to be at least twice ping_every")
        if not SMALLEST_WINDOW <= self.window < 2**32 or not SMALLEST_WINDOW <= self.longest < 2**32:
            raise ValueError("window and longest are of 4096 bytes to 4 GiB")
