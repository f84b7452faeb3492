"""MQTT 5's message properties as record headers, and back.

| property (section 3.3.2.3)   | header                                              |
| ---------------------------- | --------------------------------------------------- |
| payload format indicator     | `mqtt.payload-format`, one byte, 0 or 1             |
| content type                 | `mqtt.content-type`, UTF-8                          |
| response topic               | `mqtt.response-topic`, UTF-8                        |
| correlation data             | `mqtt.correlation-data`, bytes                      |
| user property                | its own name; with prefix `mqtt.user.` if that begins with `mqtt.` |

Properties are the bytes of a PUBLISH packet without their length, topic alias, message expiry and
subscription identifiers: those apply to one hop only, and an expiry travels as a time. Other headers become
user properties; headers that MQTT cannot encode are dropped.
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
    """Returns the headers for `properties`, in their order. Raises ValueError if the bytes are invalid."""
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
            raise ValueError(f"property {identifier:#x} is not allowed in a forwarded message")
    return tuple(found)


def _some(data: bytes, position: int) -> tuple[bytes, int]:
    begin = position + 2
    end = begin + int.from_bytes(data[position:begin], "big")
    if end > len(data):
        raise ValueError("a property exceeds the property length")
    return data[begin:end], end


def properties_of(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Returns the properties for `headers`. Of each of the first four kinds, the first header counts."""
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
    """Returns whether MQTT accepts the bytes as a UTF-8 string (section 1.5.4)."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data
