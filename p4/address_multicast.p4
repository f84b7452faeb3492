// Multicast by address and UDP port: a rule for each of a publisher's trees, written by a controller beforehand.
//
// What OpenFlow switches do for publish/subscribe (OFM: Akiyama and others, "Scalable pub/sub system using
// OpenFlow control", 2016): the group of a rule names the ports of the tree, and a packet never goes back to
// the port that it came from, so that one rule serves publishers on all sides. Flooding is one such rule.
#include <core.p4>
#include <v1model.p4>
#include "include/headers.p4"

#ifndef RULES
#define RULES 131072
#endif

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
}

struct metadata_t { }

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
        transition select(hdr.ipv4.ihl, hdr.ipv4.offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MulticastIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }

    action replicate(bit<16> group) {
        standard.mcast_grp = group;
    }

    table trees {
        key = {
            hdr.ipv4.dst: exact;
            hdr.udp.dst: exact;
        }
        actions = {
            replicate;
            drop;
        }
        default_action = drop();
        size = RULES;
    }

    apply {
        if (hdr.udp.isValid()) {
            trees.apply();
        } else {
            drop();
        }
    }
}

control MulticastEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
    }
}

V1Switch(Parse(), Verify(), MulticastIngress(), MulticastEgress(), Compute(), Deparse()) main;
