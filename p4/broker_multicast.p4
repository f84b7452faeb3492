// A broker beside each switch (application-layer multicast with the switch's help, as the STARE paper compares
// it): what comes from a link goes to the broker's port, and comes back with the multicast group in front.
//
//     from the broker   Ethernet with type 0x88B5 | group (16) | the type that it had (16) | the rest
//
// 0x88B5 is IEEE 802's for local experiments. The broker knows which ports lead to subscribers; the switch knows
// nothing but its groups.
#include <core.p4>
#include <v1model.p4>
#include "include/headers.p4"

const bit<16> ETHERTYPE_BROKER = 0x88B5;

header broker_t {
    bit<16> group;
    bit<16> ether_type;
}

struct headers_t {
    ethernet_t ethernet;
    broker_t   broker;
}

struct metadata_t {
    bit<9> broker;  // the port that it is at
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_BROKER: broker;
            default: accept;
        }
    }

    state broker {
        packet.extract(hdr.broker);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control BrokerIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action configure(bit<9> broker) {
        meta.broker = broker;
    }

    table configuration {
        actions = {
            configure;
        }
        default_action = configure(511);
    }

    apply {
        configuration.apply();
        if (standard.ingress_port != meta.broker) {
            if (hdr.broker.isValid()) {
                mark_to_drop(standard);  // groups are the broker's to choose
            } else {
                standard.egress_spec = meta.broker;
            }
        } else if (hdr.broker.isValid()) {
            standard.mcast_grp = hdr.broker.group;
            hdr.ethernet.ether_type = hdr.broker.ether_type;
            hdr.broker.setInvalid();
            if (standard.mcast_grp == 0) {
                mark_to_drop(standard);
            }
        } else {
            mark_to_drop(standard);
        }
    }
}

control BrokerEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.broker);
    }
}

V1Switch(Parse(), Verify(), BrokerIngress(), BrokerEgress(), Compute(), Deparse()) main;
