"""The state of a walk through a program: the machine, the present packet's variables, its cursor."""

from __future__ import annotations

from ..runtime.counts import DROP_LOOP
from ..runtime.machine import MAX_ROUNDS, Machine
from .packets import Bits, Cursor
from .signals import DropSignal, ParserSignal
from .values import Value, default


class Context:
    """The state of one pass over one packet; `begin` resets it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.program = machine.program
        self.errors = {name: number for number, name in enumerate(self.program.errors)}
        self.now = 0.0
        self.length = 0  # bytes of the packet as it came in
        self.drop_port = machine.drop_port
        self.begin(b"", 0.0)

    def begin(self, data: bytes, now: float) -> None:
        """Starts a new pass."""
        self.now = now
        self.cursor = Cursor(data)
        self.length = len(data)
        self.out = Bits()
        self.variables: list[Value] = [None] * len(self.program.variables)
        self.in_parser = False
        self.checksum_error = False
        self.colors: dict[int, int] = {}  # of direct meters, by index of the extern
        self.states = 0
        self.begin_requests()

    def begin_requests(self) -> None:
        """Resets the requests of a block about the packet's future."""
        self.clone: tuple[int, int] | None = None  # session, field list
        self.resubmit: int | None = None  # field list
        self.recirculate: int | None = None
        self.truncate: int | None = None

    def parser_error(self, name: str) -> ParserSignal:
        return ParserSignal(self.errors[name])

    # --- variables

    def variable(self, index: int) -> Value:
        """Returns a variable; one that was never declared has its type's default."""
        value = self.variables[index]
        if value is None:
            value = self.variables[index] = default(self.program.variables[index].type)
        return value


class Rounds:
    """Counts the rounds of one loop."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> None:
        self.count += 1
        if self.count > MAX_ROUNDS:
            raise DropSignal(DROP_LOOP)
