// Hops to neighbours (the thesis' 4.2.1): the nodes of the tree in preorder, and switches know their neighbours.
//
//     entry   node (16)
//
// The control plane writes the port towards each neighbour, and a clone session for each port.
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

#include "include/preorder.p4"

control HopsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action neighbour(bit<9> port) {
        meta.port = port;
    }

    table neighbours {
        key = {
            hdr.entry.node: exact;
        }
        actions = {
            neighbour;
            NoAction;
        }
        default_action = NoAction();
        size = 512;
    }

    apply {
        meta.port = NO_PORT;
        if (BROKEN) {
            mark_to_drop(standard);
        } else {
            neighbours.apply();
            FOLLOW
        }
    }
}

V1Switch(Parse(), Verify(), HopsIngress(), PreorderEgress(), Compute(), Deparse()) main;
