// Switch/port pairs (the thesis' 3.3.1): an entry per link of the tree, in preorder.
//
//     entry   switch (8) | port (8)
//
// The control plane writes the switch's own number, and a clone session for each port.
#include <core.p4>
#include <v1model.p4>

#ifndef SWITCH_BITS
#define SWITCH_BITS 8
#endif
#ifndef VALUE_BITS
#define VALUE_BITS 8
#endif
#ifndef MOST_ENTRIES
#define MOST_ENTRIES 256
#endif
#define ENTRY_BYTES ((SWITCH_BITS + VALUE_BITS) / 8)

header entry_t {
    bit<SWITCH_BITS> owner;
    bit<VALUE_BITS>  port;
}

#include "include/preorder.p4"

control PortIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action own() {
        meta.port = (bit<9>) hdr.entry.port;
    }

    table switches {
        key = {
            hdr.entry.owner: exact;
        }
        actions = {
            own;
            NoAction;
        }
        default_action = NoAction();
        size = 1;
    }

    apply {
        meta.port = NO_PORT;
        if (BROKEN) {
            mark_to_drop(standard);
        } else {
            switches.apply();
            FOLLOW
        }
    }
}

V1Switch(Parse(), Verify(), PortIngress(), PreorderEgress(), Compute(), Deparse()) main;
