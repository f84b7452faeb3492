"""A host with channels in its own process: child.py HOST_ID INCARNATION PORT. Prints its port."""

from __future__ import annotations

import asyncio
import sys
from random import Random

from treecast.middleware.api.discovery import Address
from treecast.middleware.fabric.channel import Answer, Channels
from treecast.middleware.model.counters import ChannelCounters

from tests.unit.fabric.channel.hosts import CLUSTER, KEY, QUICK  # isort: skip


def answer(host: int, method: int, head: bytes, body: memoryview) -> Answer:
    return Answer(head + b" by %d" % INCARNATION)


async def main() -> None:
    channels = Channels(HOST_ID, INCARNATION, CLUSTER, KEY, QUICK, ChannelCounters(), Random(HOST_ID), answer)
    address = await channels.start(Address("127.0.0.1", PORT))
    print(address.port, flush=True)
    await asyncio.get_running_loop().create_future()


HOST_ID, INCARNATION, PORT = map(int, sys.argv[1:])
asyncio.run(main())
