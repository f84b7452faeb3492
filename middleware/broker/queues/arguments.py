"""The arguments of queue declarations: their names, their allowed values, and their meaning.

Names, values and refusals are RabbitMQ 4.3's. An argument that the queue type does not know, but another type
does, is refused. An argument that no type knows is kept and has no effect. `x-queue-mode` is ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final

from msgspec import Struct

from treecast.middleware.wire.field_table import same

from .refusals import precondition, text
from .stream_start import age_of

Table = Mapping[str, object]

_LONGEST_MS: Final = 315_360_000_000  # ten years
MAX_PRIORITY: Final = 255
_LARGEST_SEGMENT: Final = 3_000_000_000  # RabbitMQ's limit for segments of streams
_QUORUM_DELIVERIES: Final = 20  # RabbitMQ 4's default
QUORUM_PRIORITIES: Final = 31  # 4.3: quorum queues have strict priorities from 0 to 31 by default


class QueueType(enum.Enum):
    CLASSIC = "classic"
    QUORUM = "quorum"
    STREAM = "stream"


class Overflow(enum.Enum):
    """The behaviour of a full queue."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"


class QueueArguments(Struct, frozen=True):
    """The parsed arguments. Times in milliseconds, -1: none; lengths in messages and bytes, -1: unlimited.

    `max_priority` 0: no priorities. `delivery_limit` -1: unlimited. `dead_letter_key` None: the message's own
    keys. Of streams: `max_age` in seconds, and `segment_bytes`.
    """

    type: QueueType = QueueType.CLASSIC
    message_ttl: int = -1
    expires: int = -1
    max_length: int = -1
    max_bytes: int = -1
    overflow: Overflow = Overflow.DROP_HEAD
    dead_letter_exchange: bytes | None = None
    dead_letter_key: bytes | None = None
    max_priority: int = 0
    delivery_limit: int = -1
    single_active: bool = False
    max_age: int = -1
    segment_bytes: int = -1


def _whole(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{{unacceptable_type,{_type_name(value)}}}"
    return "" if value >= 0 else f"{{value_negative,{value}}}"


def _milliseconds(value: object) -> str:
    wrong = _whole(value)
    if not wrong and isinstance(value, int) and value > _LONGEST_MS:
        return f"{{value_too_large,{value}}}"
    return wrong


def _expiry(value: object) -> str:
    return _milliseconds(value) or ("{value_zero,0}" if value == 0 else "")


def _priority(value: object) -> str:
    wrong = _whole(value)
    if not wrong and isinstance(value, int) and value > MAX_PRIORITY:
        return f"{{max_value_exceeded,{value}}}"
    return wrong


def _string(value: object) -> str:
    return "" if isinstance(value, str | bytes) else f"{{unacceptable_type,{_type_name(value)}}}"


def _flag(value: object) -> str:
    return "" if isinstance(value, bool) else f"{{unacceptable_type,{_type_name(value)}}}"


def _age(value: object) -> str:
    wrong = _string(value)
    if not wrong:
        try:
            age_of(_said(value))
        except ValueError:
            return "invalid_max_age"
    return wrong


def _segment_bytes(value: object) -> str:
    wrong = _whole(value)
    if not wrong and isinstance(value, int) and value > _LARGEST_SEGMENT:
        return f"{{max_value_exceeded,{value}}}"
    return wrong


def _version(value: object) -> str:
    return _whole(value) or ("" if value == 2 else f"unsupported queue version '{value}'")


def _limit(value: object) -> str:
    """Returns what is wrong with a limit, or "". -1 means unlimited."""
    return "" if same(value, -1) else _whole(value)


def _overflow(value: object) -> str:
    return _string(value) or ("" if _said(value) in _OVERFLOWS else "invalid_overflow")


def _strategy(value: object) -> str:
    known = ("at-most-once", "at-least-once")
    return _string(value) or ("" if _said(value) in known else "invalid_dlx_strategy")


def _queue_type(value: object) -> str:
    return _string(value) or ("" if _said(value) in _TYPES else f"unsupported queue type '{_said(value)}'")


def _anything(value: object) -> str:
    return ""


_OVERFLOWS: Final = {one.value: one for one in Overflow}
_TYPES: Final = {one.value: one for one in QueueType}
_ALL: Final = frozenset(QueueType)
_CLASSIC: Final = frozenset({QueueType.CLASSIC})
_QUORUM: Final = frozenset({QueueType.QUORUM})
_STREAM: Final = frozenset({QueueType.STREAM})
_BOTH: Final = _CLASSIC | _QUORUM

# For each argument: the check of its value, and the queue types that know it.
KNOWN: Final[dict[str, tuple[Callable[[object], str], frozenset[QueueType]]]] = {
    "x-queue-type": (_queue_type, _ALL),
    "x-expires": (_expiry, _BOTH),
    "x-message-ttl": (_milliseconds, _BOTH),
    "x-dead-letter-exchange": (_string, _BOTH),
    "x-dead-letter-routing-key": (_string, _BOTH),
    "x-dead-letter-strategy": (_strategy, _QUORUM),
    "x-max-length": (_whole, _BOTH),
    "x-max-length-bytes": (_whole, _ALL),
    "x-max-in-memory-length": (_whole, _QUORUM),
    "x-max-in-memory-bytes": (_whole, _QUORUM),
    "x-max-priority": (_priority, _CLASSIC),
    "x-overflow": (_overflow, _BOTH),
    "x-queue-version": (_version, _CLASSIC),
    "x-queue-mode": (_anything, _CLASSIC),
    "x-single-active-consumer": (_flag, _BOTH),
    "x-delivery-limit": (_limit, _QUORUM),
    "x-quorum-initial-group-size": (_whole, _QUORUM),
    "x-max-age": (_age, _STREAM),
    "x-stream-max-segment-size-bytes": (_segment_bytes, _STREAM),
    "x-stream-filter-size-bytes": (_whole, _STREAM),
    "x-initial-cluster-size": (_whole, _STREAM),
    "x-queue-leader-locator": (_string, _ALL),
    "x-consumer-timeout": (_whole, _QUORUM),
}


def _said(value: object) -> str:
    return text(value) if isinstance(value, bytes) else str(value)


_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "long",
    str: "longstr",
    bytes: "longstr",
    bytearray: "binary",
    float: "double",
    Decimal: "decimal",
    datetime: "timestamp",
    dict: "table",
    list: "array",
}


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), "void")


