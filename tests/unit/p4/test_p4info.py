"""P4Info of small programs, in its text form; `make foreign` compares with p4c's over all of its samples."""

from __future__ import annotations

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.p4info import build_p4info, parse_text, to_text
from treecast.middleware.dataplane.p4.p4runtime.fingerprint import first_difference
from treecast.middleware.dataplane.p4.source import P4Error

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
{types}
struct headers_t {{ {headers} }}
struct metadata_t {{ {metadata} }}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{
    {parser}
    state start {{ {start} }}
}}
control V(inout headers_t hdr, inout metadata_t meta) {{ apply {{}} }}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{
    {control}
}}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{ apply {{}} }}
control C(inout headers_t hdr, inout metadata_t meta) {{ apply {{}} }}
control D(packet_out packet, in headers_t hdr) {{ apply {{}} }}
{package}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def info(
    control: str = "apply {}",
    *,
    types: str = "",
    headers: str = "",
    metadata: str = "",
    parser: str = "",
    start: str = "transition accept;",
    package: str = "",
) -> p4i.P4Info:
    source = PROGRAM.format(
        types=types,
        headers=headers,
        metadata=metadata,
        parser=parser,
        start=start,
        control=control,
        package=package,
    )
    return build_p4info(bundle.load(source.encode()))


def text(message: object) -> str:
    return text_format.MessageToString(message, as_one_line=True)  # type: ignore[arg-type]


def test_a_table_and_its_actions() -> None:
    found = info(
        """
    @brief("throws it away") action drop() { mark_to_drop(standard); }
    action send(@id(7) bit<9> port, bit<48> mac) { standard.egress_spec = port; }
    @id(0x1234) table t {
        key = {
            standard.ingress_port: exact @name("port");
            meta.a: lpm; meta.b: ternary; meta.c: range; meta.d: optional @id(9);
        }
        actions = { send; @defaultonly drop; @tableonly NoAction; }
        const default_action = drop();
        size = 77;
        support_timeout = true;
    }
    apply { t.apply(); }
    """,
        metadata="bit<32> a; bit<16> b; bit<8> c; bit<1> d;",
    )
    (table,) = found.tables
    assert (table.preamble.id, table.preamble.name, table.preamble.alias) == (0x02001234, "I.t", "t")
    fields = [(one.id, one.name, one.bitwidth, one.match_type) for one in table.match_fields]
    kinds = p4i.MatchField
    assert fields == [
        (1, "port", 9, kinds.EXACT),
        (2, "meta.a", 32, kinds.LPM),
        (3, "meta.b", 16, kinds.TERNARY),
        (4, "meta.c", 8, kinds.RANGE),
        (9, "meta.d", 1, kinds.OPTIONAL),
    ]
    ids = {action.preamble.name: action.preamble.id for action in found.actions}
    assert set(ids) == {"I.drop", "I.send", "NoAction"}
    assert ids["NoAction"] == 21257015
    assert [(one.id, one.scope) for one in table.action_refs] == [
        (ids["I.send"], p4i.ActionRef.TABLE_AND_DEFAULT),
        (ids["I.drop"], p4i.ActionRef.DEFAULT_ONLY),
        (ids["NoAction"], p4i.ActionRef.TABLE_ONLY),
    ]
    assert table.const_default_action_id == table.initial_default_action.action_id == ids["I.drop"]
    assert (table.size, table.idle_timeout_behavior) == (77, p4i.Table.NOTIFY_CONTROL)
    send = next(action for action in found.actions if action.preamble.name == "I.send")
    assert [(one.id, one.name, one.bitwidth) for one in send.params] == [(7, "port", 9), (2, "mac", 48)]
    drop = next(action for action in found.actions if action.preamble.name == "I.drop")
    assert drop.preamble.doc.brief == "throws it away"


def test_defaults_entries_and_sizes() -> None:
    found = info(
        """
    action set(bit<12> value) { meta.a = (bit<32>) value; }
    table t {
        key = { meta.a: exact; }
        actions = { set; }
        const entries = { 5: set(6); }
        default_action = set(0xabc);
    }
    apply { t.apply(); }
    """,
        metadata="bit<32> a;",
    )
    (table,) = found.tables
    assert (table.size, table.is_const_table, table.has_initial_entries) == (1024, True, True)
    assert not table.const_default_action_id
    assert text(table.initial_default_action.arguments[0]) == r'param_id: 1 value: "\n\274" '.strip()


