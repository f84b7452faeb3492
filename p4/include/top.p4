// Headers, parser and deparser of programs that only ever look at the first entry and take it off the stack.
// Before: entry_t, ENTRY_BYTES, metadata_t.
#ifndef _TOP_P4_
#define _TOP_P4_

#include "stack.p4"

struct headers_t {
    ethernet_t ethernet;
    stack_t    stack;
    entry_t    entry;
}

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
        transition select(hdr.stack.count) {
            0: accept;
            default: entry;
        }
    }

    state entry {
        packet.extract(hdr.entry);
        transition accept;
    }
}

NO_CHECKSUMS

// Nothing has to be kept between passes, but bmv2 recirculates with a list of fields only.
const bit<8> KEEP = 1;

// A packet without a stack, with an empty one, or with one that is cut is not for switches.
#define BROKEN \
    (!hdr.entry.isValid() \
     || standard.packet_length < STACK_BYTES + (bit<32>) hdr.stack.count * ENTRY_BYTES)

#define TAKE_OFF \
    hdr.entry.setInvalid(); \
    hdr.stack.count = hdr.stack.count - 1

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.stack);
        packet.emit(hdr.entry);
    }
}

#endif
