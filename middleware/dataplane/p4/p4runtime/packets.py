"""PacketIn and PacketOut: the header with `@controller_header` as P4Runtime's metadata, and back.

A switch hands a packet for the controller out with the "packet_in" header in front, and takes one from it
with the "packet_out" header in front. Programs without such headers exchange bare packets.
"""

from __future__ import annotations

from finsy.proto import p4r

from .bytestrings import decode, encode
from .errors import invalid
from .schema import Metadata, Schema

MOST_BYTES = 1 << 16


def packet_in(schema: Schema, data: bytes) -> p4r.PacketIn | None:
    """The message of a packet for the controller; None where the packet is shorter than its header."""
    header = schema.metadata.get("packet_in")
    if header is None:
        return p4r.PacketIn(payload=data)
    size = _size(header)
    if len(data) < size:
        return None
    left, value = 8 * size, int.from_bytes(data[:size], "big")
    message = p4r.PacketIn(payload=data[size:])
    for field in header.fields:
        left -= field.width
        part = value >> left & ((1 << field.width) - 1)
        message.metadata.add(metadata_id=field.id, value=encode(part))
    return message


def packet_out(schema: Schema, message: p4r.PacketOut) -> bytes:
    """The bytes that go to the switch. INVALID_ARGUMENT where the metadata is not the header's."""
    if len(message.payload) > MOST_BYTES:
        raise invalid(f"a packet-out has at most {MOST_BYTES} bytes")
    header = schema.metadata.get("packet_out")
    if header is None:
        if message.metadata:
            raise invalid("the program has no header for packets from the controller: leave metadata out")
        return message.payload
    given = {one.metadata_id: one.value for one in message.metadata}
    wanted = {field.id: field for field in header.fields}
    unknown = given.keys() - wanted.keys()
    if unknown or len(given) < len(message.metadata):
        raise invalid(
            f"the packet-out header has no field {min(unknown)}" if unknown else "metadata comes twice"
        )
    value = 0
    for field in header.fields:
        if field.id not in given:
            raise invalid(f"the packet-out lacks {field.name} (id {field.id})")
        value = value << field.width | decode(given[field.id], field.width, field.name)
    size = _size(header)
    bits = sum(field.width for field in header.fields)
    return (value << (8 * size - bits)).to_bytes(size, "big") + message.payload


def _size(header: Metadata) -> int:
    return (sum(field.width for field in header.fields) + 7) // 8
