"""A session brings a switch to a state over gRPC, step by step, and handles what it finds there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from finsy.proto import p4r
from tests.unit.p4.p4runtime.planes import SCHEMA, Served, until
from tests.unit.p4.p4runtime.programs import KITCHEN, ethernet

from treecast.middleware.control.switches.difference import SwitchDiffers, SwitchRefused, diff
from treecast.middleware.control.switches.local import LocalSwitch
from treecast.middleware.control.switches.session import Program, SwitchSession
from treecast.middleware.control.switches.state import SwitchState
from treecast.middleware.dataplane.p4 import (
    ActionCall,
    CloneSession,
    Entities,
    Entry,
    ExactMatch,
    GroupEntry,
    GroupMember,
    GroupRef,
    LpmMatch,
    MemberEntry,
    MeterConfig,
    MulticastGroup,
    Replica,
    Switch,
    TernaryMatch,
    ValueSetMember,
    load_device_config,
)
from treecast.middleware.dataplane.p4.runtime.replication import Replication

PROGRAM = Program(SCHEMA.info, KITCHEN.encode(), cookie=7)
FAR = 0x020000000002
MAC = "hdr.ethernet.dst"


def _name(name: str) -> str:
    return f"MyIngress.{name}"


def _forward(port: int) -> ActionCall:
    return ActionCall(_name("forward"), {"port": port})


def _multicast(group: int) -> ActionCall:
    return ActionCall(_name("multicast"), {"group": group})


RICH = SwitchState.of(
    entries=[
        (_name("prefix_table"), Entry({MAC: LpmMatch(FAR, 48)}, _multicast(3), metadata=b"x")),
        (_name("prefix_table"), Entry({}, _forward(1))),
        (
            _name("ternary_table"),
            Entry(
                {"hdr.ethernet.kind": TernaryMatch(0x0800, 0xFF00)},
                ActionCall(_name("metered")),
                5,
                meter=MeterConfig(1, 2, 3, 4),
            ),
        ),
        (_name("selector_table"), Entry({"hdr.ethernet.kind": ExactMatch(1)}, GroupRef(1))),
    ],
    defaults={_name("prefix_table"): _forward(6)},
    members=[(_name("spread"), MemberEntry(n, _forward(n))) for n in (1, 2)],
    selections=[(_name("spread"), GroupEntry(1, (GroupMember(1), GroupMember(2, 3))))],
    groups=[MulticastGroup(3, (Replica(4, 1), Replica(2)))],
    sessions=[CloneSession(9, (Replica(5),), packet_length=64)],
    value_sets={"MyParser.special": [ValueSetMember({"": ExactMatch(0x22F3)})]},
    registers={(_name("cells"), 3): 77},
    meters={(_name("limits"), 1): MeterConfig(1, 2, 3, 4)},
)
OTHER = SwitchState.of(
    entries=[(_name("prefix_table"), Entry({MAC: LpmMatch(FAR, 48)}, _multicast(4)))],
    members=[(_name("spread"), MemberEntry(2, _forward(7)))],
    selections=[(_name("spread"), GroupEntry(2, (GroupMember(2),)))],
    groups=[MulticastGroup(4, (Replica(1),))],
    registers={(_name("cells"), 3): 78},
)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    found = Served()
    found.address = await found.server.start("127.0.0.1:0")
    yield found
    await found.server.close()


async def test_a_switch_is_brought_to_one_state_and_to_another(served: Served) -> None:
    async with SwitchSession(served.address) as session:
        assert await session.set_program(PROGRAM)
        assert not await session.set_program(PROGRAM)
        assert await session.bring_to(RICH) == len(RICH)
        assert await session.read(RICH) == RICH
        assert sorted(out.port for out in served.receive(0, ethernet(FAR))) == [2, 4]
        assert await session.bring_to(RICH) == 0
        assert await session.bring_to(OTHER) == len(diff(RICH, OTHER))
        assert await session.read(OTHER) == OTHER
        assert [out.port for out in served.receive(0, ethernet(FAR))] == [1]
        await session.bring_to(SwitchState())
        assert await session.read() == SwitchState()


async def test_another_controller_finds_what_is_there(served: Served) -> None:
    async with SwitchSession(served.address) as session:
        await session.set_program(PROGRAM)
        await session.bring_to(RICH)
    async with SwitchSession(served.address, election_id=2) as session:
        await session.learn_program()
        assert await session.read(RICH) == RICH


async def test_a_lower_election_id_is_refused(served: Served) -> None:
    async with SwitchSession(served.address, election_id=5):
        with pytest.raises(SwitchRefused, match="has a primary with election id 5, ours is 4"):
            await SwitchSession(served.address, election_id=4).__aenter__()


async def test_whoever_is_outbid_may_not_write(served: Served) -> None:
    async with SwitchSession(served.address, election_id=5) as old:
        await old.set_program(PROGRAM)
        async with SwitchSession(served.address, election_id=6):
            await until(old.lost.is_set)
            with pytest.raises(SwitchRefused, match="not the primary"):
                await old.bring_to(RICH)


async def test_a_refused_write_names_the_update(served: Served) -> None:
    full = SwitchState.of(
        entries=[
            (_name("exact_table"), Entry({MAC: ExactMatch(n)}, ActionCall(_name("drop")))) for n in range(5)
        ]
    )
    async with SwitchSession(served.address) as session:
        await session.set_program(PROGRAM)
        with pytest.raises(SwitchRefused, match=r"1 of 5 updates were refused.*update 4: .*exact_table"):
            await session.bring_to(full)


async def test_a_switch_that_forgets_is_found_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SwitchSession(served.address, name="s1") as session:
        await session.set_program(PROGRAM)
        monkeypatch.setattr(Replication, "insert_group", lambda *_: None)
        with pytest.raises(
            SwitchDiffers, match=r"s1 differs .* in 1 places, the first: insert groups 4"
        ) as caught:
            await session.bring_to(OTHER)
        assert [change.field for change in caught.value.changes] == ["groups"]


async def test_a_switch_without_a_program(served: Served) -> None:
    async with SwitchSession(served.address) as session:
        with pytest.raises(SwitchRefused, match="runs no program"):
            await session.learn_program()
        with pytest.raises(SwitchRefused, match="runs no program"):
            await session.read()
        with pytest.raises(SwitchRefused, match="the device config is refused"):
            await session.set_program(Program(SCHEMA.info, b"control ("))


async def test_packets_and_digests_are_heard(served: Served) -> None:
    heard: list[Any] = []
    async with SwitchSession(served.address, heard=heard.append) as session:
        await session.set_program(PROGRAM)
        to_us = Entry({MAC: LpmMatch(FAR, 48)}, ActionCall(_name("to_controller")))
        await session.bring_to(SwitchState.of(entries=[(_name("prefix_table"), to_us)]))
        served.receive(2, ethernet(FAR))
        await until(lambda: heard)
        assert heard[0].packet.payload == ethernet(FAR)
        metadata = [
            p4r.PacketMetadata(metadata_id=n, value=value) for n, value in ((1, b"\x05"), (2, b"\x00"))
        ]
        await session.send_packet(ethernet(1), metadata)
        await until(lambda: served.sent)
        assert served.sent[0].port == 5


def test_a_switch_of_this_process_is_brought_to_the_same_states() -> None:
    switch = Switch(load_device_config(KITCHEN.encode()), ports=range(8))
    local = LocalSwitch(SCHEMA, Entities(SCHEMA, switch.control), "s1")
    assert local.bring_to(RICH) == len(RICH)
    assert local.read(RICH) == RICH
    assert local.bring_to(RICH) == 0
    too_much = SwitchState.of(
        entries=[
            (_name("exact_table"), Entry({MAC: ExactMatch(n)}, ActionCall(_name("drop")))) for n in range(5)
        ]
    )
    with pytest.raises(SwitchRefused, match=r"s1: .*exact_table"):
        local.bring_to(too_much)
    assert local.read(RICH) == RICH
    assert local.bring_to(OTHER) == len(diff(RICH, OTHER))
    assert local.read(OTHER) == OTHER
