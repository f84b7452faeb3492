// STARE with a controller beside the switch: a table holds, for each state, the ports that have subscribers.
//
// A publish goes to the multicast group whose number is that set of ports, without the port that it came from.
// SUB-register, SUB-remove and SUB-ack go to the CPU port, with the port that they came from before them. The
// embedded controller (middleware/control/stare_switch) writes the table, answers hosts, and sends requests on
// to other switches until these have acknowledged: packets of its own begin with the set of ports they go to.
#include <core.p4>
#include <v1model.p4>
#include "include/headers.p4"
#include "include/stare.p4"
#include "include/l3.p4"

#ifndef CPU_PORT
#define CPU_PORT 510
#endif
#ifndef STARE_ENTRIES
#define STARE_ENTRIES 131072
#endif

@controller_header("packet_in")
header packet_in_t {
    bit<16> port;
}

@controller_header("packet_out")
header packet_out_t {
    ports_t ports;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    ipv4_t       ipv4;
    ipv6_t       ipv6;
    udp_t        udp;
    stare_t      stare;
}

struct metadata_t {
    bit<8>  hops;  // that are left
    bit<2>  kind;  // as the address says
    bit<22> state;
    ports_t from;  // the port that the packet came from
    ports_t to;    // those that it goes to
    mac_t   own_mac;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: from_cpu;
            default: ethernet;
        }
    }

    state from_cpu {
        packet.extract(hdr.packet_out);
        transition accept;
    }

    state ethernet {
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
    L3() l3;

    action configure(mac_t mac) {
        meta.own_mac = mac;
    }

    table configuration {
        actions = {
            configure;
        }
        default_action = configure(0);
    }

    action drop() {
        mark_to_drop(standard);
    }

    action replicate(ports_t ports) {
        meta.to = ports & ~meta.from;
    }

    table subscribers {
        key = {
            meta.state: exact;
        }
        actions = {
            replicate;
            drop;
        }
        default_action = drop();
        size = STARE_ENTRIES;
    }

    apply {
        configuration.apply();
        if (hdr.packet_out.isValid()) {
            meta.to = hdr.packet_out.ports;
            hdr.packet_out.setInvalid();
            if (meta.to == 0) {
                drop();
            }
        } else if (!(hdr.ipv4.isValid() || hdr.ipv6.isValid()) || standard.checksum_error == 1) {
            drop();
        } else if (!hdr.stare.isValid()) {
            l3.apply(hdr.ethernet, hdr.ipv4, hdr.ipv6, standard, meta.own_mac);
        } else if (standard.ingress_port >= PORTS || meta.hops < 2) {
            drop();
        } else if (meta.kind == KIND_PUBLISH) {
            meta.from = (ports_t) 1 << (bit<8>) standard.ingress_port;
            if (subscribers.apply().hit && meta.to == 0) {
                drop();  // the only subscribers are where it came from
            }
            if (hdr.ipv4.isValid()) {
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            } else {
                hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            }
        } else {
            hdr.packet_in.setValid();
            hdr.packet_in.port = (bit<16>) standard.ingress_port;
            standard.egress_spec = CPU_PORT;
        }
        standard.mcast_grp = GROUP_OF(meta.to);
    }
}

control StareEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
#if STARE_BANK > 1
        if (meta.to != 0 && ((meta.to >> (bit<8>) standard.egress_port) & 1) == 0) {
            mark_to_drop(standard);
        }
#endif
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
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.stare);
    }
}

V1Switch(Parse(), Verify(), StareIngress(), StareEgress(), Compute(), Deparse()) main;
