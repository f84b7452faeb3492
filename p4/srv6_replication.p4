// SRv6 with replication (RFC 8754, 8986, 9524): an IPv6 router that knows these behaviors of its own SIDs.
//
//     End              the next segment of the list becomes the destination
//     End.X            the same, and the packet leaves by one link
//     End.DT6          the outer header goes off, what was in it is looked at as if it had just come
//     End.DX6          the outer header goes off, what was in it leaves by one link: delivery to a host
//     End.Replicate    a copy for each branch: on to another SID, around by a way that is pinned, or to a host
//     H.Encaps.Red     packets to an address (a group's) get an outer header, or one for each of several branches
//
// A replication SID is the last of its packet. A branch leads to a SID that needs no replication as well as to one
// that does: where a router knows none, copies go to single destinations ("spraying"). What has no SID and no
// policy is routed by its longest prefix. What breaks a rule of RFC 8754 is dropped; no ICMP is sent.
//
// The control plane writes SIDs, policies, routes, and for each replication segment a multicast group, the numbers
// of whose replicas are branches. Counter `links` has packets and bytes by port, from which link load is read.
#include <core.p4>
#include <v1model.p4>
#include "include/headers.p4"

#ifndef SIDS
#define SIDS 65536
#endif
#ifndef BRANCHES
#define BRANCHES 65535
#endif
#ifndef MOST_SEGMENTS
#define MOST_SEGMENTS 16
#endif

const bit<8> PROTOCOL_IPV6 = 41;
const bit<8> PROTOCOL_ROUTING = 43;
const bit<8> ROUTING_TYPE_SRH = 4;
const bit<16> IPV6_BYTES = 40;
const bit<16> ONE_SEGMENT_BYTES = 24;  // an SRH with one entry
const bit<8> HOP_LIMIT = 64;
const bit<32> REPLICA = 5;  // standard_metadata.instance_type
const bit<9> NO_PORT = 0;
const bit<8> KEEP = 1;

// What is to be done with a packet beside sending it on.
const bit<4> PASS = 0;
const bit<4> STEP = 1;
const bit<4> UNPACK = 2;
const bit<4> COPY = 3;
const bit<4> SPRAY = 4;
const bit<4> REFUSE = 5;

header srh_t {
    bit<8>  next_header;
    bit<8>  length;  // in 8 bytes, without the first 8
    bit<8>  kind;
    bit<8>  segments_left;
    bit<8>  last_entry;
    bit<8>  flags;
    bit<16> tag;
}

header segment_t {
    ipv6_addr_t sid;
}

// All of an SRH behind its fixed part, where it is at its last segment.
header rest_t {
    varbit<16320> bytes;
}

struct headers_t {
    ethernet_t               ethernet;
    ipv6_t                   outer;
    srh_t                    outer_srh;
    segment_t                outer_segment;
    ipv6_t                   ipv6;
    srh_t                    srh;
    rest_t                   rest;
    segment_t[MOST_SEGMENTS] before;  // those that are visited after the next one
    segment_t                target;  // the one that is visited next
}

