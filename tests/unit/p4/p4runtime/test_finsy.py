"""finsy's own switch class, an independent client, against the endpoint."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import finsy as fy
import pytest
from tests.unit.p4.p4runtime.planes import SCHEMA, WAIT, Served, until
from tests.unit.p4.p4runtime.programs import KITCHEN, ethernet

from treecast.middleware.dataplane.p4.p4info import to_text

FAR = 0x020000000002


@pytest.fixture
def options(tmp_path: Path) -> fy.SwitchOptions:
    logging.getLogger("finsy").setLevel(logging.ERROR)
    info, program = tmp_path / "kitchen.p4info.txt", tmp_path / "kitchen.p4"
    info.write_text(to_text(SCHEMA.info))
    program.write_text(KITCHEN)
    return fy.SwitchOptions(p4info=info, p4blob=program)


def _entry(port: int) -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "prefix_table",
        match=fy.P4TableMatch({"hdr.ethernet.dst": (FAR, 48)}),
        action=fy.P4TableAction("forward", port=port),
    )


async def test_entries_groups_and_delete_all(switch: Served, options: fy.SwitchOptions) -> None:
    async with fy.Switch("s", switch.address, options) as client:
        assert client.is_primary
        await client.insert([_entry(3), fy.P4MulticastGroupEntry(1, replicas=[1, 2])])
        assert [out.port for out in switch.receive(0, ethernet(FAR))] == [3]
        await client.modify([_entry(4)])
        (read,) = [entry async for entry in client.read(fy.P4TableEntry("prefix_table"))]
        assert isinstance(read.action, fy.P4TableAction)
        assert read.action.args == {"port": 4}
        with pytest.raises(fy.P4ClientError, match="ALREADY_EXISTS"):
            await client.insert([_entry(4)])
        await client.insert(
            [
                fy.P4ActionProfileMember("spread", member_id=1, action=fy.P4TableAction("forward", port=1)),
                fy.P4CloneSessionEntry(5, replicas=[3]),
            ]
        )
        # finsy 0.30 leaves groups, sessions and members alone if a program has a const table
        await client.delete_all()
        assert [one async for one in client.read(fy.P4TableEntry()) if not one.is_const] == []
        others = [fy.P4MulticastGroupEntry(), fy.P4CloneSessionEntry(), fy.P4ActionProfileMember()]
        left = [entry async for entry in client.read(others)]
        assert len(left) == 3
        await client.delete(left)
        assert [entry async for entry in client.read(others)] == []


async def test_packets_and_digests(switch: Served, options: fy.SwitchOptions) -> None:
    async with fy.Switch("s", switch.address, options) as client:
        await client.insert(
            [
                fy.P4TableEntry(
                    "prefix_table",
                    match=fy.P4TableMatch({"hdr.ethernet.dst": (FAR, 48)}),
                    action=fy.P4TableAction("to_controller"),
                ),
                fy.P4TableEntry("ternary_table", priority=1, action=fy.P4TableAction("learn")),
                fy.P4DigestEntry("seen_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=10**9),
            ]
        )
        packets, digests = client.read_packets(), client.read_digests("seen_t")
        waiting = [asyncio.ensure_future(anext(packets)), asyncio.ensure_future(anext(digests))]
        await asyncio.sleep(0)
        switch.receive(5, ethernet(FAR, src=0x0200000000AA, payload=b"hello"))
        packet, digest = await asyncio.wait_for(asyncio.gather(*waiting), WAIT)
        assert packet.payload == ethernet(FAR, src=0x0200000000AA, payload=b"hello")
        assert packet["ingress_port"] == 5
        assert list(digest) == [{"mac": 0x0200000000AA, "port": 5}]
        await client.write([digest.ack(), fy.P4PacketOut(ethernet(1), egress_port=6, pad=0)])
        await until(lambda: switch.sent)
        assert switch.sent[0].port == 6


async def test_two_controllers_take_turns(switch: Served, options: fy.SwitchOptions) -> None:
    high, low = options(initial_election_id=20), options(initial_election_id=10)
    async with fy.Switch("one", switch.address, high) as one, fy.Switch("two", switch.address, low) as two:
        assert (one.is_primary, two.is_primary) == (True, False)
        ready = two.ee.event_future(fy.SwitchEvent.BECOME_PRIMARY)
        assert one._p4client is not None
        assert one._p4client._stream is not None
        one._p4client._stream.cancel()  # as a killed controller does
        await asyncio.wait_for(ready, WAIT)
        assert two.is_primary
