"""Signals that end a walk through a program early."""

from __future__ import annotations

from .values import Value


class ExitSignal(Exception):
    """`exit`: ends the block."""


class ReturnSignal(Exception):
    """`return`."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class BreakSignal(Exception):
    """`break`."""


class ContinueSignal(Exception):
    """`continue`."""


class ParserSignal(Exception):
    """The parser stops with an error: an index into `Program.errors`."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self.error = error


class DropSignal(Exception):
    """The packet is thrown away here and now: a loop without end, a failed assertion."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason
