"""STARE's sockets at a host, on the loopback interface."""

from __future__ import annotations

import asyncio

from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.stare.edge import StareNetwork
from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.wire.stare import StareHeader, StareKind, encode_header

STATES = (310_001, 310_002)  # other tests on this machine may use the other states at the same time


async def test_the_receiver_is_open_only_while_the_host_is_a_member_of_a_group() -> None:
    come = asyncio.Event()
    loop = asyncio.get_running_loop()
    settings = FabricSettings(loopback=True)
    network = StareNetwork(("127.0.0.1", 0), settings, FabricCounters(), loop, come.set)
    try:
        assert not network.listening
        assert network.receive() == []
        for state in STATES:
            network.join(state)
        network.leave(STATES[0])
        assert network.listening
        value = encode_header(StareHeader(StareKind.PUBLISH, STATES[1], 1)) + b"value"
        network.send(StareKind.PUBLISH, STATES[1], [value])
        async with asyncio.timeout(10):
            await come.wait()
        assert value in network.receive()
        network.leave(STATES[1])
        assert not network.listening
        network.join(STATES[0])
        assert network.listening
    finally:
        network.close()
    assert not network.listening
