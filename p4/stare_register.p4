// STARE in the data plane alone: a register holds, for each state id, the ports that have subscribers.
//
// A publish goes to the multicast group whose number is that set of ports, without the port that it came from.
// With B the ports that have subscribers, without the port that a SUB-register or SUB-remove came from, the
// request goes on to every other port of the distribution tree if B is empty, to the only one in B if there is
// one, and nowhere if there are more: on tree port j exactly if B without j is empty. A request of a host (from
// a port that is not of the tree) is answered with SUB-ack. Nothing is sent again between switches: hosts
// refresh.
//
// The control plane writes `configuration` (the ports that lead to other switches of the tree, the switch's own
// addresses), routes, and a multicast group for each set of ports that can come about.
#include <core.p4>
#include <v1model.p4>
#include "include/headers.p4"
#include "include/stare.p4"
#include "include/l3.p4"

#ifndef STARE_STATES
#define STARE_STATES 16384  // state ids that the switch has room for; packets of higher ones are dropped
#endif

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    udp_t      udp;
    stare_t    stare;
}

struct metadata_t {
    bit<8>      hops;     // that are left
    bit<2>      kind;     // as the address says
    bit<22>     state;
    bit<1>      request;  // a SUB-register or SUB-remove
    ports_t     from;     // the port that the packet came from
    ports_t     to;       // those that it goes to
    ports_t     tree;     // ports that lead to other switches
    mac_t       own_mac;
    ipv4_addr_t own_ipv4;
    ipv6_addr_t own_ipv6;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.hops = hdr.ipv4.ttl;
        meta.kind = hdr.ipv4.dst[23:22];
        meta.state = hdr.ipv4.dst[21:0];
        transition select(hdr.ipv4.dst[31:24], hdr.ipv4.ihl, hdr.ipv4.offset, hdr.ipv4.protocol) {
            (STARE_PREFIX, 5, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.hops = hdr.ipv6.hop_limit;
        meta.kind = hdr.ipv6.dst[23:22];
        meta.state = hdr.ipv6.dst[21:0];
        transition select(hdr.ipv6.dst[127:24], hdr.ipv6.next_header) {
            (STARE_PREFIX_IPV6, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            STARE_PORT: stare;
            default: accept;
        }
    }

    state stare {
        packet.extract(hdr.stare);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.flags,
                hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control StareIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<ports_t>(STARE_STATES) subscribers;
    L3() l3;

    action configure(ports_t tree, mac_t mac, ipv4_addr_t address, ipv6_addr_t ipv6) {
        meta.tree = tree;
        meta.own_mac = mac;
        meta.own_ipv4 = address;
        meta.own_ipv6 = ipv6;
    }

    table configuration {
        actions = {
            configure;
        }
        default_action = configure(0, 0, 0, 0);
    }

    action drop() {
        mark_to_drop(standard);
    }

    apply {
        configuration.apply();
        if (!(hdr.ipv4.isValid() || hdr.ipv6.isValid()) || standard.checksum_error == 1) {
            drop();
        } else if (!hdr.stare.isValid()) {
            l3.apply(hdr.ethernet, hdr.ipv4, hdr.ipv6, standard, meta.own_mac);
        } else if (standard.ingress_port >= PORTS || meta.hops < 2 || (bit<32>) meta.state >= STARE_STATES) {
            drop();
        } else {
            bit<32> state = (bit<32>) meta.state;
            ports_t known;
            ports_t others;
            meta.from = (ports_t) 1 << (bit<8>) standard.ingress_port;
            if (meta.kind == KIND_PUBLISH) {
                subscribers.read(known, state);
                meta.to = known & ~meta.from;
            } else if (meta.kind[1:1] == 1 && hdr.udp.length == REQUEST_LENGTH) {
                meta.request = 1;
                @atomic {
                    subscribers.read(known, state);
                    others = known & ~meta.from;
                    if (meta.kind == KIND_SUB_REGISTER) {
                        subscribers.write(state, others | meta.from);
                    } else {
                        subscribers.write(state, others);
                    }
                }
                if (others == 0) {
                    meta.to = meta.tree & ~meta.from;
                } else if ((others & (others - 1)) == 0) {
                    meta.to = others & meta.tree;
                }
                meta.to = meta.to | (meta.from & ~meta.tree);  // the answer to a host
            }
            if (meta.to == 0) {
                drop();
            } else {
                standard.mcast_grp = GROUP_OF(meta.to);
                if (hdr.ipv4.isValid()) {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            }
        }
    }
}

control StareEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // The answer to a host, made of its request.
    action answer() {
        hdr.stare.kind = KIND_SUB_ACK;
        hdr.ethernet.src = meta.own_mac;
    }

    action answer_ipv4() {
        answer();
        hdr.ipv4.dst[23:22] = KIND_SUB_ACK;
        hdr.ipv4.src = meta.own_ipv4;
        hdr.ethernet.dst = MULTICAST_MAC ++ 1w0 ++ hdr.ipv4.dst[22:0];
        hdr.udp.checksum = 0;  // as the address changed, which it covers
    }

    // UDP needs its checksum here (RFC 8200, 8.1).
    action answer_ipv6() {
        answer();
        hdr.ipv6.dst[23:22] = KIND_SUB_ACK;
        hdr.ipv6.src = meta.own_ipv6;
        hdr.ethernet.dst = MULTICAST_MAC_IPV6 ++ hdr.ipv6.dst[31:0];
        hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, {
                hdr.ipv6.src, hdr.ipv6.dst, hdr.udp.length, 8w0, PROTOCOL_UDP,
                hdr.udp.src, hdr.udp.dst, hdr.udp.length, hdr.stare.kind, hdr.stare.state, hdr.stare.vnf,
                hdr.stare.update, hdr.stare.last, hdr.stare.segment }, 32w0x10000);
    }

    apply {
#if STARE_BANK > 1
        if (meta.to != 0 && ((meta.to >> (bit<8>) standard.egress_port) & 1) == 0) {
            mark_to_drop(standard);
        }
#endif
        if (meta.request == 1 && standard.egress_port == standard.ingress_port) {
            if (hdr.ipv4.isValid()) {
                answer_ipv4();
            } else {
                answer_ipv6();
                if (hdr.udp.checksum == 0) {
                    hdr.udp.checksum = 0xFFFF;  // 0 says that there is none
                }
            }
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.flags,
                hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.stare);
    }
}

V1Switch(Parse(), Verify(), StareIngress(), StareEgress(), Compute(), Deparse()) main;
