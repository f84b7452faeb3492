// Like the register design of STARE: a register per state id holds the ports with subscribers.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> fragment;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<8> top; bit<2> kind; bit<22> state;
}
header udp_t { bit<16> source; bit<16> target; bit<16> len; bit<16> checksum; }
struct headers { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; }
struct metadata { }

parser P(packet_in b, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        b.extract(h.ethernet);
        transition select(h.ethernet.type) { 0x800: ipv4; default: accept; }
    }
    state ipv4 {
        b.extract(h.ipv4);
        transition select(h.ipv4.protocol, h.ipv4.ihl) { (17, 5): udp; default: accept; }
    }
    state udp { b.extract(h.udp); transition accept; }
}
control V(inout headers h, inout metadata m) { apply { } }
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    register<bit<8>>(4096) ports;
    bit<8> mask;
    action unicast(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    table hosts {
        key = { h.ethernet.dst: exact; }
        actions = { unicast; drop; }
        default_action = drop();
    }
    apply {
        if (h.udp.isValid() && h.ipv4.top == 239) {
            bit<32> state = (bit<32>) h.ipv4.state;
            bit<8> mine = 8w1 << (bit<8>) s.ingress_port;
            ports.read(mask, state);
            if (h.ipv4.kind == 3) {
                ports.write(state, mask | mine);
                drop();
            } else if (h.ipv4.kind == 2) {
                ports.write(state, mask & ~mine);
                drop();
            } else {
                s.mcast_grp = (bit<16>) (mask & ~mine);
                if (s.mcast_grp == 0) { drop(); }
            }
        } else {
            hosts.apply();
        }
    }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out b, in headers h) { apply { b.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
