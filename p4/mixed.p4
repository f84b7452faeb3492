// Mixed entries (the thesis' 3.3.4): each says which of the three ways its value is meant.
//
//     entry   switch (14) | way (2): 0 port, 1 bitmask, 2 group | value (16)
//
// A switch goes through the whole stack, as it may have several entries, and takes each off. A port makes one copy, a
// bitmask one per pass, a group all at once, while a clone of the packet as it came goes on. Copies have what stands
// behind their entry.
//
// The control plane writes the switch's own number, the groups that it knows, and a clone session for each port.
#include <core.p4>
#include <v1model.p4>

#ifndef SWITCH_BITS
#define SWITCH_BITS 14
#endif
#ifndef VALUE_BITS
#define VALUE_BITS 16
#endif
#define ENTRY_BYTES ((SWITCH_BITS + 2 + VALUE_BITS) / 8)

const bit<2> PORT = 0;
const bit<2> BITMASK = 1;
const bit<2> GROUP = 2;
const bit<32> GO_ON = 1;  // a session of any port: what it makes is recirculated

header entry_t {
    bit<SWITCH_BITS> owner;
    bit<2>           way;
    bit<VALUE_BITS>  value;
}

struct metadata_t {
    @field_list(1) bit<1> mine;  // the entry is this switch's
    bit<9> port;  // the one that this pass serves
}

#include "include/top.p4"

control MixedIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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

    action multicast(bit<16> group) {
        standard.mcast_grp = group;
    }

    table groups {
        key = {
            hdr.entry.value: exact;
        }
        actions = {
            multicast;
            NoAction;
        }
        default_action = NoAction();
        size = 65536;
    }

    apply {
        if (BROKEN) {
            mark_to_drop(standard);
        } else {
            standard.egress_spec = NO_PORT;
            meta.mine = 0;
            switches.apply();
            if (meta.mine == 1) {
                if (hdr.entry.way == GROUP) {
                    if (groups.apply().hit) {
                        if (hdr.stack.count > 1) {
                            clone(CloneType.I2E, GO_ON);
                        }
                        TAKE_OFF;
                    }
                } else if (hdr.entry.way == BITMASK) {
                    lowest.apply((ports_t) hdr.entry.value << 1, meta.port);
                    hdr.entry.value = hdr.entry.value & (hdr.entry.value - 1);
                } else if (hdr.entry.way == PORT && hdr.entry.value < 511) {
                    meta.port = (bit<9>) hdr.entry.value;
                }
            }
        }
    }
}

control MixedEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.instance_type == EGRESS_CLONE) {
            if (hdr.entry.isValid()) {
                TAKE_OFF;
            }
        } else if (standard.instance_type == INGRESS_CLONE) {
            TAKE_OFF;
            recirculate_preserving_field_list(KEEP);
        } else if (standard.instance_type != REPLICA) {
            if (meta.port != NO_PORT) {
                clone(CloneType.E2E, (bit<32>) meta.port);
            }
            if (meta.mine == 1 && hdr.entry.way == BITMASK && hdr.entry.value != 0) {
                recirculate_preserving_field_list(KEEP);
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
}

V1Switch(Parse(), Verify(), MixedIngress(), MixedEgress(), Compute(), Deparse()) main;
