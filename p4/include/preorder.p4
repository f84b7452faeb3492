// Entries in preorder (the thesis' 3.3.1 and 4.2.1): an entry of this switch makes a copy for its port, and what stands
// between it and the switch's next entry is the subtree behind that port. Before: entry_t, and all that scan.p4 wants.
//
// Predictive pruning: a copy goes through what is behind its entry, and from the switch's next one on all is cut off.
// Reactive: it leaves with all of it at once, and who gets it takes off what is not its own.
#ifndef _PREORDER_P4_
#define _PREORDER_P4_

#include "scan.p4"

// The end of ingress, when meta.port is the port that the entry means here, or NO_PORT.
#define FOLLOW \
    if (meta.to != NO_PORT) { \
        if (meta.port != NO_PORT) { \
            meta.cutting = 1; \
        } \
        standard.egress_spec = meta.to; \
    } else { \
        standard.egress_spec = NO_PORT; \
    }

control PreorderEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    bit<1> reactive = 0;

    action set_reactive() {
        reactive = 1;
    }

    table pruning {
        actions = {
            set_reactive;
            NoAction;
        }
        default_action = NoAction();
    }

    apply {
        if (standard.instance_type == EGRESS_CLONE) {
            pruning.apply();
            meta.to = standard.egress_port;
            if (reactive == 0 && hdr.stack.count > 0) {
                recirculate_preserving_field_list(KEEP);
            }
        } else if (meta.to != NO_PORT) {
            COPY_GOES_ON
        } else {
            if (meta.port != NO_PORT) {
                clone_preserving_field_list(CloneType.E2E, (bit<32>) meta.port, KEEP);
            }
            ORIGINAL_GOES_ON
        }
    }
}

#endif
