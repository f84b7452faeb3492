"""One v1model switch that runs one program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .control import Control
from .stats import Stats
from .values import Out


class Switch:
    """A program with its tables, externs and replication engine.

    Pure: packets and time come in by arguments, packets go out as values. Setting another pipeline is making
    another Switch. A packet in goes through everything it causes (recirculation, clones) before the next.

    `ports`: the ports that exist; a packet to another is dropped and counted ("no such port").
    `cpu_port`: packets to the controller leave there, with the program's packet-in header in front if it
    emits one; a packet-out is `receive(cpu_port, packet-out header + payload, now)`. None: no CPU port.
    `seed`: of the switch's own generator, for `random()`. `start`: when the program's clock is 0.
    `interpret`: run the reference interpreter instead of generated code; the outcome is the same.
    """

    def __init__(
        self,
        program: object,
        *,
        ports: Iterable[int],
        seed: int = 0,
        start: float = 0.0,
        cpu_port: int | None = 510,
        drop_port: int = 511,
        interpret: bool = False,
    ) -> None:
        self.program = program
        self.control = Control()
        raise NotImplementedError

    def receive(self, port: int, packet: bytes, now: float) -> list[Out]:
        """What leaves the switch because this packet came in at `port`, in order.

        A port that doesn't exist is a ValueError; whatever the bytes are, nothing else is raised.
        """
        raise NotImplementedError

    def receive_many(self, packets: Sequence[tuple[int, bytes]], now: float) -> list[Out]:
        """The same for a batch of (port, packet), one after the other."""
        raise NotImplementedError

    def set_port(self, port: int, up: bool) -> None:
        """Ports may come and go."""
        raise NotImplementedError

    def stats(self) -> Stats:
        """A reading of all counts."""
        raise NotImplementedError

    def log(self) -> list[str]:
        """What log_msg wrote since the last call, and failed asserts; the newest 1000 lines."""
        raise NotImplementedError
