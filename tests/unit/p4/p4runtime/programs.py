"""A program with one of everything that control planes see."""

from __future__ import annotations

KITCHEN = """
#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> pad; }

@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<7> pad; }

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }

struct seen_t { bit<48> mac; bit<9> port; }
struct headers_t { packet_in_t to_cpu; packet_out_t from_cpu; ethernet_t ethernet; }
struct metadata_t { bit<16> selected; bit<2> colour; }

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard) {
    value_set<bit<16>>(4) special;
    state start {
        transition select(standard.ingress_port) {
            510: controller;
            default: ethernet;
        }
    }
    state controller { packet.extract(hdr.from_cpu); transition ethernet; }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            special: marked;
            default: accept;
        }
    }
    state marked { meta.selected = 1; transition accept; }
}

control MyVerify(inout headers_t hdr, inout metadata_t meta) { apply {} }
control MyCompute(inout headers_t hdr, inout metadata_t meta) { apply {} }

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) per_port;
    meter(4, MeterType.packets) limits;
    register<bit<32>>(16) cells;
    direct_counter(CounterType.packets) hits;
    direct_meter<bit<2>>(MeterType.packets) rates;
    action_profile(8) shared;
    action_selector(HashAlgorithm.crc16, 16, 8) spread;

    action drop() { mark_to_drop(standard); }
    action forward(bit<9> port) { standard.egress_spec = port; }
    action multicast(bit<16> group) { standard.mcast_grp = group; }
    action counted(bit<9> port) { hits.count(); standard.egress_spec = port; }
    action metered() { rates.read(meta.colour); }
    action mirror(bit<32> session) { clone(CloneType.I2E, session); }
    action to_controller() {
        hdr.to_cpu.setValid();
        hdr.to_cpu.ingress_port = standard.ingress_port;
        standard.egress_spec = 510;
    }
    action learn() { digest<seen_t>(1, { hdr.ethernet.src, standard.ingress_port }); }

    table exact_table {
        key = { hdr.ethernet.dst: exact; }
        actions = { counted; drop; @defaultonly NoAction; }
        counters = hits;
        size = 4;
        default_action = NoAction();
        support_timeout = true;
    }
    table prefix_table {
        key = { hdr.ethernet.dst: lpm; }
        actions = { forward; multicast; mirror; to_controller; drop; NoAction; }
        default_action = drop();
    }
    table ternary_table {
        key = { hdr.ethernet.kind: ternary; hdr.ethernet.src: optional; standard.ingress_port: range; }
        actions = { learn; metered; NoAction; }
        meters = rates;
        const default_action = NoAction();
    }
    table fixed_table {
        key = { hdr.ethernet.kind: exact; }
        actions = { drop; NoAction; }
        const entries = { 0xdead: drop(); }
    }
    table profile_table {
        key = { hdr.ethernet.src: exact; }
        actions = { forward; NoAction; }
        implementation = shared;
    }
    table selector_table {
        key = { hdr.ethernet.kind: exact; hdr.ethernet.src: selector; }
        actions = { forward; NoAction; }
        implementation = spread;
    }
    apply {
        if (hdr.from_cpu.isValid()) {
            standard.egress_spec = hdr.from_cpu.egress_port;
            hdr.from_cpu.setInvalid();
        } else if (fixed_table.apply().miss) {
            per_port.count((bit<32>) (standard.ingress_port & 7));
            cells.write(0, (bit<32>) standard.ingress_port);
            ternary_table.apply();
            if (!exact_table.apply().hit) {
                prefix_table.apply();
                profile_table.apply();
                selector_table.apply();
            }
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.to_cpu); packet.emit(hdr.ethernet); }
}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
"""


def ethernet(dst: int, src: int = 0x020000000001, kind: int = 0x0800, payload: bytes = b"") -> bytes:
    """Returns a frame."""
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + kind.to_bytes(2, "big") + payload
