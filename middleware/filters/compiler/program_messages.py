"""The part of a generated program that tells the messages of a packet apart (Camus, section VI).

Several passes read one packet. In pass n the parser shifts over n messages without reading them, and reads
the fields of the next; the tables give the ports that want it, and the pass keeps them as mask n and has the
packet resubmitted. The last pass reads all messages whole, copies go to every port, and each copy loses the
messages that its port does not want. Masks lie in metadata, which v1model keeps for replicas; the paper hides
them in an unused header field, as its switch does not.

Messages behind the first `most` are not told apart: they stay in the copy for every port that rules name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .schema import Header, Messages, Schema

MASK_PORTS: Final = 64  # ports of a mask: 0 to 63
MAX_MESSAGES: Final = 64  # told apart of one packet; each is a pass
BODY_BITS: Final = 8 * 9216  # of the longest message: a jumbo frame
RAW: Final = "tc_messages"
LIST: Final = 1  # the field list that passes keep


def raw_type(found: Messages) -> Iterator[str]:
    """A message whole, whatever it is."""
    yield "header tc_message_t {"
    yield f"    bit<{found.width}> length;"
    yield f"    varbit<{BODY_BITS}> body;"
    yield "}"


def metadata(found: Messages) -> Iterator[str]:
    kept = f"@field_list({LIST})"
    yield f"    {kept} bit<8> place;  // of the message that this pass reads"
    yield f"    {kept} bit<1> sorted;  // each message has its mask"
    for number in range(found.most):
        yield f"    {kept} bit<{MASK_PORTS}> mask{number};"
    yield f"    bit<{MASK_PORTS}> ports;  // of this pass's message"
    yield "    bit<8> until;  // messages to pass by"
    yield "    bit<32> bytes;  // read of the message"


def message_headers(schema: Schema) -> list[str]:
    """Returns the names of the headers that lie in a message."""
    assert schema.messages is not None
    names = [schema.messages.message]
    for name in names:
        names += [one.next for one in schema.nexts if one.header == name and one.next not in names]
    return names


def leave(found: Messages) -> Iterator[str]:
    """Out of the header that counts the messages: to the one of this pass, or to all."""
    yield "        meta.until = meta.place;"
    yield f"        transition select(hdr.{found.header}.{found.count}, meta.sorted) {{"
    yield "            (0, _): accept;"
    yield "            (_, 1): tc_whole;"
    yield "            default: tc_shift;"
    yield "        }"


def states(found: Messages) -> Iterator[str]:
    """The parser's loops. A message whose headers are longer than itself is an error."""
    length = f"(bit<32>) packet.lookahead<bit<{found.width}>>() * 8"
    loops = (
        ("shift", found.message, f"packet.advance({length} + {found.width});"),
        ("whole", "accept", f"packet.extract(hdr.{RAW}.next, {length});"),
    )
    for name, after, step in loops:
        yield from ("", f"    state tc_{name} {{", "        transition select(meta.until) {")
        yield from (f"            0: {after};", f"            default: tc_{name}_one;", "        }", "    }")
        yield from ("", f"    state tc_{name}_one {{", f"        {step}")
        yield from ("        meta.until = meta.until - 1;", f"        transition tc_{name};", "    }")
    yield from ("", "    state tc_fits {")
    whole = f"(bit<32>) hdr.{found.message}.{found.length} + {found.width // 8}"
    yield f"        verify(meta.bytes <= {whole}, error.HeaderTooShort);"
    yield from ("        transition accept;", "    }")


def bytes_of(header: Header) -> int:
    return sum(field.width for field in header.fields) // 8


def ingress(found: Messages, one_pass: Iterator[str]) -> Iterator[str]:
    """`one_pass` applies the tables to one message, or to a packet that has none."""
    there = f"hdr.{found.header}.isValid()"
    count = f"hdr.{found.header}.{found.count}"
    yield f"if ({there} && standard.parser_error != error.NoError) {{"
    yield "    mark_to_drop(standard);  // its messages are cut off: nobody can read them"
    yield "} else if (meta.sorted == 1) {"
    yield "    everybody.apply();"
    yield "} else {"
    yield from ("    " + line for line in one_pass)
    yield f"    if ({there} && {count} > 1) {{"
    for number in range(found.most):
        head = "if" if number == 0 else "} else if"
        yield f"        {head} (meta.place == {number}) {{"
        yield f"            meta.mask{number} = meta.ports;"
    yield "        }"
    yield "        meta.place = meta.place + 1;"
    yield f"        if (meta.place == {found.most} || (bit<32>) meta.place == (bit<32>) {count}) {{"
    yield "            meta.sorted = 1;"
    yield "        }"
    yield f"        resubmit_preserving_field_list({LIST});"
    yield "    }"
    yield "}"


def egress(found: Messages) -> Iterator[str]:
    """Takes the messages out of a copy that its port does not want."""
    count = f"hdr.{found.header}.{found.count}"
    yield "if (meta.sorted == 1) {"
    yield "    bit<16> removed = 0;"
    yield f"    bit<{MASK_PORTS}> port = {MASK_PORTS}w1 << (bit<8>) standard.egress_port;"
    for number in range(found.most):
        message = f"hdr.{RAW}[{number}]"
        yield f"    if ({message}.isValid() && meta.mask{number} & port == 0) {{"
        yield f"        removed = removed + (bit<16>) {message}.length + {found.width // 8};"
        yield f"        {message}.setInvalid();"
        yield f"        {count} = {count} - 1;"
        yield "    }"
    yield f"    if ({count} == 0) {{"
    yield "        mark_to_drop(standard);"
    if found.pruned:
        yield "    } else if (removed != 0) {"
        yield "        pruned(hdr, removed);"
    yield "    }"
    yield "}"
