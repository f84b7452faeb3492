// Paths to destinations (the thesis' 4.2.2): an entry per receiver, and every switch knows the port towards each.
//
//     entry   receiver (16)
//
// The first receiver behind a port makes the copy for it, with the packet as it came into that pass: the receiver is
// its first entry. The copy goes through what follows and takes off whoever is behind another port.
//
// The control plane writes the port towards each receiver, and a clone session for each port.
#include <core.p4>
#include <v1model.p4>

#ifndef NODE_BITS
#define NODE_BITS 16
#endif
#ifndef MOST_ENTRIES
#define MOST_ENTRIES 256
#endif
#define ENTRY_BYTES (NODE_BITS / 8)

header entry_t {
    bit<NODE_BITS> node;
}

#include "include/scan.p4"

control DestinationsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action towards(bit<9> port) {
        meta.port = port;
    }

    table receivers {
        key = {
            hdr.entry.node: exact;
        }
        actions = {
            towards;
            NoAction;
        }
        default_action = NoAction();
        size = 65536;
    }

    apply {
        meta.port = NO_PORT;
        if (BROKEN) {
            mark_to_drop(standard);
        } else {
            receivers.apply();
            if (meta.to != NO_PORT) {
                if (meta.port != meta.to) {
                    meta.cutting = 1;
                } else {
                    meta.cutting = 0;
                }
                standard.egress_spec = meta.to;
            } else {
                ports_t bit_of = 64w1 << (bit<8>) meta.port;
                standard.egress_spec = NO_PORT;
                if (meta.port != NO_PORT && (meta.served & bit_of) == 0) {
                    meta.served = meta.served | bit_of;
                    clone_preserving_field_list(CloneType.I2E, (bit<32>) meta.port, KEEP);
                }
            }
        }
    }
}

control DestinationsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.instance_type == INGRESS_CLONE) {
            meta.to = standard.egress_port;
            meta.index = 1;
            if (hdr.stack.count > 1) {
                recirculate_preserving_field_list(KEEP);
            }
        } else if (meta.to != NO_PORT) {
            COPY_GOES_ON
        } else {
            ORIGINAL_GOES_ON
        }
    }
}

V1Switch(Parse(), Verify(), DestinationsIngress(), DestinationsEgress(), Compute(), Deparse()) main;
