"""STARE's own receiver gets no datagrams of the fabric: the kernel drops them."""

from __future__ import annotations

import socket

import pytest

from treecast.middleware.fabric.carriers.ip_multicast import refuse_segments
from treecast.middleware.wire.stare import (
    HEADER_SIZE,
    LAST_STATE,
    LAST_VNF,
    StareHeader,
    StareKind,
    encode_header,
)

OF_FABRIC = [encode_header(StareHeader(StareKind.PUBLISH, state)) + b"segment" for state in (256, LAST_STATE)]
OTHERS = [
    encode_header(StareHeader(StareKind.PUBLISH, 256, 1)) + b"value",
    encode_header(StareHeader(StareKind.PUBLISH, LAST_STATE, 64, 5, 2, 1)) + b"value",
    encode_header(StareHeader(StareKind.PUBLISH, 300, LAST_VNF)),
    encode_header(StareHeader(StareKind.SUB_ACK, 256)),
    encode_header(StareHeader(StareKind.SUB_REGISTER, LAST_STATE)),
    bytes(HEADER_SIZE - 1),  # shorter than a header: STARE reports it
    b"",
]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_only_what_carries_a_segment_is_dropped(family: int) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with (
        socket.socket(family, socket.SOCK_DGRAM) as receiver,
        socket.socket(family, socket.SOCK_DGRAM) as sender,
    ):
        refuse_segments(receiver)
        receiver.bind((host, 0))
        receiver.settimeout(10)
        for data in (*OF_FABRIC, *OTHERS, *OF_FABRIC, OTHERS[0]):
            sender.sendto(data, receiver.getsockname())
        assert [receiver.recv(100) for _ in range(len(OTHERS) + 1)] == [*OTHERS, OTHERS[0]]
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(100)
