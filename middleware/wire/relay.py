"""The header of what a host sends on to others: before a segment, in a UDP datagram of the fabric's own port.

     0  form uint8: 0xA0 | kind; no segment begins so, whose first four bits are its version
     1  hops uint8: how often it may still be sent on, from 1
     2  length uint8: bytes of the list
     3  list of hosts: ascending ids, each as its difference to the one before (the first: to 0), 7 bits a
        byte, lowest first, bit 7 set where more follow
     .  segment

| kind | | list | segment |
| --- | --- | --- | --- |
| FORWARD | for the hosts of the list, the receiver among them | 1 to 64 hosts | of a stream, or a probe |
| HELLO | asks whether the receiving host sends on | empty | a probe: who asks, and a number |
| HERE | answers it | empty | a probe: who answers, and the number |

The segment's tag authenticates it: a host sends on, and answers, only what carries a tag of its cluster. The
list is not under the tag, because each host that sends on makes it shorter. A list can name nobody but hosts
of the cluster, and each host on the way takes itself off it, so that nothing goes round.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

FORM: Final = 0xA0
MOST_HOSTS: Final = 64
MOST_HOPS: Final = 16
LIST_BYTES: Final = 96  # of a list that is sent; more is received
OVERHEAD: Final = 3 + LIST_BYTES
_FIXED: Final = 3
_MOST_ID: Final = 2**31 - 1

Data = bytes | bytearray | memoryview


class RelayKind(enum.IntEnum):
    FORWARD = 0
    HELLO = 1
    HERE = 2


class RelayFault(enum.Enum):
    """Why a packet is not sent on. Counted by name."""

    CUT_SHORT = "it ends within the header of what is sent on"
    RELAY_KIND = "an unknown kind of what is sent on"
    HOST_LIST = "a list of hosts that does not ascend, is too long, or does not fit the kind"
    HOPS = "it was sent on too often"
    NOT_NAMED = "to be sent on by another host"


class RelayError(ValueError):
    """Bytes that are refused; `fault` is what to count."""

    def __init__(self, fault: RelayFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class RelayHeader(Struct, frozen=True):
    kind: RelayKind
    hops: int
    hosts: tuple[int, ...] = ()


def is_relayed(first: int) -> bool:
    """Whether a datagram with this first byte has such a header, and is no bare segment."""
    return first & 0xF0 == FORM


def list_bytes(hosts: Iterable[int]) -> int:
    """How long the list of these, which ascend, is."""
    return len(_pack(hosts))


def encode_header(header: RelayHeader) -> bytes:
    """ValueError where hosts do not ascend, or it is more than a header may hold."""
    _check(header)
    packed = _pack(header.hosts)
    if len(packed) > LIST_BYTES:
        raise ValueError(f"a list of {len(packed)} bytes: at most {LIST_BYTES}")
    return bytes((FORM | header.kind, header.hops, len(packed))) + packed


def decode_header(data: Data, start: int = 0, end: int | None = None) -> tuple[RelayHeader, int]:
    """The header at `start`, and where the segment begins. RelayError where it is none."""
    limit = len(data) if end is None else end
    if limit - start < _FIXED:
        raise RelayError(RelayFault.CUT_SHORT)
    kind, hops, length = data[start] & 0x0F, data[start + 1], data[start + 2]
    body = start + _FIXED
    if not is_relayed(data[start]) or kind >= len(RelayKind):
        raise RelayError(RelayFault.RELAY_KIND)
    if body + length > limit:
        raise RelayError(RelayFault.CUT_SHORT)
    if not 1 <= hops <= MOST_HOPS:
        raise RelayError(RelayFault.HOPS)
    header = RelayHeader(RelayKind(kind), hops, _unpack(bytes(data[body : body + length])))
    try:
        _check(header)
    except ValueError:
        raise RelayError(RelayFault.HOST_LIST) from None
    return header, body + length


def _check(header: RelayHeader) -> None:
    count = len(header.hosts)
    if not 1 <= header.hops <= MOST_HOPS:
        raise ValueError(f"{header.hops} hops: 1 to {MOST_HOPS}")
    if bool(count) is not (header.kind is RelayKind.FORWARD) or count > MOST_HOSTS:
        raise ValueError(f"a list of {count} hosts for {header.kind.name}")
    if any(left >= right for left, right in zip((0, *header.hosts), header.hosts, strict=False)):
        raise ValueError("hosts of the list do not ascend from 1")
    if count and header.hosts[-1] > _MOST_ID:
        raise ValueError(f"host {header.hosts[-1]} has no id of a host")


def _pack(hosts: Iterable[int]) -> bytes:
    out, before = bytearray(), 0
    for host in hosts:
        number, before = max(host - before, 0), host
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def _unpack(data: bytes) -> tuple[int, ...]:
    """RelayError where a number does not end, is larger than a host's id or longer than it has to be."""
    hosts: list[int] = []
    number = shift = before = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80:
            if shift >= 35:
                raise RelayError(RelayFault.HOST_LIST)
            continue
        if not byte and shift > 7:
            raise RelayError(RelayFault.HOST_LIST)
        before += number
        hosts.append(before)
        number = shift = 0
    if shift:
        raise RelayError(RelayFault.HOST_LIST)
    return tuple(hosts)
