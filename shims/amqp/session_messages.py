"""Conversion of AMQP messages: from properties to runs, and to the properties shown to consumers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from treecast.middleware.broker.queues import Death, Run, message

from .codec import PRECONDITION_FAILED, PUBLISH, AmqpError
from .codec_methods import write_value
from .codec_properties import (
    EXPIRATION_BIT,
    HEADERS_BIT,
    REPLY_TO_BIT,
    fields,
    joined,
    look,
    table_of,
    values,
)
from .codec_publish import run_of

REPLY_TO: Final = b"amq.rabbitmq.reply-to"
_MOST: Final = 0xFFFF  # further keys, and bytes of one
_OURS: Final = (b"x-death", b"x-first-death-", b"x-last-death-", b"x-delivery-count")


def single(
    exchange: bytes, key: bytes, properties: bytes, body: bytes, user: str | None, reply: bytes
) -> Run:
    """Creates a run of one message with any properties. Raises AmqpError if they are not acceptable.

    `user` is the only one that it may name as its sender, None for any. `reply` is the queue for direct
    replies of the channel, or b"".
    """
    seen = look(properties, 0, len(properties))
    if seen.user is not None and user is not None and seen.user != user.encode():
        given = seen.user.decode(errors="replace")
        detail = f"user_id property set to '{given}' but authenticated user was '{user}'"
        raise AmqpError(PRECONDITION_FAILED, detail, PUBLISH)
    if seen.reply_to == REPLY_TO:
        properties = _with_reply(properties, reply)
    copies: tuple[bytes, ...] = ()
    hidden: tuple[bytes, ...] = ()
    if seen.headers_end:
        copies, hidden, properties = _further_keys(properties)
    run = run_of(exchange, key, message(properties, body), 1, len(body), seen)
    run.copies, run.hidden_copies = copies, hidden
    return run


def _with_reply(properties: bytes, reply: bytes) -> bytes:
    if not reply:
        raise AmqpError(PRECONDITION_FAILED, "fast reply consumer does not exist", PUBLISH)
    found = values(properties)
    found[REPLY_TO_BIT] = bytes((len(reply),)) + reply
    return joined(found)


def _further_keys(properties: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...], bytes]:
    """Returns (the keys in CC, the keys in BCC, the properties without BCC)."""
    found = values(properties)
    headers = fields(found[HEADERS_BIT])
    of = dict(headers)
    copies, hidden = _keys("CC", of.get(b"CC")), _keys("BCC", of.get(b"BCC"))
    if b"BCC" in of:
        found[HEADERS_BIT] = table_of([field for field in headers if field[0] != b"BCC"])
        properties = joined(found)
    return copies, hidden, properties


def _keys(name: str, value: bytes | None) -> tuple[bytes, ...]:
    """Reads an array of long strings. Raises PRECONDITION_FAILED for another type, or too many."""
    if value is None:
        return ()
    at, found = 5, []
    if value[:1] == b"A":
        while value[at : at + 1] == b"S":
            size = int.from_bytes(value[at + 1 : at + 5], "big")
            found.append(value[at + 5 : at + 5 + size])
            at += 5 + size
    if value[:1] != b"A" or at != len(value):
        raise AmqpError(PRECONDITION_FAILED, f"invalid message: unacceptable type in header {name}", PUBLISH)
    if max(map(len, found), default=0) > _MOST or len(found) > _MOST:
        raise AmqpError(PRECONDITION_FAILED, f"invalid message: more than {_MOST} in header {name}", PUBLISH)
    return tuple(found)


# --- properties shown to consumers


def shown(properties: bytes, deaths: Sequence[Death], deliveries: int) -> bytes:
    """Returns the properties with the server's headers.

    These are the deaths, latest first, and the number of failed deliveries if it is not 0.
    """
    found = values(properties)
    known = fields(found[HEADERS_BIT]) if HEADERS_BIT in found else []
    headers = [field for field in known if not field[0].startswith(_OURS)]
    if deliveries:
        headers.append((b"x-delivery-count", write_value(deliveries)))
    if deaths:
        found.pop(EXPIRATION_BIT, None)
        headers += _death_fields(deaths)
    found[HEADERS_BIT] = table_of(headers)
    return joined(found)


def _death_fields(deaths: Sequence[Death]) -> list[tuple[bytes, bytes]]:
    found = [(b"x-death", write_value([_death_table(death) for death in deaths]))]
    first = next((death for death in deaths if death.first), deaths[-1])
    for when, death in ((b"first", first), (b"last", deaths[0])):
        for what, value in (
            (b"reason", death.reason.encode()),
            (b"queue", death.queue),
            (b"exchange", death.exchange),
        ):
            found.append((b"x-" + when + b"-death-" + what, write_value(_text(value))))
    return found


def _death_table(death: Death) -> dict[str, object]:
    found: dict[str, object] = {
        "count": death.count,
        "reason": death.reason,
        "queue": _text(death.queue),
        "time": datetime.fromtimestamp(death.time, UTC),
        "exchange": _text(death.exchange),
        "routing-keys": [_text(key) for key in death.keys],
    }
    if death.expiration >= 0:
        found["original-expiration"] = str(death.expiration)
    return found


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
