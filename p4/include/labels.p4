// Stacks of hop, tree and stop labels (middleware/routing/virtual/stacks.py says what a switch does with one).
//
//     Ethernet, type 0x9999, or IPv4 and UDP port 39321 | labels (16) | label ... | what is carried
//     label   kind (2): 0 hop, 1 stop, 2 tree | id (14)
//
// An original looks at one label per pass: a hop label of this switch makes a copy for its link and goes, a tree label
// stays and makes, pass by pass, a copy for each of the tree's links that has none yet and did not bring the packet.
// A copy goes through what is behind its label: the switch's own hops and stops go, its own link's stop ends it.
//
// What comes in UDP is handled as if it had come in Ethernet alone; `tunnels` says which ports lead to neighbours that
// are reached by UDP. What has no stack goes by its Ethernet address, or nowhere. With STOPS undefined no label ends a
// copy.
#ifndef _LABELS_P4_
#define _LABELS_P4_

#include "stack.p4"

#ifndef MOST_LABELS
#define MOST_LABELS 128
#endif

const bit<2> HOP = 0;
const bit<2> STOP = 1;
const bit<2> TREE = 2;
const bit<16> UDP_STACK = 39321;
const bit<32> TUNNEL_BYTES = 28;  // the headers of IPv4 and UDP

header label_t {
    bit<2>  kind;
    bit<14> id;
}

struct headers_t {
    ethernet_t           ethernet;
    ipv4_t               ipv4;
    udp_t                udp;
    stack_t              stack;
    label_t[MOST_LABELS] kept;   // those that stay before the one that is looked at
    label_t              label;
}

struct metadata_t {
    @field_list(1) bit<16> index;     // labels before the one that this pass looks at
    @field_list(1) bit<9>  to;        // the port that a copy is for; NO_PORT for an original
    @field_list(1) ports_t served;    // by a copy, or by whoever sent the packet
    @field_list(1) ports_t waiting;   // that this label still makes copies for
    @field_list(1) bit<16> carried;   // bytes behind the stack
    bit<16>                left;      // to be kept, in the parser
    bit<9>                 port;      // the one that this pass makes a copy for
    bit<1>                 own;       // a hop or stop of this switch: it goes
}

const bit<8> KEEP = 1;

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_STACK: stack;
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
        transition select(hdr.udp.dst) {
            UDP_STACK: stack;
            default: accept;
        }
    }

    state stack {
        packet.extract(hdr.stack);
        meta.left = meta.index;
        transition select(hdr.stack.count) {
            0: accept;
            default: keep;
        }
    }

    state keep {
        transition select(meta.left) {
            0: label;
            default: keep_one;
        }
    }

    state keep_one {
        packet.extract(hdr.kept.next);
        meta.left = meta.left - 1;
        transition keep;
    }

    state label {
        packet.extract(hdr.label);
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

control LabelIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    LowestPort() lowest;
    ports_t wanted = 0;

    action drop() {
        mark_to_drop(standard);
    }

    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    // Of frames without a stack.
    table addresses {
        key = {
            hdr.ethernet.dst: exact;
        }
        actions = {
            forward;
            drop;
        }
        default_action = drop();
        size = 16384;
    }

    action own_link(bit<9> port) {
        meta.own = 1;
        meta.port = port;
    }

    table links {
        key = {
            hdr.label.id: exact;
        }
        actions = {
            own_link;
            NoAction;
        }
        default_action = NoAction();
        size = 512;
    }

    action follow(ports_t ports) {
        wanted = ports;
    }

    table trees {
        key = {
            hdr.label.id: exact;
        }
        actions = {
            follow;
            NoAction;
        }
        default_action = NoAction();
        size = 16384;
    }

    apply {
        meta.own = 0;
        meta.port = NO_PORT;
        bit<32> before = STACK_BYTES + (bit<32>) hdr.stack.count * 2;
        if (hdr.ipv4.isValid()) {
            before = before + TUNNEL_BYTES;
        }
        if (!hdr.stack.isValid()) {
            addresses.apply();
        } else if (!hdr.label.isValid() || hdr.stack.count > MOST_LABELS || standard.checksum_error == 1
            || standard.packet_length < before) {
            mark_to_drop(standard);
        } else {
            if (standard.instance_type == NEW_PACKET) {
                meta.served = 64w1 << (bit<8>) standard.ingress_port;
                meta.carried = (bit<16>) (standard.packet_length - before);
                hdr.ipv4.setInvalid();
                hdr.udp.setInvalid();
                hdr.ethernet.ether_type = ETHERTYPE_STACK;
            }
            standard.egress_spec = meta.to;  // NO_PORT for an original
            if (hdr.label.kind != TREE) {
                links.apply();
#ifdef STOPS
                if (hdr.label.kind == STOP && meta.own == 1 && meta.to == meta.port && meta.to != NO_PORT) {
                    mark_to_drop(standard);
                }
#endif
            }
            if (meta.to == NO_PORT) {
                if (meta.waiting == 0) {
                    if (hdr.label.kind == TREE) {
                        trees.apply();
                    } else if (hdr.label.kind == HOP && meta.own == 1) {
                        wanted = 64w1 << (bit<8>) meta.port;
                    }
                    meta.waiting = wanted & ~meta.served;
                    meta.served = meta.served | wanted;
                }
                lowest.apply(meta.waiting, meta.port);
                meta.waiting = meta.waiting & (meta.waiting - 1);
            }
        }
    }
}

control LabelEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action clean() {
        hdr.stack.count = 0;
        hdr.label.setInvalid();
        hdr.kept.pop_front(MOST_LABELS);
    }

    // Hosts that are sent no labels.
    table last_switch {
        key = {
            standard.egress_port: exact;
        }
        actions = {
            clean;
            NoAction;
        }
        default_action = NoAction();
        size = 512;
    }

    action tunnel(mac_t src_mac, mac_t dst_mac, ipv4_addr_t src, ipv4_addr_t dst) {
        hdr.ethernet.dst = dst_mac;
        hdr.ethernet.src = src_mac;
        hdr.ethernet.ether_type = ETHERTYPE_IPV4;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4;
        hdr.ipv4.ihl = 5;
        hdr.ipv4.tos = 0;
        hdr.ipv4.length = 30 + hdr.stack.count * 2 + meta.carried;
        hdr.ipv4.id = 0;
        hdr.ipv4.flags = 0;
        hdr.ipv4.offset = 0;
        hdr.ipv4.ttl = 64;
        hdr.ipv4.protocol = PROTOCOL_UDP;
        hdr.ipv4.src = src;
        hdr.ipv4.dst = dst;
        hdr.udp.setValid();
        hdr.udp.src = UDP_STACK;
        hdr.udp.dst = UDP_STACK;
        hdr.udp.length = 10 + hdr.stack.count * 2 + meta.carried;
        hdr.udp.checksum = 0;
    }

    // Neighbours behind switches that know nothing of stacks.
    table tunnels {
        key = {
            standard.egress_port: exact;
        }
        actions = {
            tunnel;
            NoAction;
        }
        default_action = NoAction();
        size = 512;
    }

    apply {
        if (hdr.stack.isValid()) {
            if (standard.instance_type == EGRESS_CLONE) {
                meta.to = standard.egress_port;
                if (meta.waiting != 0) {  // the original stays at its label for others, this copy does not
                    meta.waiting = 0;
                    meta.index = meta.index + 1;
                }
            } else if (meta.own == 1) {
                hdr.label.setInvalid();
                hdr.stack.count = hdr.stack.count - 1;
            } else if (meta.waiting == 0) {
                meta.index = meta.index + 1;
            }
            if (meta.to == NO_PORT && meta.port != NO_PORT) {
                clone_preserving_field_list(CloneType.E2E, (bit<32>) meta.port, KEEP);
            }
            if (meta.index < hdr.stack.count || meta.waiting != 0) {
                recirculate_preserving_field_list(KEEP);
            } else if (meta.to == NO_PORT) {
                mark_to_drop(standard);
            } else {
                last_switch.apply();
                tunnels.apply();
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
        packet.emit(hdr.udp);
        packet.emit(hdr.stack);
        packet.emit(hdr.kept);
        packet.emit(hdr.label);
    }
}

#endif
