"""The refusals of queues and exchanges, with RabbitMQ's texts, since users search for them.

A `Refusal` gives the protocol's reason by name, never by its code: only faces know the codes.
"""

from __future__ import annotations

import enum
from typing import Final


class Reason(enum.Enum):
    """The reason of a refusal. The value is AMQP's name."""

    ACCESS_REFUSED = "ACCESS_REFUSED"  # reserved names, exclusive consumers, internal exchanges
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_LOCKED = "RESOURCE_LOCKED"  # another connection's exclusive queue
    PRECONDITION_FAILED = "PRECONDITION_FAILED"  # declared differently, in use, not empty, bad arguments
    NOT_ALLOWED = "NOT_ALLOWED"
    INTERNAL_ERROR = "INTERNAL_ERROR"  # a feature that is deprecated and not permitted
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    COMMAND_INVALID = "COMMAND_INVALID"  # what a broker that federates has to be told


class Refusal(Exception):
    """A refused request about queues or exchanges; nothing was changed."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value} - {detail}")
        self.reason = reason
        self.detail = detail


def text(name: bytes) -> str:
    """Returns a name in readable form."""
    return name.decode("utf-8", "replace")


LONGEST_NAME: Final = 255  # bytes: AMQP's names and keys are short strings


def too_long(what: str, name: bytes) -> Refusal:
    """Returns the refusal of a name, or of a key, that no AMQP client could be told."""
    return precondition(f"{what} of {len(name)} bytes: AMQP's names and keys have at most {LONGEST_NAME}")


def not_found(kind: str, name: bytes, vhost: str) -> Refusal:
    return Refusal(Reason.NOT_FOUND, f"no {kind} '{text(name)}' in vhost '{vhost}'")


def precondition(detail: str) -> Refusal:
    return Refusal(Reason.PRECONDITION_FAILED, detail)


def spelt(value: object) -> str:
    """Returns a value in the format of RabbitMQ's texts."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    if isinstance(value, bytes | bytearray):
        return f"'{text(bytes(value))}'"
    return f"'{value}'"


def inequivalent(what: str, kind: str, name: bytes, vhost: str, received: object, current: object) -> Refusal:
    """Returns the refusal of a declaration that differs from the existing object. None: not given."""
    one_unsaid = received is None or current is None
    given, there = (_typed(received), _typed(current)) if one_unsaid else (spelt(received), spelt(current))
    return precondition(
        f"inequivalent arg '{what}' for {kind} '{text(name)}' in vhost '{vhost}': "
        f"received {given} but current is {there}"
    )


def _typed(value: object) -> str:
    if value is None:
        return "none"
    kinds = {str: "longstr", bytes: "longstr", bool: "bool", int: "signedint"}
    return f"the value {spelt(value)} of type '{kinds.get(type(value), 'table')}'"
