"""A closed connection of the Kafka face leaves nothing behind."""

from __future__ import annotations

import struct

import pytest
from tests.unit.closed import uncollected, visit

from treecast.shims.kafka.server import KafkaFace

OBJECTS = ("BufferProtocol", "Connection", "Ration", "Request", "Sender", "Session", "Visitor")
VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
UNFINISHED = struct.pack(">ihhi", 1 << 20, 0, 7, 1) + bytes(200_000)


@pytest.mark.parametrize("sent", [(), (VERSIONS,), (UNFINISHED,), (VERSIONS, UNFINISHED)])
async def test_reference_counts_free_a_closed_connection(face: KafkaFace, sent: tuple[bytes, ...]) -> None:
    async with uncollected(*OBJECTS) as more:
        await visit(face.address, face.counters, *sent)
        assert not more()
        assert (len(face.listeners.visitors), face.listeners.visitors.memory.held) == (0, 0)
