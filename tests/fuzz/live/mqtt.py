"""Packets of MQTT 3.1, 3.1.1 and 5: whole ones with random fields, and changed ones."""

from __future__ import annotations

import random
import struct

from .changes import blob, name, number, sometimes_changed

_FIXED_PROPERTIES = {  # identifier: bytes of its value
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
_TEXT_PROPERTIES = (0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F)


def conversation(rng: random.Random) -> list[bytes]:
    version = rng.choice((3, 4, 5, 5))
    packets = [_connect(version, rng)] if rng.random() < 0.9 else []
    packets += [_packet(version, rng) for _ in range(rng.randrange(12))]
    return [packets[0], *(sometimes_changed(one, rng) for one in packets[1:])] if packets else [blob(rng)]


def _connect(version: int, rng: random.Random) -> bytes:
    flags = rng.choice((0, 2, 2, 2, 0x06, 0x2E, number(rng, 8, signed=False)))
    head = _text(b"MQIsdp" if version == 3 else b"MQTT") + bytes([version, flags])
    body = head + struct.pack(">H", rng.choice((0, 1, 60))) + _properties(version, rng)
    body += _text(rng.choice((b"", b"one", b"two", b"three")))
    if flags & 4:
        body += _properties(version, rng) + _text(name(rng).encode()) + _text(blob(rng))
    if flags & 0x80:
        body += _text(b"guest")
    if flags & 0x40:
        body += _text(b"guest")
    data = _framed(0x10, body)
    return sometimes_changed(data, rng, 0.1)


def _packet(version: int, rng: random.Random) -> bytes:
    kind = rng.choice((3, 3, 3, 8, 8, 10, 4, 5, 6, 7, 12, 14, 15, rng.randrange(16)))
    flags = {3: rng.randrange(16), 6: 2, 8: 2, 10: 2}.get(kind, 0)
    number_of_packet = struct.pack(">H", rng.choice((0, 1, 2, 3, 65535)))
    match kind:
        case 3:
            body = _text(name(rng).encode()) + (number_of_packet if flags & 6 else b"")
            body += _properties(version, rng) + blob(rng, 200)
        case 8:
            body = number_of_packet + _properties(version, rng)
            for _ in range(rng.randrange(4)):
                body += _text(_filter(rng)) + bytes([rng.choice((0, 1, 2, rng.randrange(256)))])
        case 10:
            body = number_of_packet + _properties(version, rng)
            body += b"".join(_text(_filter(rng)) for _ in range(rng.randrange(4)))
        case 12:
            body = b""
        case _:
            body = number_of_packet + bytes([rng.randrange(256)]) + _properties(version, rng)
            body = body[: rng.randrange(len(body) + 1)]
    return _framed(kind << 4 | flags, body)


def _filter(rng: random.Random) -> bytes:
    share = rng.choice(("", "", "", "$share/g/", "$share/", "$share/g"))
    return (share + "/".join(name(rng) for _ in range(rng.randrange(1, 4)))).encode()


def _properties(version: int, rng: random.Random) -> bytes:
    if version != 5:
        return b""
    found = b""
    for _ in range(rng.choice((0, 0, 0, 1, 2, 5))):
        found += _property(rng)
    return _length(len(found)) + found


def _property(rng: random.Random) -> bytes:
    way = rng.random()
    if way < 0.5:
        identifier = rng.choice(list(_FIXED_PROPERTIES))
        return bytes([identifier]) + rng.randbytes(_FIXED_PROPERTIES[identifier])
    if way < 0.8:
        return bytes([rng.choice(_TEXT_PROPERTIES)]) + _text(name(rng).encode())
    if way < 0.9:
        return b"\x26" + _text(name(rng).encode()) + _text(blob(rng))
    return b"\x0b" + _length(number(rng, 28, signed=False))


def _text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def _length(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def _framed(first: int, body: bytes) -> bytes:
    return bytes([first]) + _length(len(body)) + body
