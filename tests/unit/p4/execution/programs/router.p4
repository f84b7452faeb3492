#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> fragment;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
struct headers { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata { bit<32> next_hop; }

parser P(packet_in b, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        b.extract(h.ethernet);
        transition select(h.ethernet.type) { 0x800: ipv4; default: accept; }
    }
    state ipv4 { b.extract(h.ipv4); transition accept; }
}
control V(inout headers h, inout metadata m) {
    apply {
        verify_checksum(h.ipv4.isValid(), { h.ipv4.version, h.ipv4.ihl, h.ipv4.tos, h.ipv4.len, h.ipv4.id,
            h.ipv4.flags, h.ipv4.fragment, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.src, h.ipv4.dst },
            h.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    counter(16, CounterType.packets_and_bytes) per_port;
    direct_counter(CounterType.packets_and_bytes) routed;
    action drop() { mark_to_drop(s); }
    action route(bit<32> next_hop, bit<9> port) {
        m.next_hop = next_hop;
        s.egress_spec = port;
        h.ipv4.ttl = h.ipv4.ttl - 1;
    }
    action multicast(bit<16> group) { s.mcast_grp = group; h.ipv4.ttl = h.ipv4.ttl - 1; }
    action rewrite(bit<48> dst) { h.ethernet.dst = dst; }
    table routes {
        key = { h.ipv4.dst: lpm; }
        actions = { route; multicast; drop; }
        default_action = drop;
        counters = routed;
        size = 1024;
    }
    table neighbours {
        key = { m.next_hop: exact; }
        actions = { rewrite; NoAction; }
        size = 64;
    }
    apply {
        per_port.count((bit<32>) s.ingress_port);
        if (!h.ipv4.isValid() || s.checksum_error == 1 || h.ipv4.ttl < 2) {
            drop();
        } else {
            routes.apply();
            neighbours.apply();
        }
    }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {
        if (s.instance_type == 5 && s.egress_port == s.ingress_port) { mark_to_drop(s); }
        h.ethernet.src[8:0] = s.egress_port;
    }
}
control C(inout headers h, inout metadata m) {
    apply {
        update_checksum(h.ipv4.isValid(), { h.ipv4.version, h.ipv4.ihl, h.ipv4.tos, h.ipv4.len, h.ipv4.id,
            h.ipv4.flags, h.ipv4.fragment, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.src, h.ipv4.dst },
            h.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control D(packet_out b, in headers h) { apply { b.emit(h.ethernet); b.emit(h.ipv4); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
