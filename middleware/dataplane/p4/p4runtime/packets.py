"""PacketIn and PacketOut: the header with `@controller_header` as P4Runtime's metadata, and back.

A switch outputs a packet for the controller with the "packet_in" header in front, and accepts one from it
with the "packet_out" header in front. Programs without such headers exchange bare packets.
"""

from __future__ import annotations

from collections.abc import Mapping

from finsy.proto import p4r

from .errors import Code, P4RuntimeError, invalid
from .schema import Field, Metadata, Schema

MOST_BYTES = 1 << 16


def packet_in(schema: Schema, data: bytes) -> p4r.PacketIn | None:
    """Returns the message of a packet for the controller; None if the packet is shorter than its header."""
    header = schema.metadata.get("packet_in")
    if header is None:
        return p4r.PacketIn(payload=data)
    size = _size(header)
    if len(data) < size:
        return None
    left, value = 8 * size, int.from_bytes(data[:size], "big")
    message, fields = p4r.PacketIn(payload=data[size:]), {field.id: field for field in header.fields}
    for width, number in header.wire:
        left -= width
        if number:
            part = value >> left & ((1 << width) - 1)
            message.metadata.add(metadata_id=number, value=fields[number].data(part))
    return message


def packet_out(schema: Schema, message: p4r.PacketOut) -> bytes:
    """Returns the bytes that go to the switch, hidden fields being 0. Raises INVALID_ARGUMENT if the metadata
    is not the header's.
    """
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
    for width, number in header.wire:
        value = value << width | (_part(wanted[number], given, width) if number else 0)
    size = _size(header)
    bits = sum(width for width, _ in header.wire)
    return (value << (8 * size - bits)).to_bytes(size, "big") + message.payload


def _part(field: Field, given: Mapping[int, bytes], width: int) -> int:
    """Returns a field's bits."""
    if field.id not in given:
        raise invalid(f"the packet-out lacks {field.name} (id {field.id})")
    number = field.number(given[field.id], field.name)
    if number >> width:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{field.name}: {number:#x} does not fit into {width} bits")
    return number


def _size(header: Metadata) -> int:
    return (sum(width for width, _ in header.wire) + 7) // 8