def test_extern_objects() -> None:
    found = info(
        """
    counter(10, CounterType.packets) packets;
    counter(11, CounterType.bytes) bytes;
    meter(12, MeterType.bytes) limits;
    register<bit<17>>(13) cells;
    register<int<8>>(14) signed;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.packets) rates;
    action_profile(15) shared;
    @max_group_size(4) action_selector(HashAlgorithm.crc32, 16, 8) spread;
    bit<17> x;
    int<8> y;
    action a() { rates.read(meta.colour); }
    table t { key = { meta.k: exact; } actions = { a; NoAction; } counters = hits; meters = rates; }
    table u { key = { meta.k: exact; } actions = { NoAction; } implementation = shared; }
    table v { key = { meta.k: exact; meta.k: selector; } actions = { NoAction; } implementation = spread; }
    apply {
        packets.count(1); bytes.count(1); cells.read(x, 1); signed.read(y, 1);
        limits.execute_meter(1, meta.colour); t.apply(); u.apply(); v.apply();
    }
    """,
        metadata="bit<2> colour; bit<8> k;",
    )
    assert [(one.preamble.name, one.size, one.spec.unit) for one in found.counters] == [
        ("I.packets", 10, p4i.CounterSpec.PACKETS),
        ("I.bytes", 11, p4i.CounterSpec.BYTES),
    ]
    assert [(one.preamble.name, one.size, one.spec.unit) for one in found.meters] == [("I.limits", 12, 1)]
    assert [(one.preamble.name, one.size, text(one.type_spec)) for one in found.registers] == [
        ("I.cells", 13, "bitstring { bit { bitwidth: 17 } }"),
        ("I.signed", 14, "bitstring { int { bitwidth: 8 } }"),
    ]
    tables = {table.preamble.name: table for table in found.tables}
    (counter,), (meter,) = found.direct_counters, found.direct_meters
    assert sorted(tables["I.t"].direct_resource_ids) == [counter.preamble.id, meter.preamble.id]
    assert counter.direct_table_id == meter.direct_table_id == tables["I.t"].preamble.id
    profiles = {profile.preamble.name: profile for profile in found.action_profiles}
    assert tables["I.u"].implementation_id == profiles["I.shared"].preamble.id
    assert (profiles["I.shared"].size, profiles["I.shared"].with_selector) == (15, False)
    assert (profiles["I.spread"].size, profiles["I.spread"].max_group_size) == (16, 4)
    assert list(profiles["I.spread"].table_ids) == [tables["I.v"].preamble.id]
    assert len(tables["I.v"].match_fields) == 1


def test_types_that_have_names() -> None:
    found = info(
        """
    digest_t unused;
    action learn(port_t port, kind_t kind, named_t name) { digest<digest_t>(1, { port, kind, 5 }); }
    table t { key = { meta.port: exact; meta.name: exact; } actions = { learn; NoAction; } }
    apply { t.apply(); }
    """,
        types="""
    @p4runtime_translation("example/port", 32) type bit<9> port_t;
    @p4runtime_translation("example/name", string) type bit<16> named_t;
    enum bit<8> kind_t { ONE = 1, TWO = 2 }
    struct digest_t { port_t port; kind_t kind; bit<4> rest; }
    """,
        metadata="port_t port; named_t name;",
    )
    widths = [(one.name, one.bitwidth, one.type_name.name) for one in found.tables[0].match_fields]
    assert widths == [("meta.port", 32, "port_t"), ("meta.name", 0, "named_t")]
    assert text(found.type_info.new_types["port_t"]) == (
        'translated_type { uri: "example/port" sdn_bitwidth: 32 }'
    )
    assert text(found.type_info.new_types["named_t"]) == (
        'translated_type { uri: "example/name" sdn_string { } }'
    )
    enum = found.type_info.serializable_enums["kind_t"]
    assert [(one.name, one.value) for one in enum.members] == [("ONE", b"\x01"), ("TWO", b"\x02")]
    (digest,) = found.digests
    assert (digest.preamble.name, text(digest.type_spec)) == ("digest_t", 'struct { name: "digest_t" }')
    members = {
        one.name: one.type_spec.WhichOneof("type_spec") for one in found.type_info.structs["digest_t"].members
    }
    assert members == {"port": "new_type", "kind": "serializable_enum", "rest": "bitstring"}


def test_controller_headers_value_sets_and_the_package() -> None:
    found = info(
        types="""
    @controller_header("packet_in") header to_cpu_t { bit<9> port; bit<7> pad; }
    struct pair_t { @match(ternary) bit<8> a; @id(5) bit<16> b; }
    header h_t { bit<8> a; bit<16> b; }
    """,
        headers="to_cpu_t cpu; h_t h;",
        parser="value_set<pair_t>(4) pairs; @id(3) value_set<bit<8>>(2) one;",
        start="""packet.extract(hdr.h);
        transition select(hdr.h.a, hdr.h.b) { pairs: other; default: accept; } }
    state other { transition select(hdr.h.a) { one: accept; default: reject; }""",
        package='@pkginfo(name="sample", version="1.2") @brief("what it is")',
    )
    (header,) = found.controller_packet_metadata
    assert (header.preamble.name, header.preamble.id >> 24) == ("packet_in", 4)
    assert [(one.id, one.name, one.bitwidth) for one in header.metadata] == [(1, "port", 9), (2, "pad", 7)]
    sets = {one.preamble.name: one for one in found.value_sets}
    assert sets["P.one"].preamble.id == 0x03000003
    assert [(m.id, m.name, m.bitwidth, m.match_type) for m in sets["P.pairs"].match] == [
        (1, "a", 8, p4i.MatchField.TERNARY),
        (5, "b", 16, p4i.MatchField.EXACT),
    ]
    package = found.pkg_info
    assert (package.arch, package.name, package.version) == ("v1model", "sample", "1.2")
    assert package.doc.brief == "what it is"


def test_hidden_things_are_not_shown() -> None:
    found = info("""
    @hidden action secret() {}
    @hidden table t { actions = { secret; } default_action = secret(); }
    apply { t.apply(); }
    """)
    assert (len(found.tables), len(found.actions)) == (0, 0)


def test_ids_that_contradict_each_other() -> None:
    with pytest.raises(P4Error, match="belongs to something else"):
        info("""
    @id(5) table t { actions = { NoAction; } }
    @id(5) table u { actions = { NoAction; } }
    apply { t.apply(); u.apply(); }
    """)


def test_the_text_form_and_what_differs() -> None:
    found = info("table t { actions = { NoAction; } } apply { t.apply(); }")
    read = parse_text(to_text(found))
    assert read == found
    assert first_difference(read, found) is None
    read.tables[0].preamble.name = "I.other"
    assert (
        first_difference(read, found)
        == f"the program has no table I.other ({found.tables[0].preamble.id:#x})"
    )
    with pytest.raises(ValueError, match="no field"):
        parse_text("nonsense: 1")
