"""MQTT 5's properties of a message as record headers, and back: how they travel in records.

| property (section 3.3.2.3)   | header                                              |
| ---------------------------- | --------------------------------------------------- |
| payload format indicator     | `mqtt.payload-format`, one byte, 0 or 1             |
| content type                 | `mqtt.content-type`, UTF-8                          |
| response topic               | `mqtt.response-topic`, UTF-8                        |
| correlation data             | `mqtt.correlation-data`, bytes                      |
| user property                | its own name; `mqtt.user.` before it where that begins with `mqtt.` |

Properties are the bytes of a PUBLISH packet without their length, without alias, expiry and subscription
identifiers: those do not outlive a hop, and an expiry travels as a time. Other headers become user
properties; what MQTT cannot spell is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from treecast.middleware.model.records import Headers

OWN: Final = "mqtt."
USER: Final = "mqtt.user."

_PAYLOAD_FORMAT: Final = 0x01
_USER_PROPERTY: Final = 0x26
_NAMES: Final = {0x03: "mqtt.content-type", 0x08: "mqtt.response-topic", 0x09: "mqtt.correlation-data"}
_FORMAT_NAME: Final = "mqtt.payload-format"
_IDENTIFIERS: Final = {name: identifier for identifier, name in _NAMES.items()}
_LONGEST: Final = 0xFFFF


def headers_of(properties: bytes) -> Headers:
    """The headers that say what `properties` say, in their order. ValueError where they are none."""
    found: list[tuple[str, bytes | None]] = []
    position = 0
    while position < len(properties):
        identifier = properties[position]
        position += 1
        if identifier == _PAYLOAD_FORMAT:
            found.append((_FORMAT_NAME, properties[position : position + 1]))
            position += 1
            continue
        value, position = _some(properties, position)
        if identifier == _USER_PROPERTY:
            name = value.decode()
            value, position = _some(properties, position)
            found.append((USER + name if name.startswith(OWN) else name, value))
        elif identifier in _NAMES:
            found.append((_NAMES[identifier], value))
        else:
            raise ValueError(f"property {identifier:#x} of a message that is passed on")
    return tuple(found)


def _some(data: bytes, position: int) -> tuple[bytes, int]:
    begin = position + 2
    end = begin + int.from_bytes(data[position:begin], "big")
    if end > len(data):
        raise ValueError("a property is longer than all of them")
    return data[begin:end], end


def properties_of(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """The properties that say what `headers` say. Of each of the first four kinds the first one counts."""
    out = bytearray()
    seen: set[str] = set()
    for name, value in headers:
        if value is None:
            value = b""
        if name in _IDENTIFIERS or name == _FORMAT_NAME:
            if name not in seen:
                seen.add(name)
                out += _known(name, value)
        elif not name.startswith(OWN):
            out += _user(name, value)
        elif name.startswith(USER):
            out += _user(name[len(USER) :], value)
    return bytes(out)


def _known(name: str, value: bytes) -> bytes:
    if name == _FORMAT_NAME:
        return bytes([_PAYLOAD_FORMAT]) + value if value in (b"\0", b"\1") else b""
    if len(value) > _LONGEST or (name != "mqtt.correlation-data" and not _is_text(value)):
        return b""
    if name == "mqtt.response-topic" and (not value or b"+" in value or b"#" in value):
        return b""
    return bytes([_IDENTIFIERS[name]]) + len(value).to_bytes(2, "big") + value


def _user(name: str, value: bytes) -> bytes:
    key = name.encode("utf-8", "surrogateescape")
    if max(len(key), len(value)) > _LONGEST or not (_is_text(key) and _is_text(value)):
        return b""
    parts = (bytes([_USER_PROPERTY]), len(key).to_bytes(2, "big"), key, len(value).to_bytes(2, "big"), value)
    return b"".join(parts)


def _is_text(data: bytes) -> bool:
    """Whether MQTT takes it as a UTF-8 string (section 1.5.4)."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data
