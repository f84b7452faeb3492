"""Generated code as an engine, instead of the interpreter."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..runtime.counts import DROP_WORK
from ..runtime.machine import MAX_WORK, NORMAL, Machine
from ..runtime.values import Out
from .layout import Unsupported
from .pipeline import Pipeline

Arrival = tuple[bytes, int, int, tuple[object, ...] | None]  # packet, port, instance_type, preserved metadata


class ExitBlock(Exception):
    """P4's exit."""


class DropPacket(Exception):
    """The packet is thrown away at once."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Generated:
    """An engine; `source` is the running code. Raises Unsupported for features of the interpreter only."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._arrivals: deque[Arrival] = deque()
        self._copies: deque[tuple[object, ...]] = deque()
        self._work = 0
        pipeline = Pipeline(machine)
        self.source = pipeline.generate()
        env = pipeline.env
        env.update(
            {
                "Exit_": ExitBlock,
                "Drop_": DropPacket,
                "arrive_": self._arrivals.append,
                "later_": self._copies.append,
                "clone_works_": self._work_left,
            }
        )
        try:
            code = compile(self.source, f"<generated from {machine.program.name}>", "exec")
        except (SyntaxError, RecursionError, MemoryError) as problem:
            raise Unsupported(f"Python can't compile it: {problem}") from problem
        exec(code, env)  # nosec B102  # of a program that the operator gives, from its checked form
        front, back = env["front"], env["back"]
        assert callable(front)
        assert callable(back)
        self._front: Callable[..., None] = front
        self._back: Callable[..., None] = back

    def receive(self, port: int, data: bytes, now: float, out: list[Out]) -> None:
        """Processes one packet and everything that it causes."""
        self._work = 1
        self._front(data, port, NORMAL, None, now, out)
        while self._copies or self._arrivals:
            if self._copies:
                self._back(*self._copies.popleft())
                continue
            packet, at, kind, kept = self._arrivals.popleft()
            if self._work_left():
                self._front(packet, at, kind, kept, now, out)

    def _work_left(self) -> bool:
        """Returns whether one packet may cause another pass; if not that is a drop."""
        self._work += 1
        if self._work > MAX_WORK:
            self._machine.counts.drop(DROP_WORK)
            return False
        return True
