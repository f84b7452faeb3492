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
    udp_t      udp;
    stare_t    stare;
}

struct metadata_t {
    bit<1>      request;  // a SUB-register or SUB-remove
    ports_t     from;     // the port that the packet came from
    ports_t     tree;     // ports that lead to other switches
    mac_t       own_mac;
    ipv4_addr_t own_address;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.dst[31:24], hdr.ipv4.ihl, hdr.ipv4.offset, hdr.ipv4.protocol) {
            (STARE_PREFIX, 5, 0, PROTOCOL_UDP): udp;
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

    action configure(ports_t tree, mac_t mac, ipv4_addr_t address) {
        meta.tree = tree;
        meta.own_mac = mac;
        meta.own_address = address;
    }

    table configuration {
        actions = {
            configure;
        }
        default_action = configure(0, 0, 0);
    }

    action drop() {
        mark_to_drop(standard);
    }

    action replicate(ports_t ports) {
        standard.mcast_grp = ports;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    apply {
        configuration.apply();
        if (!hdr.ipv4.isValid() || standard.checksum_error == 1) {
            drop();
        } else if (!hdr.stare.isValid()) {
            l3.apply(hdr.ethernet, hdr.ipv4, standard, meta.own_mac);
        } else if (standard.ingress_port >= PORTS || hdr.ipv4.ttl < 2
                   || (bit<32>) hdr.ipv4.dst[21:0] >= STARE_STATES) {
            drop();
        } else {
            bit<32> state = (bit<32>) hdr.ipv4.dst[21:0];
            bit<2> kind = hdr.ipv4.dst[23:22];
            ports_t known;
            ports_t others;
            ports_t to = 0;
            meta.from = 16w1 << (bit<8>) standard.ingress_port;
            if (kind == KIND_PUBLISH) {
                subscribers.read(known, state);
                to = known & ~meta.from;
            } else if (kind == KIND_SUB_REGISTER || kind == KIND_SUB_REMOVE) {
                meta.request = 1;
                @atomic {
                    subscribers.read(known, state);
                    others = known & ~meta.from;
                    if (kind == KIND_SUB_REGISTER) {
                        subscribers.write(state, others | meta.from);
                    } else {
                        subscribers.write(state, others);
                    }
                }
                if (others == 0) {
                    to = meta.tree & ~meta.from;
                } else if ((others & (others - 1)) == 0) {
                    to = others & meta.tree;
                }
                to = to | (meta.from & ~meta.tree);  // the answer to a host
            }
            if (to == 0) {
                drop();
            } else {
                replicate(to);
            }
        }
    }
}

control StareEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (meta.request == 1 && standard.egress_port == standard.ingress_port) {
            hdr.stare.kind = KIND_SUB_ACK;
            hdr.ipv4.dst[23:22] = KIND_SUB_ACK;
            hdr.ipv4.src = meta.own_address;
            hdr.ethernet.dst = MULTICAST_MAC ++ 1w0 ++ hdr.ipv4.dst[22:0];
            hdr.ethernet.src = meta.own_mac;
            hdr.udp.checksum = 0;  // as the address changed, which it covers
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
        packet.emit(hdr.udp);
        packet.emit(hdr.stare);
    }
}

V1Switch(Parse(), Verify(), StareIngress(), StareEgress(), Compute(), Deparse()) main;
