"""Frames of AMQP 0-9-1: methods of all classes with random arguments, content, and changed ones."""

from __future__ import annotations

import random
import struct
from typing import Any

from pamqp import commands, frame

from .changes import NAMES, blob, name, number, sometimes_changed

_START = b"AMQP\0\0\x09\x01"
_CHANNELS = (1, 1, 1, 2, 0, 3)
_CLASSES = [
    getattr(section, one)
    for section in (
        commands.Channel,
        commands.Exchange,
        commands.Queue,
        commands.Basic,
        commands.Tx,
        commands.Confirm,
        commands.Connection,
    )
    for one in dir(section)
    if isinstance(getattr(section, one), type)
    and hasattr(getattr(section, one), "frame_id")
    and one != "RecoverAsync"  # pamqp warns that it is deprecated
]


def conversation(rng: random.Random) -> list[bytes]:
    opened = [
        _START,
        _marshalled(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0),
        _marshalled(commands.Connection.TuneOk(2047, 131072, 0), 0),
        _marshalled(commands.Connection.Open("/"), 0),
        _marshalled(commands.Channel.Open(), 1),
    ]
    if rng.random() < 0.1:
        opened = [sometimes_changed(one, rng) for one in opened[: rng.randrange(1, 5)]]
    return opened + [sometimes_changed(_any(rng), rng) for _ in range(rng.randrange(1, 16))]


def _any(rng: random.Random) -> bytes:
    way, channel = rng.random(), rng.choice(_CHANNELS)
    if way < 0.15:
        return _published(rng, channel)
    if way < 0.2:
        return struct.pack(">BHI", rng.randrange(10), channel, 4) + rng.randbytes(4) + b"\xce"
    kind = rng.choice(_CLASSES)
    try:
        return _marshalled(_filled(kind, rng), channel)
    except (ValueError, TypeError, OverflowError, UnicodeEncodeError, struct.error):
        return _marshalled(commands.Queue.Declare(queue="a"), channel)


def _published(rng: random.Random, channel: int) -> bytes:
    body = blob(rng, 300)
    properties = commands.Basic.Properties(
        headers={"h": _table_value(rng)},
        priority=rng.choice((None, 0, 9)),
        expiration=rng.choice((None, "0", "x")),
    )
    header = struct.pack(">HHQ", 60, 0, len(body) if rng.random() < 0.8 else number(rng, 32, signed=False))
    payload = header + properties.marshal()
    publish = commands.Basic.Publish(exchange=rng.choice(("", "amq.topic", "a")), routing_key=name(rng))
    return (
        _marshalled(publish, channel)
        + struct.pack(">BHI", 2, channel, len(payload))
        + payload
        + b"\xce"
        + struct.pack(">BHI", 3, channel, len(body))
        + body
        + b"\xce"
    )


def _filled(kind: Any, rng: random.Random) -> Any:
    made = kind()
    for attribute in kind.__slots__:
        found = _argument(kind.amqp_type(attribute), rng)
        if not attribute.startswith("reserved") and found is not None:
            setattr(made, attribute, found)
    return made


def _argument(kind: str, rng: random.Random) -> Any:
    match kind:
        case "bit":
            return rng.random() < 0.3
        case "octet":
            return number(rng, 8, signed=False)
        case "short":
            return number(rng, 16, signed=False)
        case "long":
            return number(rng, 32, signed=False)
        case "longlong":
            return number(rng, 63, signed=False)
        case "shortstr":
            return rng.choice((*NAMES, "direct", "topic", "fanout", "headers", "amq.topic"))[:120]
        case "longstr":
            return name(rng)
        case "table":
            return {rng.choice(_ARGUMENTS): _table_value(rng) for _ in range(rng.randrange(3))}
        case _:
            return None


_ARGUMENTS = (
    *(
        "x-max-length",
        "x-message-ttl",
        "x-expires",
        "x-dead-letter-exchange",
        "x-queue-type",
        "x-max-priority",
    ),
    *("x-overflow", "x-single-active-consumer", "x-match", "x-priority", "alternate-exchange", "a", "b"),
)


def _table_value(rng: random.Random, depth: int = 0) -> Any:
    if depth < 4 and rng.random() < 0.2:
        return {name(rng)[:40]: _table_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    if depth < 4 and rng.random() < 0.1:
        return [_table_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return rng.choice(
        (
            0,
            1,
            -1,
            1000,
            2**31 - 1,
            2**62,
            True,
            None,
            0.5,
            "stream",
            "quorum",
            "all",
            name(rng),
            bytearray(blob(rng)),
        )
    )


def _marshalled(method: Any, channel: int) -> bytes:
    return bytes(frame.marshal(method, channel))
