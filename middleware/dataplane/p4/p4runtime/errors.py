"""Refusals in P4Runtime's terms: a canonical gRPC code and a message."""

from __future__ import annotations

import enum

from treecast.middleware.dataplane.p4.runtime import ControlError


class Code(enum.IntEnum):
    """The canonical codes (google.rpc.Code) that this endpoint answers with."""

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
    """What was asked is refused; nothing was changed by it."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def of(error: ControlError) -> P4RuntimeError:
    """A refusal of the switch in P4Runtime's terms. Total: a `Problem`'s value is the code's name."""
    return P4RuntimeError(Code[error.problem.value], str(error))


def invalid(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.NOT_FOUND, message)
