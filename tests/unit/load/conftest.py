"""A server for load generators: the bare loop of bench/floor, which replies like a broker."""

from collections.abc import Iterator

import pytest
from bench.peers.floor import FloorPeer


@pytest.fixture(params=["sendfile", "mmap"])
def floor(request: pytest.FixtureRequest, tmp_path) -> Iterator[FloorPeer]:
    peer = FloorPeer(read=request.param, parent=tmp_path)
    peer.start()
    try:
        yield peer
    finally:
        peer.stop()
