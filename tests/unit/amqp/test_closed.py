"""A closed connection of the AMQP face leaves nothing behind."""

from __future__ import annotations

import pytest
from pamqp import commands, frame
from tests.unit.amqp.face import PROTOCOL_HEADER
from tests.unit.amqp.test_server import face  # noqa: F401
from tests.unit.closed import uncollected, visit

from treecast.shims.amqp.server import AmqpFace

OBJECTS = ("Channel", "ChunkProtocol", "Connection", "Session", "Ration", "Gathered", "Visitor")
LOG_IN = b"".join(
    frame.marshal(method, 0)
    for method in (
        commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"),
        commands.Connection.TuneOk(10, 131072, 0),
        commands.Connection.Open("/"),
    )
)
CHANNEL = frame.marshal(commands.Channel.Open(), 1)
PUBLISH = frame.marshal(commands.Basic.Publish(0, "", "q"), 1) + (
    b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\x01\0\0\0\0\xce"  # the header of a body of 65,536 bytes
    + b"\x03\0\x01\0\0\x10\0"
    + bytes(4096)
    + b"\xce"
)


@pytest.mark.parametrize(
    "sent",
    [
        (),
        (PROTOCOL_HEADER,),
        (PROTOCOL_HEADER + LOG_IN[:40],),
        (PROTOCOL_HEADER, LOG_IN),
        (PROTOCOL_HEADER, LOG_IN, CHANNEL),
        (PROTOCOL_HEADER, LOG_IN, CHANNEL, PUBLISH),
    ],
)
async def test_reference_counts_free_a_closed_connection(face: AmqpFace, sent: tuple[bytes, ...]) -> None:  # noqa: F811
    counters, counting = face.counters, face.host.counting
    async with uncollected(*OBJECTS) as more:
        await visit(
            face.listeners.address,
            counters,
            *sent,
            bytes_in=lambda: counters.bytes_in + counting.bytes_in,
        )
        face._look_at_due(face.loop.time() + 10)
        assert not more()
        visitors = face.listeners.visitors
        assert (len(visitors), visitors.memory.held) == (0, 0)
