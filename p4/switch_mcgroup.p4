// Switch/multicast-group pairs (the thesis' 3.3.3): a value is a multicast group of the switch, all copies in one pass.
//
//     entry   switch (8) | group (16)
//
// A switch takes entries off until its own. Where its ports are divided into subsets it may have several entries:
// then a clone of the packet as it came goes on behind each of them to the end of the stack.
//
// The control plane writes the switch's own number, whether there are subsets, the groups, and clone session 1.
#include <core.p4>
#include <v1model.p4>

#ifndef SWITCH_BITS
#define SWITCH_BITS 8
#endif
#ifndef VALUE_BITS
#define VALUE_BITS 16
#endif
#define ENTRY_BYTES ((SWITCH_BITS + VALUE_BITS) / 8)

const bit<32> GO_ON = 1;  // a session of any port: what it makes is recirculated

header entry_t {
    bit<SWITCH_BITS> owner;
    bit<VALUE_BITS>  group;
}

struct metadata_t {
    @field_list(1) bit<1> mine;     // the entry is this switch's
    bit<1> subsets;  // and it may have more
}

#include "include/top.p4"

control GroupIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action own(bit<1> subsets) {
        meta.mine = 1;
        meta.subsets = subsets;
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
                if (meta.subsets == 1 && hdr.stack.count > 1) {
                    clone(CloneType.I2E, GO_ON);
                }
                standard.mcast_grp = (bit<16>) hdr.entry.group;
                TAKE_OFF;
            }
        }
    }
}

control GroupEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.instance_type == INGRESS_CLONE) {
            TAKE_OFF;
            recirculate_preserving_field_list(KEEP);
        } else if (meta.mine == 1) {
            if (standard.instance_type != REPLICA) {
                mark_to_drop(standard);  // group 0 is none
            }
        } else {
            TAKE_OFF;
            if (hdr.stack.count > 0) {
                recirculate_preserving_field_list(KEEP);
            } else {
                mark_to_drop(standard);
            }
        }
    }
}

V1Switch(Parse(), Verify(), GroupIngress(), GroupEgress(), Compute(), Deparse()) main;
