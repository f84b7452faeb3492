"""Refusals in P4Runtime's form: a canonical gRPC code and a message."""

from __future__ import annotations

import enum

from treecast.middleware.dataplane.p4.runtime import ControlError, Problem


class Code(enum.IntEnum):
    """The canonical codes (google.rpc.Code) that this endpoint uses."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13


class P4RuntimeError(Exception):
    """The request is refused and has changed nothing."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


CODES = {
    Problem.UNKNOWN: Code.NOT_FOUND,
    Problem.NOT_FOUND: Code.NOT_FOUND,
    Problem.EXISTS: Code.ALREADY_EXISTS,
    Problem.INVALID: Code.INVALID_ARGUMENT,
    Problem.OUT_OF_RANGE: Code.OUT_OF_RANGE,
    Problem.FULL: Code.RESOURCE_EXHAUSTED,
    Problem.READ_ONLY: Code.PERMISSION_DENIED,
    Problem.IN_USE: Code.FAILED_PRECONDITION,
    Problem.UNSUPPORTED: Code.UNIMPLEMENTED,
}


def of(error: ControlError) -> P4RuntimeError:
    """Returns a refusal of the switch in P4Runtime's terms."""
    return P4RuntimeError(CODES[error.problem], str(error))


def invalid(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.NOT_FOUND, message)
