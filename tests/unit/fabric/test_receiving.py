"""How much of what has arrived a socket's turn takes."""

from __future__ import annotations

import enum
import socket
from collections import deque
from random import Random

import pytest

from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.streams import Streams
from treecast.middleware.fabric.sockets.udp import Inlet
from treecast.middleware.wire.segment import NO_KEYS

AT_ONCE = 128 * 1024


class Arrived:
    """An end at which bursts of the given sizes have arrived."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = deque(sizes)

    @property
    def sock(self) -> socket.socket:
        raise AssertionError("not used")

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        if not self.sizes:
            raise BlockingIOError
        size = self.sizes.popleft()
        return size, min(size, 1400)

    def flush(self) -> None:
        raise AssertionError("not used")

    def close(self) -> None:
        raise AssertionError("not used")


def inlet(end: Arrived) -> Inlet:
    refused: list[enum.Enum] = []
    streams = Streams(1, StreamSettings(), NO_KEYS, Random(1), refused.append, assembly_bytes=1 << 20)
    return Inlet(end, streams, memoryview(bytearray(1 << 16)), None, AT_ONCE)


@pytest.mark.parametrize(
    ("size", "taken"), [(100, 64), (1400, 64), (2048, 64), (4096, 32), (65000, 3), (65536, 2)]
)
def test_a_turn_takes_a_limited_number_of_bytes_and_so_many_small_reports(size: int, taken: int) -> None:
    end = Arrived([size] * 100)
    inlet(end).take_turn(0.0)
    assert 100 - len(end.sizes) == taken


def test_a_turn_says_whether_everything_was_taken() -> None:
    end = Arrived([100] * 65)
    one = inlet(end)
    assert one.take_some(0.0) is False
    assert one.take_some(0.0) is True
    assert not end.sizes
