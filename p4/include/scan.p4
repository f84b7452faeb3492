// Headers, metadata, parser and deparser of programs whose copies look at the entries behind the one that made them.
// Before: entry_t, ENTRY_BYTES, MOST_ENTRIES.
#ifndef _SCAN_P4_
#define _SCAN_P4_

#include "stack.p4"

struct headers_t {
    ethernet_t            ethernet;
    stack_t               stack;
    entry_t[MOST_ENTRIES] kept;   // those that stay before the one that is looked at
    entry_t               entry;
}

struct metadata_t {
    @field_list(1) bit<16> index;    // entries before the one that this pass looks at
    @field_list(1) bit<9>  to;       // the port that a copy is for; NO_PORT for an original
    @field_list(1) bit<1>  cutting;  // a copy: what follows belongs to others
    @field_list(1) ports_t served;   // an original: the ports that have a copy
    bit<16>                left;     // to be kept, in the parser
    bit<9>                 port;     // what the entry says
}

const bit<8> KEEP = 1;

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_STACK: stack;
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
            0: entry;
            default: keep_one;
        }
    }

    state keep_one {
        packet.extract(hdr.kept.next);
        meta.left = meta.left - 1;
        transition keep;
    }

    state entry {
        packet.extract(hdr.entry);
        transition accept;
    }
}

NO_CHECKSUMS

// A packet without a stack, with an empty one, or with one that is cut or too long is not for switches.
#define BROKEN \
    (!hdr.entry.isValid() || hdr.stack.count > MOST_ENTRIES \
     || standard.packet_length < STACK_BYTES + (bit<32>) hdr.stack.count * ENTRY_BYTES)

#define TAKE_OFF \
    hdr.entry.setInvalid(); \
    hdr.stack.count = hdr.stack.count - 1

// What a copy does behind each entry: on to the next, and out behind the last.
#define COPY_GOES_ON \
    if (meta.cutting == 1) { \
        TAKE_OFF; \
    } else { \
        meta.index = meta.index + 1; \
    } \
    if (meta.index < hdr.stack.count) { \
        recirculate_preserving_field_list(KEEP); \
    }

// What an original does: the entry goes, and behind the last one the packet.
#define ORIGINAL_GOES_ON \
    TAKE_OFF; \
    if (hdr.stack.count > 0) { \
        recirculate_preserving_field_list(KEEP); \
    } else { \
        mark_to_drop(standard); \
    }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.stack);
        packet.emit(hdr.kept);
        packet.emit(hdr.entry);
    }
}

#endif
