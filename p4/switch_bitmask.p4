// Switch/bitmask pairs (the thesis' 3.3.2): an entry per switch that sends; bit i of its value is port i + 1.
//
//     entry   switch (8) | ports (16)
//
// A switch takes entries off until its own; each pass then makes a copy for the lowest port that is left in it.
// Copies have what stands behind the entry.
//
// The control plane writes the switch's own number, and a clone session for each port.
#include <core.p4>
#include <v1model.p4>

#ifndef SWITCH_BITS
#define SWITCH_BITS 8
#endif
#ifndef VALUE_BITS
#define VALUE_BITS 16
#endif
#define ENTRY_BYTES ((SWITCH_BITS + VALUE_BITS) / 8)

header entry_t {
    bit<SWITCH_BITS> owner;
    bit<VALUE_BITS>  ports;
}

struct metadata_t {
    @field_list(1) bit<1> mine;  // the entry is this switch's
    bit<9> port;  // the one that this pass serves
}

#include "include/top.p4"

control BitmaskIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    LowestPort() lowest;

    action own() {
        meta.mine = 1;
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
        if (BROKEN) {
            mark_to_drop(standard);
        } else {
            standard.egress_spec = NO_PORT;
            meta.mine = 0;
            switches.apply();
            if (meta.mine == 1) {
                lowest.apply((ports_t) hdr.entry.ports << 1, meta.port);
                hdr.entry.ports = hdr.entry.ports & (hdr.entry.ports - 1);
            }
        }
    }
}

control BitmaskEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.instance_type == EGRESS_CLONE) {
            TAKE_OFF;
        } else {
            if (meta.port != NO_PORT) {
                clone(CloneType.E2E, (bit<32>) meta.port);
            }
            if (meta.mine == 0) {
                TAKE_OFF;
                if (hdr.stack.count > 0) {
                    recirculate_preserving_field_list(KEEP);
                } else {
                    mark_to_drop(standard);
                }
            } else if (hdr.entry.ports != 0) {
                recirculate_preserving_field_list(KEEP);
            } else {
                mark_to_drop(standard);
            }
        }
    }
}

V1Switch(Parse(), Verify(), BitmaskIngress(), BitmaskEgress(), Compute(), Deparse()) main;
