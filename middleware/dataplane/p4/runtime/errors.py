"""Reasons for refusals of control-plane requests. A server maps `Problem` to its protocol's codes,
totally.
"""

from __future__ import annotations

import enum


class Problem(enum.Enum):
    """The kind of a refusal. The comment names P4Runtime's canonical gRPC status."""

    UNKNOWN = "no table, action, counter, ... of this name in the program"  # Raises NOT_FOUND
    NOT_FOUND = "no such entry, member, group or session"  # Raises NOT_FOUND
    EXISTS = "it exists already"  # Raises ALREADY_EXISTS
    INVALID = "a match of the wrong kind, a value too wide, a missing argument"  # Raises INVALID_ARGUMENT
    OUT_OF_RANGE = "an index past the end of a counter, meter or register"  # Raises OUT_OF_RANGE
    FULL = "the size of a table, profile or group is reached"  # Raises RESOURCE_EXHAUSTED
    READ_ONLY = "const entries and const default actions stay"  # Raises PERMISSION_DENIED
    IN_USE = "something still refers to the member or group"  # Raises FAILED_PRECONDITION
    UNSUPPORTED = "the switch cannot do this"  # Raises UNIMPLEMENTED


class ControlError(Exception):
    """A write or read that the switch refuses; nothing was changed. `str` is for people."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem
