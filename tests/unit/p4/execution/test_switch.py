"""The programs' behaviour, packet by packet, on both engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.p4.execution.twins import switch

from treecast.middleware.dataplane.p4.bits import csum16_bytes
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    CloneSession,
    ControlError,
    CounterData,
    DigestConfig,
    Entry,
    ExactMatch,
    GroupEntry,
    GroupMember,
    GroupRef,
    LpmMatch,
    MemberEntry,
    MulticastGroup,
    OneShot,
    OptionalMatch,
    Out,
    Problem,
    RangeMatch,
    Replica,
    Switch,
    TernaryMatch,
    WeightedCall,
)
from treecast.middleware.dataplane.p4.runtime.machine import MAX_STATES, MAX_WORK

NOTHING = ActionCall("NoAction")
Make = Callable[[str], Switch]


@pytest.fixture(params=["interpreted", "generated"])
def make(request: pytest.FixtureRequest) -> Make:
    return lambda name: switch(name, interpret=request.param == "interpreted")


def ipv4(dst: str, ttl: int, payload: bytes = b"data") -> bytes:
    header = bytearray.fromhex(f"45000018000000 00{ttl:02x}1100 00 0a000001{dst}")
    header[10:12] = csum16_bytes(bytes(header)).to_bytes(2, "big")
    return bytes.fromhex("aaaaaaaaaaaa bbbbbbbbbbbb 0800") + bytes(header) + payload


def route(dst: int, prefix: int, port: int) -> Entry:
    call = ActionCall("I.route", {"next_hop": dst, "port": port})
    return Entry({"h.ipv4.dst": LpmMatch(dst, prefix)}, call)


def router(make: Make) -> Switch:
    one = make("router")
    one.control.table("I.routes").insert(route(0x0A010000, 16, 1))
    one.control.table("I.routes").insert(route(0x0A010200, 24, 2))
    rewrite = ActionCall("I.rewrite", {"dst": 0xCCCCCCCCCCCC})
    one.control.table("I.neighbours").insert(Entry({"m.next_hop": ExactMatch(0x0A010200)}, rewrite))
    return one


def test_a_router_routes(make: Make) -> None:
    one = router(make)
    (out,) = one.receive(5, ipv4("0a010203", 9), 0.0)
    assert out.port == 2
    assert out.packet == bytes.fromhex("cccccccccccc bbbbbbbbba02 0800") + ipv4("0a010203", 8)[14:]
    assert [o.port for o in one.receive(5, ipv4("0a010303", 9), 0.0)] == [1]
    assert one.receive(5, ipv4("0a020303", 9), 0.0) == []
    assert one.receive(5, ipv4("0a010203", 1), 0.0) == []
    broken = bytearray(ipv4("0a010203", 9))
    broken[-5] ^= 1
    assert one.receive(5, bytes(broken), 0.0) == []
    stats = one.stats()
    assert (stats.tables["I.routes"].hits, stats.tables["I.routes"].misses) == (2, 1)
    assert (stats.ingress_passes, stats.egress_passes, stats.drops) == (5, 2, {"dropped in ingress": 3})
    assert one.control.counter("I.per_port").read(5) == CounterData(5, 5 * 38)
    assert one.control.table("I.routes").counter({"h.ipv4.dst": LpmMatch(0x0A010200, 24)}) == CounterData(
        1, 38
    )
    assert one.control.table("I.routes").counter(None) == CounterData(1, 38)


def test_multicast_makes_copies_that_egress_may_drop(make: Make) -> None:
    one = router(make)
    one.control.replication.insert_group(MulticastGroup(7, tuple(Replica(port, 0) for port in (3, 4, 5))))
    call = ActionCall("I.multicast", {"group": 7})
    one.control.table("I.routes").insert(Entry({"h.ipv4.dst": LpmMatch(0xE0000000, 4)}, call))
    outs = one.receive(4, ipv4("e0000001", 3), 0.0)
    assert [out.port for out in outs] == [3, 5]
    assert [out.packet[6:12].hex() for out in outs] == ["bbbbbbbbba03", "bbbbbbbbba05"]
    one.control.replication.delete_group(7)
    assert one.receive(4, ipv4("e0000001", 3), 0.0) == []
    stats = one.stats()
    assert (stats.replicas, stats.drops) == (3, {"dropped in egress": 1, "no such multicast group": 1})


def test_entries_modified_and_deleted_take_effect_at_once(make: Make) -> None:
    one = router(make)
    packet = ipv4("0a010203", 9)
    one.control.table("I.routes").modify(route(0x0A010200, 24, 8))
    assert [out.port for out in one.receive(0, packet, 0.0)] == [8]
    one.control.table("I.routes").delete({"h.ipv4.dst": LpmMatch(0x0A010200, 24)})
    assert [out.port for out in one.receive(0, packet, 0.0)] == [1]
    one.control.table("I.routes").delete({"h.ipv4.dst": LpmMatch(0x0A010000, 16)})
    one.control.table("I.routes").set_default(ActionCall("I.route", {"next_hop": 0, "port": 6}))
    assert [out.port for out in one.receive(0, packet, 0.0)] == [6]
    one.control.table("I.routes").set_default(None)
    assert one.receive(0, packet, 0.0) == []


def test_an_unchanged_packet_leaves_as_it_came(make: Make) -> None:
    one = make("bitmask")
    one.control.table("I.hosts").insert(Entry({"h.ethernet.dst": ExactMatch(0xAAAAAAAAAAAA)}, _unicast(3)))
    packet = ipv4("0a010203", 9, b"anything at all")
    assert one.receive(1, packet, 0.0) == [Out(3, packet)]
    one.control.register("I.ports").write(9, 0b0000_0110)
    one.control.replication.insert_group(MulticastGroup(4, (Replica(2), Replica(2, 1))))
    state = ipv4("ef000009", 9, b"\x00" * 8 + b"state")
    assert one.receive(1, state, 0.0) == [Out(2, state), Out(2, state)]


def _unicast(port: int) -> ActionCall:
    return ActionCall("I.unicast", {"port": port})


def test_a_register_follows_the_packets(make: Make) -> None:
    one = make("bitmask")
    for port, kind in ((0, "c0"), (5, "c0"), (7, "c0"), (5, "80")):
        assert one.receive(port, ipv4(f"ef{kind}0011", 9, b"\x00" * 8), 0.0) == []
    assert one.control.register("I.ports").read(17) == 0b1000_0001
    with pytest.raises(ControlError) as refused:
        one.control.register("I.ports").read(4096)
    assert refused.value.problem is Problem.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("packet", "port", "error"),
    [
        ("01", 2, "PacketTooShort"),
        ("0100 00000064", 2, "PacketTooShort"),
        ("0100 00000e64", 5, "OddLabel"),
        ("0100" + "00000064" * 4, 3, "StackOutOfBounds"),
        ("0209" + "11" * 20, 4, "NoMatch"),
        ("0900", 6, "ParserTimeout"),
        ("0c00", 4, "NoMatch"),
    ],
)  # fmt: skip
def test_parser_errors_go_on_to_ingress(make: Make, packet: str, port: int, error: str) -> None:
    one = make("parsing")
    outs = one.receive(0, bytes.fromhex(packet), 0.0)
    assert [out.port for out in outs] == [port]
    assert one.stats().parser_errors == {error: 1}


def test_a_packet_may_have_any_length(make: Make) -> None:
    one = make("parsing")
    for size in range(40):
        for kind in range(12):
            one.receive(0, bytes([kind] * size), 0.0)
    assert one.stats().ingress_passes == 480
    assert MAX_STATES > 1000


def test_varbits_are_as_long_as_said(make: Make) -> None:
    one = make("parsing")
    data = bytes.fromhex("0203 01 aabbcc 77 9999")
    assert one.receive(0, data, 0.0) == [Out(1, bytes.fromhex("0203 01 aabbcc ee 9999"))]
    data = bytes.fromhex("0200 05 77 9999")
    assert one.receive(0, data, 0.0) == [Out(1, data)]


def copies(make: Make) -> Switch:
    one = make("copies")
    one.control.replication.insert_session(CloneSession(5, (Replica(8, 2),), packet_length=6))
    one.control.replication.insert_session(CloneSession(6, (Replica(9, 3),)))
    return one


def note(packet: bytes) -> dict[str, int]:
    """Returns the header that copies.p4 puts behind the first four bytes."""
    kept, length = packet[6:8], packet[8:10]
    return {
        "kind": packet[4],
        "rid": packet[5],
        "kept": int.from_bytes(kept, "big"),
        "length": int.from_bytes(length, "big"),
        "port": int.from_bytes(packet[10:12], "big") >> 7,
    }


def test_clones_of_ingress_are_the_packet_as_it_came(make: Make) -> None:
    one = copies(make)
    clone, original = one.receive(3, bytes.fromhex("01041234 55667788"), 0.0)
    assert (original.port, original.packet[:4].hex()) == (4, "0104ffff")
    assert (clone.port, clone.packet.hex()) == (8, "01041234" + "0102")
    assert note(original.packet) == {"kind": 0, "rid": 0, "kept": 7, "length": 8, "port": 3}


def test_clones_keep_what_their_field_list_names(make: Make) -> None:
    one = copies(make)
    clone, _ = one.receive(3, bytes.fromhex("02041234 55667788"), 0.0)
    assert note(clone.packet) == {"kind": 1, "rid": 3, "kept": 0x1234, "length": 8, "port": 3}
    original, clone = one.receive(3, bytes.fromhex("10041234 55667788"), 0.0)
    assert note(clone.packet) == {"kind": 2, "rid": 3, "kept": 0x55, "length": 16, "port": 3}
    assert (original.port, clone.port, one.stats().clones) == (4, 9, 2)


def test_resubmit_and_recirculate_keep_what_their_field_list_names(make: Make) -> None:
    one = copies(make)
    (out,) = one.receive(3, bytes.fromhex("03040000"), 0.0)
    assert (out.packet[:4].hex(), note(out.packet)["kind"]) == ("03040009", 0)
    (out,) = one.receive(3, bytes.fromhex("04030000"), 0.0)
    assert (out.packet[:4].hex(), len(out.packet)) == ("04030003", 4 + 3 * 8)
    stats = one.stats()
    assert (stats.resubmissions, stats.recirculations, stats.ingress_passes) == (3, 2, 7)


def test_endless_resubmission_ends(make: Make) -> None:
    one = copies(make)
    assert one.receive(3, bytes.fromhex("0c040000"), 0.0) == []
    assert one.stats().drops == {"too much work for one packet": 1}
    assert one.stats().ingress_passes == MAX_WORK
    one.receive(3, bytes.fromhex("11040000"), 0.0)
    assert one.stats().drops == {"too much work for one packet": 2}
    assert len(one.receive(3, bytes.fromhex("00040000"), 0.0)) == 1


def test_truncate_and_egress_drops(make: Make) -> None:
    one = copies(make)
    one.control.replication.insert_group(MulticastGroup(3, (Replica(1, 0), Replica(2, 1))))
    assert [
        len(out.packet) for out in one.receive(3, bytes(4).replace(b"\0\0", b"\5\3", 1) + bytes(20), 0.0)
    ] == [12, 12]
    call = bytes.fromhex("12030000")
    assert len(one.receive(3, call, 0.0)) == 1


def test_digests(make: Make) -> None:
    one = copies(make)
    one.control.digest("news_t").insert(DigestConfig(max_list_size=10))
    for value in ("0001", "0002", "0001"):
        one.receive(3, bytes.fromhex("0600" + value), 1.0)
    (found,) = one.control.take_digests(1.0)
    assert (found.name, found.values) == ("news_t", ((1, 3, 1), (2, 3, 0)))
    assert one.stats().digests == 3


def test_registers_counters_and_logs(make: Make) -> None:
    one = copies(make)
    for value in ("0005", "0007"):
        one.receive(3, bytes.fromhex("0701" + value), 0.0)
    assert one.control.register("I.memory").read(1) == 12
    assert one.control.register("I.small").read(1) == 256 - 6
    assert one.control.counter("I.counted").read(1) == CounterData(2, 8)
    one.receive(3, bytes.fromhex("0d070009"), 0.0)
    assert one.receive(3, bytes.fromhex("0d000009"), 0.0) == []
    first, second = one.log()
    assert first == "count 7 value 9"
    assert second.endswith("assert failed")
    assert one.stats().drops == {"assertion failed": 1}


def test_selectors_choose_by_hash(make: Make) -> None:
    one = copies(make)
    for member in range(3):
        one.control.profile("I.choice").insert_member(MemberEntry(member, ActionCall("I.one", {"x": member})))
    members = tuple(GroupMember(member) for member in range(3))
    one.control.profile("I.choice").insert_group(GroupEntry(1, members))
    matches = {"h.op.op": TernaryMatch(14, 255)}
    one.control.table("I.chosen").insert(Entry(matches, GroupRef(1), 1))
    packets = [bytes.fromhex(f"0e00{value:04x}") for value in range(0, 0x4000, 0x100)]
    low = [one.receive(3, packet, 0.0)[0].packet[3] for packet in packets]
    assert set(low) == {0, 1, 2}
    assert low == [one.receive(3, packet, 0.0)[0].packet[3] for packet in packets]
    with pytest.raises(ControlError) as refused:
        one.control.profile("I.choice").delete_group(1)
    assert refused.value.problem is Problem.IN_USE
    shot = OneShot((WeightedCall(ActionCall("I.one", {"x": 9})),))
    one.control.table("I.chosen").modify(Entry(matches, shot, 1))
    one.control.profile("I.choice").delete_group(1)
    assert one.receive(3, packets[0], 0.0)[0].packet[3] == 9


def test_const_entries(make: Make) -> None:
    one = make("flow")
    entries = list(one.control.table("I.small").entries())
    assert [entry.is_const for entry in entries] == [True] * 3
    assert entries[1].matches == {"h.x.b": RangeMatch(3, 3), "h.x.c": OptionalMatch(9)}
    with pytest.raises(ControlError) as refused:
        one.control.table("I.small").insert(entries[0])
    assert refused.value.problem is Problem.READ_ONLY


@pytest.mark.parametrize(
    ("table", "entry", "problem"),
    [
        ("I.none", Entry({}, ActionCall("NoAction")), Problem.UNKNOWN),
        ("I.t", Entry({}, ActionCall("NoAction"), 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(256)}, ActionCall("NoAction"), 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": TernaryMatch(1, 1)}, ActionCall("NoAction"), 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(1)}, ActionCall("NoAction")), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(1)}, ActionCall("I.none"), 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(1)}, ActionCall("I.set_a"), 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(1)}, ActionCall("I.set_a", {"v": 256}), 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(1)}, ActionCall("I.set_a", {"w": 2}), 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(1), "low": TernaryMatch(2, 1)}, NOTHING, 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(1), "no": ExactMatch(2)}, NOTHING, 1), Problem.INVALID),
        ("I.t", Entry({"h.x.op": ExactMatch(7)}, ActionCall("NoAction"), 1), Problem.EXISTS),
        ("I.t", Entry({"h.x.op": ExactMatch(8)}, GroupRef(1), 1), Problem.INVALID),
    ],
)  # fmt: skip
def test_entries_that_are_refused_change_nothing(table: str, entry: Entry, problem: Problem) -> None:
    one = switch("flow")
    one.control.table("I.t").insert(Entry({"h.x.op": ExactMatch(7)}, ActionCall("NoAction"), 1))
    with pytest.raises(ControlError) as refused:
        one.control.table(table).insert(entry)
    assert refused.value.problem is problem
    assert len(list(one.control.table("I.t").entries())) == 1


def test_a_table_is_full_at_its_size() -> None:
    one = switch("flow")
    for number in range(20):
        one.control.table("I.t").insert(Entry({"h.x.op": ExactMatch(number)}, ActionCall("NoAction"), 1))
    with pytest.raises(ControlError) as refused:
        one.control.table("I.t").insert(Entry({"h.x.op": ExactMatch(20)}, ActionCall("NoAction"), 1))
    assert refused.value.problem is Problem.FULL


def test_what_is_read_can_be_written_again() -> None:
    one, other = switch("flow"), switch("flow")
    call = ActionCall("I.bound", {"v": 3})
    one.control.table("I.t").insert(
        Entry({"h.x.op": ExactMatch(1), "low": TernaryMatch(1, 3)}, call, 5, b"mine")
    )
    for entry in one.control.table("I.t").entries():
        other.control.table("I.t").insert(entry)
    assert list(other.control.table("I.t").entries()) == list(one.control.table("I.t").entries())


def test_ports(make: Make) -> None:
    one = make("copies")
    with pytest.raises(ValueError, match="no port 450"):
        one.receive(450, bytes(4), 0.0)
    one.set_port(4, False)
    assert one.receive(3, bytes.fromhex("00040000"), 0.0) == []
    assert one.stats().drops == {"no such port": 1}
    one.set_port(4, True)
    assert [out.port for out in one.receive_many([(3, bytes.fromhex("00040000"))] * 2, 0.0)] == [4, 4]
    counted = one.stats().ports[4]
    assert (counted.packets_out, counted.bytes_out) == (2, 24)