struct metadata_t {
    @field_list(1) bit<1> unpacked;  // its outer header went off here
    bit<1>      again;               // it is looked at once more
    bit<4>      does;                // what its SID or its policy asks for
    bit<16>     group;
    bit<1>      routed;              // its port is to be found by its destination
    bit<8>      left;
    ipv6_addr_t destination;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_ROUTING: srh;
            default: accept;
        }
    }

    state srh {
        packet.extract(hdr.srh);
        meta.left = hdr.srh.segments_left - 1;
        transition select(hdr.srh.kind, hdr.srh.segments_left) {
            (ROUTING_TYPE_SRH, 0): rest;
            (ROUTING_TYPE_SRH, _): segments;
            default: accept;
        }
    }

    state rest {
        packet.extract(hdr.rest, (bit<32>) hdr.srh.length << 6);
        transition accept;
    }

    state segments {
        transition select(meta.left) {
            0: target;
            default: before;
        }
    }

    state before {
        packet.extract(hdr.before.next);
        meta.left = meta.left - 1;
        transition segments;
    }

    state target {
        packet.extract(hdr.target);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

// An outer header in front of a packet, to one SID or by another to it.
#define PUSH(FROM, TO, NEXT, MORE) \
    hdr.outer = { 6, 0, 0, hdr.ipv6.length + IPV6_BYTES + (MORE), NEXT, HOP_LIMIT, FROM, TO }

#define PUSH_BY(FROM, VIA, LAST) \
    PUSH(FROM, VIA, PROTOCOL_ROUTING, ONE_SEGMENT_BYTES); \
    hdr.outer_srh = { PROTOCOL_IPV6, 2, ROUTING_TYPE_SRH, 1, 0, 0, 0 }; \
    hdr.outer_segment = { LAST }

// The outer header goes off, with its SRH: what is behind it is an IPv6 packet.
#define TAKE_OFF \
    hdr.ipv6.setInvalid(); \
    hdr.srh.setInvalid(); \
    hdr.rest.setInvalid()

// The entries that an SRH's length has room for.
#define ROOM ((bit<8>) hdr.srh.length[7:1])

// An IPv6 packet is in it, and no segment is left.
#define AT_END \
    (hdr.ipv6.next_header == PROTOCOL_IPV6 \
     || (hdr.ipv6.next_header == PROTOCOL_ROUTING && hdr.rest.isValid() && hdr.srh.next_header == PROTOCOL_IPV6 \
         && ROOM > hdr.srh.last_entry))

// There is a next segment, where the header says.
#define NEXT_SEGMENT \
    (hdr.target.isValid() && ROOM > hdr.srh.last_entry && hdr.srh.segments_left - 1 <= hdr.srh.last_entry)

// No segment is left.
#define LAST_SEGMENT (!hdr.srh.isValid() || hdr.srh.segments_left == 0)

control Srv6Ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }

    action leave(bit<9> port, mac_t own, mac_t next_hop) {
        standard.egress_spec = port;
        hdr.ethernet.src = own;
        hdr.ethernet.dst = next_hop;
        meta.routed = 0;
    }

    action end() {
        meta.does = STEP;
    }

    action end_x(bit<9> port, mac_t own, mac_t next_hop) {
        leave(port, own, next_hop);
        meta.does = STEP;
    }

    action end_dt6() {
        meta.does = UNPACK;
        meta.again = 1;
        meta.routed = 0;
        standard.egress_spec = NO_PORT;
    }

    action end_dx6(bit<9> port, mac_t own, mac_t next_hop) {
        leave(port, own, next_hop);
        meta.does = UNPACK;
    }

    action end_replicate(bit<16> group) {
        meta.does = COPY;
        meta.group = group;
        meta.routed = 0;
    }

    // This node's own SIDs.
    table sids {
        key = {
            hdr.ipv6.dst: exact;
        }
        actions = {
            end;
            end_x;
            end_dt6;
            end_dx6;
            end_replicate;
            NoAction;
        }
        default_action = NoAction();
        size = SIDS;
    }

    action encapsulate(ipv6_addr_t source, ipv6_addr_t sid) {
        PUSH(source, sid, PROTOCOL_IPV6, 0);
        meta.destination = sid;
    }

    action encapsulate_by(ipv6_addr_t source, ipv6_addr_t via, ipv6_addr_t sid) {
        PUSH_BY(source, via, sid);
        meta.destination = via;
    }

    action spray(bit<16> group) {
        meta.does = SPRAY;
        meta.group = group;
        meta.routed = 0;
    }

    // H.Encaps.Red by the address that a host sent to.
    table policies {
        key = {
            hdr.ipv6.dst: exact;
        }
        actions = {
            encapsulate;
            encapsulate_by;
            spray;
            NoAction;
        }
        default_action = NoAction();
        size = SIDS;
    }

    action local() {
        meta.again = 1;
        standard.egress_spec = NO_PORT;
    }

    // `local` is for this node's own locator: the next segment is a SID of its own.
    table routes {
        key = {
            meta.destination: lpm;
        }
        actions = {
            leave;
            local;
            drop;
        }
        default_action = drop();
        size = 65536;
    }

    apply {
        meta.again = 0;
        meta.does = PASS;
        if (!hdr.ipv6.isValid() || hdr.ipv6.version != 6 || hdr.ipv6.hop_limit <= 1) {
            mark_to_drop(standard);
        } else {
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            meta.destination = hdr.ipv6.dst;
            meta.routed = 1;
            if (!sids.apply().hit && meta.unpacked == 0) {
                policies.apply();
            }
            if (meta.does == STEP) {
                if (NEXT_SEGMENT) {
                    hdr.srh.segments_left = hdr.srh.segments_left - 1;
                    hdr.ipv6.dst = hdr.target.sid;
                    meta.destination = hdr.target.sid;
                } else {
                    meta.does = REFUSE;
                }
            } else if (meta.does == UNPACK) {
                if (AT_END) {
                    TAKE_OFF;
                    meta.unpacked = 1;
                } else {
                    meta.does = REFUSE;
                }
            } else if (meta.does == COPY) {
                if (LAST_SEGMENT) {
                    standard.mcast_grp = meta.group;
                } else {
                    meta.does = REFUSE;
                }
            }
            if (meta.does == SPRAY) {
                standard.mcast_grp = meta.group;
            }
            if (meta.does == REFUSE) {
                meta.again = 0;
                mark_to_drop(standard);
            } else if (meta.routed == 1) {
                routes.apply();
                if (meta.again == 1 && meta.does != STEP && !hdr.outer.isValid()) {
                    meta.again = 0;  // a SID of this node's locator that is none
                    mark_to_drop(standard);
                }
            }
        }
    }
}

