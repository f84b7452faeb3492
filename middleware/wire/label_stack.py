"""The label stack: a packet's tree as a list of labels.

  Ethernet type 0x9999, or UDP port 39321 through switches without label support
  | entry count (16) | entry (16) ... | segment (wire.segment)
  entry:  type (2) | id (14)          type 0 hop, 1 stop, 2 tree; 3 is refused

Big-endian. Each type has its own id space; hop and stop ids name directed links. All stops follow all trees,
since a switch looks for a copy's stop only behind the label that made the copy. Only hosts accept count 0;
hosts skip the labels that remain. Source: the thesis' listings 5.1 and 5.3, DESIGN's section on formats.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

ETHERTYPE: Final = 0x9999
UDP_PORT: Final = 39321
COUNT_SIZE: Final = 2
LABEL_SIZE: Final = 2
LAST_ID: Final = (1 << 14) - 1
# The limit of switches, also stated in p4/include/labels.p4; they drop longer stacks.
MOST_LABELS: Final = 128

_COUNT: Final = struct.Struct(">H")


class LabelKind(enum.IntEnum):
    """The two bits that begin an entry."""

    HOP = 0
    STOP = 1
    TREE = 2


class LabelError(ValueError):
    """Bytes that are not a label stack."""


def hop(link: int) -> int:
    """Returns the label that forwards over one link."""
    return _label(LabelKind.HOP, link)


def stop(link: int) -> int:
    """Returns the label that stops a tree from forwarding over one link."""
    return _label(LabelKind.STOP, link)


def tree(number: int) -> int:
    """Returns the label of a virtual tree."""
    return _label(LabelKind.TREE, number)


def _label(kind: int, number: int) -> int:
    if not 0 <= number <= LAST_ID:
        raise ValueError(f"id {number} does not fit 14 bits")
    return kind << 14 | number


def kind_of(label: int) -> int:
    return label >> 14


def id_of(label: int) -> int:
    return label & LAST_ID


def stack_size(labels: int) -> int:
    """Returns the size in bytes of a stack of `labels` labels."""
    return COUNT_SIZE + LABEL_SIZE * labels


def encode_labels(labels: list[int]) -> bytes:
    """Returns count and entries. Raises ValueError if a label is invalid or there are too many."""
    if len(labels) > MOST_LABELS:
        raise ValueError(f"{len(labels)} labels; switches have room for {MOST_LABELS}")
    for label in labels:
        if not 0 <= label < 3 << 14:
            raise ValueError(f"{label:#x} is not a label")
    return struct.pack(f">H{len(labels)}H", len(labels), *labels)


def decode_labels(
    data: bytes | bytearray | memoryview, position: int = 0, *, empty: bool = False
) -> tuple[list[int], int]:
    """Returns the labels at `position`, and the position after them.

    Raises LabelError for a truncated or too long stack, an entry of type 3, and count 0 unless `empty` (as on
    hosts).
    """
    if position < 0 or len(data) - position < COUNT_SIZE:
        raise LabelError("the bytes end before the entry count does")
    (count,) = _COUNT.unpack_from(data, position)
    start = position + COUNT_SIZE
    if count == 0 and not empty:
        raise LabelError("only hosts accept a stack without labels")
    if count > MOST_LABELS:
        raise LabelError(f"{count} labels; switches have room for {MOST_LABELS}")
    if len(data) - start < count * LABEL_SIZE:
        raise LabelError(f"the bytes end before {count} labels do")
    labels = list(struct.unpack_from(f">{count}H", data, start))
    for label in labels:
        if label >= 3 << 14:
            raise LabelError(f"entry {label:#06x} has the unknown type 3")
    return labels, start + count * LABEL_SIZE


def end_of_labels(data: memoryview, start: int, end: int) -> int:
    """Returns the position after the stack at `start`, whatever its labels; -1 if no whole stack ends before
    `end`.
    """
    if end - start < COUNT_SIZE:
        return -1
    count: int = _COUNT.unpack_from(data, start)[0]
    at = start + COUNT_SIZE + count * LABEL_SIZE
    return at if count <= MOST_LABELS and at <= end else -1