def parse(arguments: Table, queue: bytes, vhost: str) -> QueueArguments:
    """Returns the parsed `arguments`. Refuses invalid ones with PRECONDITION_FAILED."""
    which = f"queue '{text(queue)}' in vhost '{vhost}'"
    _check("x-queue-type", arguments, which)
    kind = _TYPES[_said(arguments.get("x-queue-type", "classic"))]
    for name in KNOWN:
        _check(name, arguments, which)
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        detail = "routing_key_but_no_dlx_defined"
        raise precondition(f"invalid arg 'x-dead-letter-routing-key' for {which}: {detail}")
    for name in arguments:
        if name in KNOWN and kind not in KNOWN[name][1]:
            raise precondition(f"invalid arg '{name}' for {which} of queue type rabbit_{kind.value}_queue")
    return parsed(kind, arguments)


def _check(name: str, arguments: Table, which: str) -> None:
    if name in arguments:
        wrong = KNOWN[name][0](arguments[name])
        if wrong:
            raise precondition(f"invalid arg '{name}' for {which}: {wrong}")


def parsed(kind: QueueType, arguments: Table) -> QueueArguments:
    """Parses arguments that have already been checked."""
    quorum = kind is QueueType.QUORUM
    overflow = _OVERFLOWS[_said(arguments.get("x-overflow", "drop-head"))]
    if quorum and overflow is Overflow.REJECT_PUBLISH_DLX:
        overflow = Overflow.DROP_HEAD  # as in RabbitMQ, which logs that quorum queues do not support it
    return QueueArguments(
        type=kind,
        message_ttl=_number(arguments, "x-message-ttl", -1),
        expires=_number(arguments, "x-expires", -1),
        max_length=_number(arguments, "x-max-length", -1),
        max_bytes=_number(arguments, "x-max-length-bytes", -1),
        overflow=overflow,
        dead_letter_exchange=_name(arguments, "x-dead-letter-exchange"),
        dead_letter_key=_name(arguments, "x-dead-letter-routing-key"),
        max_priority=QUORUM_PRIORITIES if quorum else _number(arguments, "x-max-priority", 0),
        delivery_limit=_number(arguments, "x-delivery-limit", _QUORUM_DELIVERIES if quorum else -1),
        single_active=arguments.get("x-single-active-consumer") is True,
        max_age=age_of(_said(arguments["x-max-age"])) if "x-max-age" in arguments else -1,
        segment_bytes=_number(arguments, "x-stream-max-segment-size-bytes", -1),
    )


def _number(arguments: Table, name: str, otherwise: int) -> int:
    value = arguments.get(name, otherwise)
    assert isinstance(value, int)
    return value


def _name(arguments: Table, name: str) -> bytes | None:
    value = arguments.get(name)
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None
