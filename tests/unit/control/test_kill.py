"""A coordinator in its own process is killed under load: every reply that it gave stays true."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path

import pytest

from treecast.middleware.api.coordinator_client import CoordinatorClient
from treecast.middleware.api.entries import TopicEntry
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.errors import Fault, TreecastError

KILLS = 4
SERVER = """
import asyncio, sys
from pathlib import Path
from treecast.middleware.api.discovery import Address
from treecast.middleware.control.stored_state import CoordinatorSettings
from treecast.middleware.control.server import CoordinatorServer, ServerSettings
from treecast.middleware.control.values import StateSettings

async def main():
    # a new life waits no longer for hosts of the last one
    soon = CoordinatorSettings(StateSettings(hearing=0.2))
    address, path = Address("127.0.0.1", 0), Path(sys.argv[1])
    server = CoordinatorServer(ServerSettings(address, path, None, coordinator=soon))
    await server.start()
    print(server.address, flush=True)
    await asyncio.sleep(120)

asyncio.run(main())
"""


class Answered:
    """All replies over all lives of the coordinator."""

    def __init__(self) -> None:
        self.blocks: list[range] = []
        self.topics: dict[str, bytes] = {}
        self.hosts: dict[str, int] = {}
        self.items: dict[bytes, bytes] = {}

    async def load(self, client: CoordinatorClient, life: int) -> None:
        """Makes calls one after the other until the coordinator is gone."""
        for number in range(100_000):
            name = f"h{number % 5}"
            attached = await client.attach(
                pb.AttachRequest(name=name, instance=name, address="h:1", version="1")
            )
            session = attached.session
            assert self.hosts.setdefault(name, session.host_id) == session.host_id
            self.blocks.append(await client.producer_ids(session, 7))
            made = await client.create_topic(
                pb.CreateTopicEntryRequest(name=f"t{life}.{number}", partitions=1)
            )
            topic = made.topic
            self.topics[topic.name] = topic.topic_id
            if name == "h0":
                await self._write(client, session, b"%d.%d" % (life, number))

    async def _write(self, client: CoordinatorClient, session: pb.HostSession, key: bytes) -> None:
        home = await client.group_home(session, "g")
        write = pb.HomeWrite(
            kind=home.kind, id="g", epoch=home.epoch, items=[pb.HomeItem(key=key, value=key)]
        )
        assert not await client.put_home_state(session, [write])
        self.items[key] = key

    async def check(self, client: CoordinatorClient) -> None:
        async with contextlib.aclosing(client.watch()) as updates:
            found = await anext(updates)
        topics = {
            change.key: change.entry.topic_id.bytes
            for change in found.changes
            if isinstance(change.entry, TopicEntry)
        }
        assert topics.items() >= self.topics.items()
        ids = [number for block in self.blocks for number in block]
        assert len(set(ids)) == len(ids)
        request = pb.AttachRequest(name="h0", instance="h0", address="h:1", version="1")
        session = (await client.attach(request)).session
        kept = await client.get_home_state(session, await client.group_home(session, "g"))
        assert kept.items() >= self.items.items()


async def test_what_was_answered_before_a_kill_holds(tmp_path: Path) -> None:
    answered, rng = Answered(), random.Random(5)
    for life in range(KILLS + 1):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, str(tmp_path / "c.sqlite"), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            target = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
            client = CoordinatorClient(target, None, timeout=30)
            if life:
                await answered.check(client)
            asyncio.get_running_loop().call_later(0.1 + 0.2 * rng.random(), process.kill)
            with pytest.raises(TreecastError) as gone:
                await answered.load(client, life)
            assert gone.value.fault is Fault.COORDINATOR_UNAVAILABLE
            await client.close()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert len(answered.blocks) > KILLS