control Srv6Egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(512, CounterType.packets_and_bytes) links;

    action drop() {
        mark_to_drop(standard);
    }

    action address(mac_t own, mac_t next_hop) {
        hdr.ethernet.src = own;
        hdr.ethernet.dst = next_hop;
    }

    action onward(mac_t own, mac_t next_hop, ipv6_addr_t sid) {
        address(own, next_hop);
        hdr.ipv6.dst = sid;
    }

    action around(mac_t own, mac_t next_hop, ipv6_addr_t source, ipv6_addr_t via, ipv6_addr_t last, ipv6_addr_t sid) {
        onward(own, next_hop, sid);
        PUSH_BY(source, via, last);
    }

    action encapsulate(mac_t own, mac_t next_hop, ipv6_addr_t source, ipv6_addr_t sid) {
        address(own, next_hop);
        PUSH(source, sid, PROTOCOL_IPV6, 0);
    }

    action deliver(mac_t own, mac_t next_hop) {
        address(own, next_hop);
        meta.does = UNPACK;
    }

    action hand(mac_t own, mac_t next_hop) {
        address(own, next_hop);
    }

    // By the number of a replica: no two segments of this node have one in common.
    table branches {
        key = {
            standard.egress_rid: exact;
        }
        actions = {
            onward;
            around;
            encapsulate;
            deliver;
            hand;
            drop;
        }
        default_action = drop();
        size = BRANCHES;
    }

    apply {
        if (meta.again == 1) {
            recirculate_preserving_field_list(KEEP);
        } else if (standard.instance_type == REPLICA) {
            branches.apply();
            if (meta.does == UNPACK) {
                if (AT_END) {
                    TAKE_OFF;
                } else {
                    mark_to_drop(standard);
                }
            }
            links.count((bit<32>) standard.egress_port);
        } else if (meta.does == COPY || meta.does == SPRAY) {
            mark_to_drop(standard);  // group 0 is none
        } else {
            links.count((bit<32>) standard.egress_port);
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.outer);
        packet.emit(hdr.outer_srh);
        packet.emit(hdr.outer_segment);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.srh);
        packet.emit(hdr.rest);
        packet.emit(hdr.before);
        packet.emit(hdr.target);
    }
}

V1Switch(Parse(), Verify(), Srv6Ingress(), Srv6Egress(), Compute(), Deparse()) main;
